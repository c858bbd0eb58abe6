-- Drafts of campaigns: who wrote and approved which revision, and what lists filter by.
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS revision BIGINT NOT NULL DEFAULT 1;
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS complete BIGINT NOT NULL DEFAULT 1; -- 1: it can start
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS name TEXT COLLATE "C" NOT NULL DEFAULT ''; -- that of its spec
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS start_at BIGINT; -- that of its spec
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS created_by TEXT COLLATE "C" NOT NULL DEFAULT ''; -- an address, or key:NAME; empty: unknown
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS edited_by TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS edited_at BIGINT;
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS approved_by TEXT COLLATE "C";
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS approved_at BIGINT;
-- The request as its author wrote it.
CREATE TABLE IF NOT EXISTS campaign_definitions (
    campaign BIGINT PRIMARY KEY, -- campaigns.num
    definition TEXT COLLATE "C" NOT NULL
);
COMMIT;

-- Rows of running campaigns change often: this locks each only for a moment, and no table.
BEGIN;
UPDATE campaigns SET name = coalesce(spec::json ->> 'name', ''), start_at = (spec::json ->> 'start_at_ms')::bigint
WHERE name = '' AND revision = 1;

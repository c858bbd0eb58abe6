-- Drafts of campaigns: who wrote and approved which revision, and what lists filter by.
ALTER TABLE campaigns ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
ALTER TABLE campaigns ADD COLUMN complete INTEGER NOT NULL DEFAULT 1; -- 1: it can start
ALTER TABLE campaigns ADD COLUMN name TEXT NOT NULL DEFAULT '';       -- that of its spec
ALTER TABLE campaigns ADD COLUMN start_at INTEGER;                    -- that of its spec
ALTER TABLE campaigns ADD COLUMN created_by TEXT NOT NULL DEFAULT ''; -- an address, or key:NAME; empty: unknown
ALTER TABLE campaigns ADD COLUMN edited_by TEXT NOT NULL DEFAULT '';
ALTER TABLE campaigns ADD COLUMN edited_at INTEGER;
ALTER TABLE campaigns ADD COLUMN approved_by TEXT;
ALTER TABLE campaigns ADD COLUMN approved_at INTEGER;
UPDATE campaigns SET name = coalesce(json_extract(spec, '$.name'), ''), start_at = json_extract(spec, '$.start_at_ms')
WHERE json_valid(spec);
-- With all that a list filters by.
DROP INDEX campaigns_by_app;
CREATE INDEX campaigns_by_app ON campaigns (app, id, state, created_by, name, start_at);

-- The request as its author wrote it.
CREATE TABLE campaign_definitions (
    campaign INTEGER PRIMARY KEY,  -- campaigns.num
    definition TEXT NOT NULL
) STRICT;

-- The push tokens of a device except its main token, which is in columns of devices.
--
-- Running nodes lock the existing tables in various orders. So the change of each has a transaction of its own, which
-- waits for one lock and holds no other; all of them may run again.
CREATE TABLE IF NOT EXISTS push_tokens (
    device BIGINT NOT NULL,        -- devices.num
    kind BIGINT NOT NULL,          -- types::TokenKind
    name TEXT NOT NULL,            -- empty: none
    service BIGINT NOT NULL,       -- types::PushService
    environment BIGINT NOT NULL,   -- types::PushEnvironment
    token TEXT NOT NULL,           -- as in devices.push_token, with the token's own topic if it has one
    registered_at BIGINT NOT NULL,
    suspect_at BIGINT,             -- a push service doubts it; NULL: none does
    suspect_reason TEXT,
    expires_at BIGINT,             -- NULL: never
    PRIMARY KEY (device, kind, name)
);
CREATE INDEX IF NOT EXISTS push_tokens_to_expire ON push_tokens (expires_at) WHERE expires_at IS NOT NULL;
CREATE OR REPLACE FUNCTION push_tokens_of_device() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM push_tokens WHERE device = OLD.num;
    RETURN NULL;
END $$;
COMMIT;

-- The token of each device that the push is for, as "kind" or "kind/name"; NULL: the main token.
BEGIN;
ALTER TABLE push_queue ADD COLUMN IF NOT EXISTS token TEXT;
COMMIT;
BEGIN;
ALTER TABLE push_walks ADD COLUMN IF NOT EXISTS token TEXT;
COMMIT;

-- NULL: the message kind of the service.
BEGIN;
ALTER TABLE push_invalidations ADD COLUMN IF NOT EXISTS kind BIGINT;
ALTER TABLE push_invalidations ADD COLUMN IF NOT EXISTS name TEXT;
COMMIT;

-- Older programs delete devices too.
BEGIN;
DROP TRIGGER IF EXISTS push_tokens_of_device ON devices;
CREATE TRIGGER push_tokens_of_device AFTER DELETE ON devices
    FOR EACH ROW EXECUTE FUNCTION push_tokens_of_device();

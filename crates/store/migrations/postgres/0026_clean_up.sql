-- When rows of deleted devices and unused topics may go. Each change of an existing table has a transaction of its own,
-- which waits for one lock and holds no other; all of them may run again. The indexes deleted_devices_by_age and
-- topics_unused are made by postgres::schema.

-- When the device was deleted, in milliseconds. Its row is needed until the last of its tokens has expired. 0: an older
-- program deleted it; the clean-up sets the time.
ALTER TABLE deleted_devices ADD COLUMN IF NOT EXISTS deleted_at BIGINT NOT NULL DEFAULT 0;
-- An older program that deletes such a device again keeps the time of the earlier deletion.
CREATE OR REPLACE FUNCTION deleted_devices_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.deleted_at := 0;
    RETURN NEW;
END $$;
DROP TRIGGER IF EXISTS deleted_devices_again ON deleted_devices;
CREATE TRIGGER deleted_devices_again BEFORE UPDATE OF token_version ON deleted_devices
    FOR EACH ROW WHEN (NEW.deleted_at = OLD.deleted_at) EXECUTE FUNCTION deleted_devices_again();
COMMIT;

-- Since when nothing needs the topic (engine/unused_topic.rs), in milliseconds. 0: something does, or the clean-up has
-- not looked yet.
BEGIN;
ALTER TABLE topics ADD COLUMN IF NOT EXISTS unused_since BIGINT NOT NULL DEFAULT 0;
COMMIT;

-- What the clean-up remembers: one row, which a start adds.
BEGIN;
CREATE TABLE IF NOT EXISTS clean_up (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    device_token_ttl BIGINT NOT NULL, -- the greatest that any start had, in milliseconds
    topic_cursor BIGINT NOT NULL,     -- topics.num: up to which this round has looked for unused topics; 0: no round
    topic_round_at BIGINT NOT NULL    -- when the last round ended, in milliseconds
) WITH (fillfactor = 10);

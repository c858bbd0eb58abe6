-- The last day, in UTC and since 1970, on which a device was seen. No row: never, since this table exists. Narrow rows in
-- the order of lists, because a filter by day reads them in place of devices. An update stays in its page.
CREATE TABLE IF NOT EXISTS device_seen (
    app BIGINT NOT NULL,
    device BIGINT NOT NULL,        -- devices.num
    day BIGINT NOT NULL,
    PRIMARY KEY (app, device)
) WITH (fillfactor = 50);

-- The trigger that calls it exists: another one would need a lock on devices.
CREATE OR REPLACE FUNCTION push_tokens_of_device() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM push_tokens WHERE device = OLD.num;
    DELETE FROM device_preferences WHERE device = OLD.num;
    DELETE FROM preference_counts WHERE device = OLD.num;
    DELETE FROM device_seen WHERE app = OLD.app AND device = OLD.num;
    RETURN NULL;
END $$;

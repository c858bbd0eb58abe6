-- What users and devices want to be notified of: JSON objects, as engine/preferences.rs writes them.
CREATE TABLE IF NOT EXISTS user_preferences (
    app BIGINT NOT NULL,
    "user" TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (app, "user")
);
CREATE TABLE IF NOT EXISTS device_preferences (
    device BIGINT PRIMARY KEY,     -- devices.num
    body TEXT NOT NULL
);

-- The notifications that interrupted a device, of categories that it caps, by the day of their acceptance.
CREATE TABLE IF NOT EXISTS preference_counts (
    device BIGINT NOT NULL,        -- devices.num
    category TEXT NOT NULL,
    day BIGINT NOT NULL,           -- of the device's calendar, since 1970
    ids BYTEA NOT NULL,            -- of notifications and campaigns, 16 bytes each
    PRIMARY KEY (device, category, day)
);
CREATE INDEX IF NOT EXISTS preference_counts_by_day ON preference_counts (day);

-- The trigger that calls it exists: another one would need a lock on devices.
CREATE OR REPLACE FUNCTION push_tokens_of_device() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM push_tokens WHERE device = OLD.num;
    DELETE FROM device_preferences WHERE device = OLD.num;
    DELETE FROM preference_counts WHERE device = OLD.num;
    RETURN NULL;
END $$;

-- Categories that no preference suppresses, one per line; NULL: none.
ALTER TABLE apps ADD COLUMN IF NOT EXISTS essential_categories TEXT;

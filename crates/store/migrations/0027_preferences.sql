-- What users and devices want to be notified of: JSON objects, as engine/preferences.rs writes them.
CREATE TABLE user_preferences (
    app INTEGER NOT NULL,
    user TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (app, user)
) STRICT, WITHOUT ROWID;
CREATE TABLE device_preferences (
    device INTEGER PRIMARY KEY,    -- devices.num
    body TEXT NOT NULL
) STRICT;

-- The notifications that interrupted a device, of categories that it caps, by the day of their acceptance.
CREATE TABLE preference_counts (
    device INTEGER NOT NULL,       -- devices.num
    category TEXT NOT NULL,
    day INTEGER NOT NULL,          -- of the device's calendar, since 1970
    ids BLOB NOT NULL,             -- of notifications and campaigns, 16 bytes each
    PRIMARY KEY (device, category, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX preference_counts_by_day ON preference_counts (day);
CREATE TRIGGER preferences_of_device AFTER DELETE ON devices BEGIN
    DELETE FROM device_preferences WHERE device = OLD.num;
    DELETE FROM preference_counts WHERE device = OLD.num;
END;

-- Categories that no preference suppresses, one per line; NULL: none.
ALTER TABLE apps ADD COLUMN essential_categories TEXT;

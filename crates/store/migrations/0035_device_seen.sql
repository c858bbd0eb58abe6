-- The last day, in UTC and since 1970, on which a device was seen. No row: never, since this table exists. Narrow rows in
-- the order of lists, because a filter by day reads them in place of devices.
CREATE TABLE device_seen (
    app INTEGER NOT NULL,
    device INTEGER NOT NULL,       -- devices.num
    day INTEGER NOT NULL,
    PRIMARY KEY (app, device)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER device_seen_of_device AFTER DELETE ON devices BEGIN
    DELETE FROM device_seen WHERE app = OLD.app AND device = OLD.num;
END;

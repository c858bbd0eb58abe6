-- Web Push endpoints that devices asked for: where others post messages to a device.
CREATE TABLE endpoints (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,     -- SHA-256 of what the URL holds: the URL itself is kept nowhere
    device INTEGER NOT NULL,
    base TEXT NOT NULL,            -- scheme and authority of the URL as it was given out
    vapid_key BLOB,                -- the only key that may sign for it (RFC 8292); NULL: anybody may post
    label TEXT,
    idle_urgency INTEGER NOT NULL, -- types::Urgency: below it messages wait while the device is idle
    created_at INTEGER NOT NULL,
    expires_at INTEGER             -- NULL: never
) STRICT;
CREATE INDEX endpoints_by_device ON endpoints (device);

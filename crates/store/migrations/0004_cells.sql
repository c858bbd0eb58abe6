-- A front over cells: who lives where, what cells have not taken yet, what they know of apps.

CREATE TABLE cells (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    weight INTEGER,                     -- NULL: as configured
    draining INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE cell_devices (
    app INTEGER NOT NULL,
    device TEXT NOT NULL,
    user TEXT,
    cell INTEGER NOT NULL,
    previous INTEGER,                   -- the cell it has not left entirely; NULL: there is none
    step INTEGER NOT NULL DEFAULT 0,    -- store::MoveStep
    moved_at INTEGER,
    PRIMARY KEY (app, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX cell_devices_by_id ON cell_devices (device);
CREATE INDEX cell_devices_by_user ON cell_devices (app, user) WHERE user IS NOT NULL;
CREATE INDEX cell_devices_by_cell ON cell_devices (cell);
CREATE INDEX cell_devices_moving ON cell_devices (previous, step, app, device) WHERE previous IS NOT NULL;

CREATE TABLE cell_users (
    app INTEGER NOT NULL,
    user TEXT NOT NULL,
    cell INTEGER NOT NULL,
    until INTEGER NOT NULL,             -- 0: the user's home; else asked until then
    PRIMARY KEY (app, user, cell)
) STRICT, WITHOUT ROWID;
CREATE INDEX cell_users_homes ON cell_users (cell) WHERE until = 0;
CREATE INDEX cell_users_ending ON cell_users (until) WHERE until > 0;

CREATE TABLE cell_messages (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    app INTEGER NOT NULL,
    target TEXT NOT NULL,               -- `to` where every cell gets the same
    body TEXT NOT NULL,                 -- the rest of the request; empty once nothing waits
    summary TEXT NOT NULL,
    targets INTEGER,
    unknown INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX cell_messages_by_age ON cell_messages (accepted_at);
CREATE INDEX cell_messages_by_app ON cell_messages (app);

CREATE TABLE cell_parts (
    num INTEGER NOT NULL,               -- cell_messages.num
    cell INTEGER NOT NULL,
    state INTEGER NOT NULL,             -- store::PartState
    target TEXT,                        -- NULL: the message's
    expires_at INTEGER NOT NULL,        -- the message's
    remote BLOB,                        -- the id that the cell gave it
    reason TEXT,
    PRIMARY KEY (num, cell)
) STRICT, WITHOUT ROWID;
CREATE INDEX cell_parts_waiting ON cell_parts (cell, num) WHERE state = 0;
CREATE INDEX cell_parts_expiring ON cell_parts (expires_at) WHERE state = 0;
CREATE INDEX cell_parts_cancelling ON cell_parts (cell, num) WHERE state = 5;
CREATE INDEX cell_parts_by_remote ON cell_parts (cell, remote) WHERE remote IS NOT NULL;

CREATE TABLE cell_keys (                -- idempotency keys
    app INTEGER NOT NULL,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    num INTEGER NOT NULL,               -- cell_messages.num
    at INTEGER NOT NULL,
    PRIMARY KEY (app, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX cell_keys_by_age ON cell_keys (at);

CREATE TABLE cell_apps (                -- what cells were told of
    cell INTEGER NOT NULL,
    app TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (cell, app)
) STRICT, WITHOUT ROWID;

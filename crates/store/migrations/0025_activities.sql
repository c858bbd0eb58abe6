-- Live Activities: the newest state of each, and the devices that take part, in slices that are updated together.
CREATE TABLE activities (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,     -- of the state; 1 at first
    spec TEXT NOT NULL,           -- what never changes
    target TEXT NOT NULL,
    state TEXT NOT NULL,
    of_users INTEGER NOT NULL,    -- 1: a device that changes its user afterwards takes no part
    joinable INTEGER NOT NULL,    -- 1: any device of the app may join
    devices INTEGER NOT NULL,     -- rows in activity_devices
    cursor INTEGER,               -- of the target's devices; NULL: all are collected
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER,
    forget_at INTEGER,            -- set at the end
    key TEXT,                     -- the idempotency key
    body_hash BLOB
) STRICT;
CREATE UNIQUE INDEX activities_by_id ON activities (app, id);
CREATE INDEX activities_by_app ON activities (app, num);
CREATE UNIQUE INDEX activities_by_key ON activities (app, key) WHERE key IS NOT NULL;
CREATE INDEX activities_to_collect ON activities (num) WHERE cursor IS NOT NULL;
CREATE INDEX activities_to_expire ON activities (expires_at) WHERE ended_at IS NULL;
CREATE INDEX activities_to_forget ON activities (forget_at) WHERE forget_at IS NOT NULL;

-- How many activities an app has.
CREATE TABLE activity_apps (
    app INTEGER PRIMARY KEY,
    activities INTEGER NOT NULL
) STRICT;

CREATE TABLE activity_slices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    activity INTEGER NOT NULL,
    app INTEGER NOT NULL,
    members INTEGER NOT NULL,
    version INTEGER NOT NULL,      -- the newest that was sent; 0: none
    sent_at INTEGER,
    due_at INTEGER,                -- NULL: nothing to send
    attempt INTEGER NOT NULL,
    leased_until INTEGER NOT NULL, -- 0: free
    holder INTEGER NOT NULL,       -- the process that has the lease
    takes INTEGER NOT NULL,        -- since the last one that was finished
    take INTEGER NOT NULL          -- the number of the last take
) STRICT;
CREATE INDEX activity_slices_by_activity ON activity_slices (activity, id);
CREATE INDEX activity_slices_to_take ON activity_slices (due_at) WHERE leased_until = 0 AND due_at IS NOT NULL;
CREATE INDEX activity_slices_leased ON activity_slices (leased_until) WHERE leased_until > 0;

CREATE TABLE activity_devices (
    activity INTEGER NOT NULL,
    device INTEGER NOT NULL,   -- devices.num
    slice INTEGER NOT NULL,
    started INTEGER NOT NULL,  -- the version with which a push started the activity on the device; 0: none did
    behind INTEGER NOT NULL,   -- the device lacks the slice's version since this take; 0: it does not
    outcome INTEGER,           -- types::Outcome of the start or of the last failure
    reason TEXT,
    at INTEGER,
    PRIMARY KEY (activity, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX activity_devices_by_slice ON activity_devices (slice, device);
CREATE INDEX activity_devices_behind ON activity_devices (slice, behind) WHERE behind > 0;

CREATE TABLE activity_counts (
    activity INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    reason TEXT NOT NULL, -- empty: none
    count INTEGER NOT NULL,
    PRIMARY KEY (activity, outcome, reason)
) STRICT, WITHOUT ROWID;

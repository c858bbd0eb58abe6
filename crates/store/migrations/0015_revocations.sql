-- When the app JWTs of a device (kind 0) or of a user (kind 1) were revoked last: those issued until then are
-- refused. Kept until the app is deleted, also for devices that are gone.
CREATE TABLE revocations (
    app INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    id TEXT NOT NULL,
    revoked_at INTEGER NOT NULL,               -- ms
    PRIMARY KEY (app, kind, id)
) STRICT, WITHOUT ROWID;

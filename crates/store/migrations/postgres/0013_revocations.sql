-- When the app JWTs of a device (kind 0) or of a user (kind 1) were revoked last: those issued until then are
-- refused. Kept until the app is deleted, also for devices that are gone.
CREATE TABLE revocations (
    app BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    revoked_at BIGINT NOT NULL,               -- ms
    PRIMARY KEY (app, kind, id)
);

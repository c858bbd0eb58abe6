-- The first schema. Numbers are the store's own short names: a notification's number holds the
-- time and the counter of its UUIDv7, so rows sort by the order of acceptance.

-- Values that the store itself or all nodes share.
CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE apps (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    jwt_secret BLOB,
    jwks_url TEXT,
    jwks TEXT
) STRICT;

CREATE TABLE keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    name TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    scopes INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE devices (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    id TEXT NOT NULL,
    user TEXT,
    platform TEXT,
    locale TEXT,
    timezone TEXT,
    app_version TEXT,
    tags TEXT, -- a JSON object of texts, NULL when empty
    push_token TEXT,
    token_version INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX devices_by_id ON devices (app, id);
CREATE INDEX devices_by_app ON devices (app);
CREATE INDEX devices_by_user ON devices (app, user) WHERE user IS NOT NULL;

-- Where a device made again under the id of a deleted one takes up the token version, so that the
-- old tokens stay revoked.
CREATE TABLE deleted_devices (
    app INTEGER NOT NULL,
    id TEXT NOT NULL,
    token_version INTEGER NOT NULL,
    PRIMARY KEY (app, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE topics (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,           -- the last offset given out
    stored INTEGER NOT NULL DEFAULT 0,         -- the last offset that got a row in the log
    log_rows INTEGER NOT NULL DEFAULT 0,
    trimmed_offset INTEGER NOT NULL DEFAULT 0, -- the greatest offset whose row left the log unwanted
    trimmed_num INTEGER NOT NULL DEFAULT 0,    -- its notification
    retained INTEGER,
    retained_expires_at INTEGER
) STRICT;
CREATE UNIQUE INDEX topics_by_name ON topics (app, name);
CREATE INDEX topics_by_retained ON topics (retained_expires_at) WHERE retained IS NOT NULL;

CREATE TABLE subscriptions (
    device INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    position INTEGER NOT NULL, -- the greatest offset that is behind the device
    named INTEGER NOT NULL,    -- 0 for $everyone, which no index has to list
    PRIMARY KEY (device, topic)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscriptions_by_topic ON subscriptions (topic, named) WHERE named = 1; -- covers its uses

CREATE TABLE notifications (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    keep_until INTEGER NOT NULL,
    delivery INTEGER NOT NULL, -- types::When
    urgency INTEGER NOT NULL,
    target INTEGER NOT NULL,
    target_text TEXT,
    targets INTEGER,
    topic INTEGER,
    topic_offset INTEGER,
    collapse_key TEXT,
    retain INTEGER NOT NULL,
    notification TEXT,
    data TEXT,
    push TEXT,
    standing INTEGER NOT NULL
) STRICT;
CREATE INDEX notifications_to_forget ON notifications (keep_until);
CREATE INDEX notifications_to_expire ON notifications (expires_at) WHERE standing = 1;

CREATE TABLE inbox (
    device INTEGER NOT NULL,
    num INTEGER NOT NULL,
    collapse_key TEXT,
    PRIMARY KEY (device, num)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_by_collapse_key ON inbox (device, collapse_key) WHERE collapse_key IS NOT NULL;

CREATE TABLE topic_log (
    topic INTEGER NOT NULL,
    topic_offset INTEGER NOT NULL,
    num INTEGER NOT NULL,
    collapse_key TEXT,
    PRIMARY KEY (topic, topic_offset)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX topic_log_by_num ON topic_log (topic, num);
CREATE INDEX topic_log_by_collapse_key ON topic_log (topic, collapse_key) WHERE collapse_key IS NOT NULL;

CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY,
    num INTEGER NOT NULL,
    outcome INTEGER NOT NULL, -- types::Outcome
    at INTEGER NOT NULL,
    count INTEGER NOT NULL,
    devices BLOB NOT NULL     -- sorted device numbers: LEB128 of each difference
) STRICT;
CREATE INDEX outcomes_by_notification ON outcomes (num);

CREATE TABLE idempotency (
    app INTEGER NOT NULL,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    num INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (app, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_to_forget ON idempotency (expires_at);

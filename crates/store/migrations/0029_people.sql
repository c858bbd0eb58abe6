-- People who use the console. Hashes are SHA-256.
CREATE TABLE people (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    email TEXT NOT NULL UNIQUE,    -- in lower case
    name TEXT NOT NULL,
    password TEXT,                 -- Argon2id, PHC format
    totp BLOB,                     -- the sealed secret
    totp_on INTEGER NOT NULL DEFAULT 0,
    totp_step INTEGER NOT NULL DEFAULT 0, -- the time step of the last code
    recovery BLOB NOT NULL,        -- hashes of recovery codes, 32 bytes each
    openid_issuer TEXT,
    openid_subject TEXT,
    created_at INTEGER NOT NULL,
    disabled_at INTEGER,
    UNIQUE (openid_issuer, openid_subject)
) STRICT;
CREATE TABLE person_roles (
    person INTEGER NOT NULL,       -- people.id
    app INTEGER NOT NULL,          -- 0: all apps
    role INTEGER NOT NULL,         -- Role
    PRIMARY KEY (person, app)
) STRICT, WITHOUT ROWID;
CREATE INDEX person_roles_by_app ON person_roles (app, person);
CREATE TABLE person_sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,
    person INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    confirmed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    address TEXT NOT NULL,
    agent TEXT NOT NULL
) STRICT;
CREATE INDEX person_sessions_by_person ON person_sessions (person);
CREATE INDEX person_sessions_by_end ON person_sessions (expires_at);
CREATE INDEX person_sessions_by_use ON person_sessions (seen_at);
CREATE TABLE tickets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,
    person INTEGER,                -- whom it logs in; NULL: an invitation
    email TEXT,
    roles TEXT,                    -- JSON: [[app, role], …]
    created_by INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX tickets_by_person ON tickets (person);
CREATE INDEX tickets_by_end ON tickets (expires_at);

-- What was changed, by whom.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    by_kind INTEGER NOT NULL,      -- 1 person, 2 API key, 3 operator token, 4 node
    person INTEGER,
    by_name TEXT,                  -- e-mail address, or name of the key
    app INTEGER,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    old_value TEXT,                   -- JSON
    new_value TEXT,
    address TEXT NOT NULL,
    request TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_app ON audit (app, id);
CREATE INDEX audit_by_person ON audit (person, id);
CREATE INDEX audit_by_time ON audit (at, id);

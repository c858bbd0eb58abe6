-- Broadcast channels of APNs, and what is sent to them. A queue of its own: older programs send none of it.
CREATE TABLE push_channels (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    name TEXT NOT NULL,
    environment INTEGER NOT NULL, -- types::PushEnvironment
    bundle TEXT NOT NULL,         -- the bundle id of the app at Apple
    policy INTEGER NOT NULL,      -- types::StoragePolicy
    apple TEXT,                   -- Apple's id; NULL: not created there yet, as far as is known
    claim INTEGER NOT NULL,       -- who creates it at Apple; 0: nobody
    claimed_until INTEGER NOT NULL,
    topic TEXT,                   -- whose notifications may be broadcast to it; NULL: none
    created_at INTEGER NOT NULL,
    due_at INTEGER,               -- when its next broadcast is due, or when the lease ends; NULL: none waits
    lease INTEGER NOT NULL        -- the end of the lease under which a broadcast is sent; 0: none
) STRICT;
CREATE UNIQUE INDEX push_channels_by_name ON push_channels (app, name);
CREATE UNIQUE INDEX push_channels_by_topic ON push_channels (app, topic, environment) WHERE topic IS NOT NULL;
CREATE INDEX push_channels_due ON push_channels (due_at) WHERE due_at IS NOT NULL;
-- Leases end when the store is opened.
CREATE INDEX push_channels_leased ON push_channels (lease) WHERE lease > 0;

CREATE TABLE broadcasts (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL,             -- a UUID
    app INTEGER NOT NULL,
    channel INTEGER NOT NULL,     -- push_channels.num
    name TEXT NOT NULL,           -- of the channel, which may be deleted
    notification BLOB,         -- its id; NULL: sent to the channel alone
    payload TEXT NOT NULL,        -- empty once it is over
    priority INTEGER NOT NULL,
    replaceable INTEGER NOT NULL, -- 1: a newer one replaces it while it waits
    accepted_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    state INTEGER NOT NULL,       -- types::BroadcastState
    reason TEXT,                  -- of Apple or Noroshi, for the last attempt
    attempt INTEGER NOT NULL,     -- attempts that ended
    takes INTEGER NOT NULL,       -- by senders that have not reported since
    ended_at INTEGER,             -- NULL while it waits
    key TEXT,                     -- the idempotency key; NULL: none
    body_hash BLOB
) STRICT;
CREATE UNIQUE INDEX broadcasts_by_id ON broadcasts (id);
CREATE INDEX broadcasts_by_channel ON broadcasts (channel, num);
CREATE INDEX broadcasts_waiting ON broadcasts (channel, num) WHERE state = 1;
CREATE INDEX broadcasts_by_notification ON broadcasts (notification) WHERE notification IS NOT NULL;
CREATE UNIQUE INDEX broadcasts_by_key ON broadcasts (channel, key) WHERE key IS NOT NULL;
CREATE INDEX broadcasts_by_app ON broadcasts (app);
CREATE INDEX broadcasts_to_forget ON broadcasts (ended_at) WHERE ended_at IS NOT NULL;

-- Push services and campaigns: tokens that are understood, credentials, push work, and campaigns.

-- 0 in push_queue.service, .num and .campaign says none: equality and order work on it as on any number.

ALTER TABLE devices ADD COLUMN push_service INTEGER;     -- types::PushService, NULL without a token
ALTER TABLE devices ADD COLUMN push_environment INTEGER; -- types::PushEnvironment
ALTER TABLE devices ADD COLUMN push_token_at INTEGER;    -- when its device last registered it
ALTER TABLE devices ADD COLUMN push_suspect_at INTEGER;  -- a push service doubts it; NULL: none does
ALTER TABLE devices ADD COLUMN push_suspect_reason TEXT;
ALTER TABLE devices ADD COLUMN user_at INTEGER;          -- when the user last changed, NULL: never

-- A token has been on its device at least as long as the device exists; what no push service is named
-- in reaches nobody.
UPDATE devices SET
    push_service = CASE WHEN json_valid(push_token) THEN
        CASE json_extract(push_token, '$.service') WHEN 'apns' THEN 1 WHEN 'fcm' THEN 2 WHEN 'webpush' THEN 3 END END,
    push_token_at = created_at
WHERE push_token IS NOT NULL;
UPDATE devices SET push_token = NULL, push_token_at = NULL WHERE push_token IS NOT NULL AND push_service IS NULL;
UPDATE devices SET
    push_environment = CASE WHEN push_service = 1 AND json_extract(push_token, '$.environment') = 'sandbox' THEN 2 ELSE 1 END
WHERE push_token IS NOT NULL;

ALTER TABLE outcomes ADD COLUMN reason TEXT; -- in a push service's word
ALTER TABLE notifications ADD COLUMN campaign INTEGER; -- campaigns.num: one of its batches, published; NULL: of none

CREATE TABLE push_credentials (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    service INTEGER NOT NULL,
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    sealed BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX push_credentials_by_use ON push_credentials (app, service, environment);

CREATE TABLE push_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    lane INTEGER NOT NULL,         -- types::Lane
    service INTEGER NOT NULL,      -- types::PushService; 0: a campaign's batch that is to be published
    campaign INTEGER NOT NULL,     -- campaigns.num; 0: of none
    num INTEGER NOT NULL,          -- the notification to render; 0: the campaign's message
    due_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    fallback INTEGER NOT NULL,     -- what decides whether a push is still needed; 0: nothing, or it is claimed
    leased_until INTEGER NOT NULL, -- 0: free
    recipients BLOB NOT NULL       -- sorted device numbers: LEB128 of each difference
) STRICT;
CREATE INDEX push_queue_to_take ON push_queue (lane, app, service, campaign, due_at) WHERE leased_until = 0;
CREATE INDEX push_queue_leased ON push_queue (leased_until) WHERE leased_until > 0;
CREATE INDEX push_queue_by_notification ON push_queue (num, fallback) WHERE num > 0;
CREATE INDEX push_queue_by_campaign ON push_queue (campaign, due_at) WHERE campaign > 0;

CREATE TABLE push_walks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    num INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    fallback INTEGER NOT NULL, -- as in push_queue
    due_at INTEGER NOT NULL,
    cursor INTEGER NOT NULL
) STRICT;
CREATE INDEX push_walks_by_due ON push_walks (due_at);
CREATE INDEX push_walks_by_notification ON push_walks (num);

-- Confirmations of what is in no inbox and no log while a push waits for them.
CREATE TABLE push_confirmed (
    num INTEGER NOT NULL,
    device INTEGER NOT NULL,
    PRIMARY KEY (num, device)
) STRICT, WITHOUT ROWID;

CREATE TABLE push_invalidations (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    at INTEGER NOT NULL,
    device TEXT NOT NULL,
    service INTEGER NOT NULL,
    environment INTEGER NOT NULL,
    reason TEXT NOT NULL,
    removed INTEGER NOT NULL
) STRICT;
CREATE INDEX push_invalidations_by_app ON push_invalidations (app);
CREATE INDEX push_invalidations_to_forget ON push_invalidations (at);

CREATE TABLE campaigns (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,       -- UUIDv7
    app INTEGER NOT NULL,
    state INTEGER NOT NULL,        -- CampaignState
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    notification INTEGER NOT NULL, -- notifications.num
    cursor INTEGER NOT NULL,
    walked INTEGER NOT NULL,
    recipients INTEGER NOT NULL,
    uploaded INTEGER NOT NULL,
    lines INTEGER NOT NULL,        -- 1 while there may be rows in campaign_lines
    spec TEXT NOT NULL
) STRICT;
CREATE INDEX campaigns_by_app ON campaigns (app, id);
CREATE INDEX campaigns_active ON campaigns (num) WHERE state < 5;
CREATE INDEX campaigns_to_prune ON campaigns (finished_at) WHERE lines = 1;

CREATE TABLE campaign_counts (
    campaign INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    reason TEXT NOT NULL, -- empty: none
    count INTEGER NOT NULL,
    PRIMARY KEY (campaign, outcome, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE campaign_latency (
    campaign INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (campaign, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE campaign_lines (
    campaign INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    user TEXT NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (campaign, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX campaign_lines_by_user ON campaign_lines (campaign, user);

-- The push tokens of a device except its main token, which is in columns of devices.
CREATE TABLE push_tokens (
    device INTEGER NOT NULL,        -- devices.num
    kind INTEGER NOT NULL,          -- types::TokenKind
    name TEXT NOT NULL,             -- empty: none
    service INTEGER NOT NULL,       -- types::PushService
    environment INTEGER NOT NULL,   -- types::PushEnvironment
    token TEXT NOT NULL,            -- as in devices.push_token, with the token's own topic if it has one
    registered_at INTEGER NOT NULL,
    suspect_at INTEGER,             -- a push service doubts it; NULL: none does
    suspect_reason TEXT,
    expires_at INTEGER,             -- NULL: never
    PRIMARY KEY (device, kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX push_tokens_to_expire ON push_tokens (expires_at) WHERE expires_at IS NOT NULL;
-- Older programs delete devices too.
CREATE TRIGGER push_tokens_of_device AFTER DELETE ON devices BEGIN
    DELETE FROM push_tokens WHERE device = OLD.num;
END;

-- The token of each device that the push is for, as "kind" or "kind/name"; NULL: the main token.
ALTER TABLE push_queue ADD COLUMN token TEXT;
ALTER TABLE push_walks ADD COLUMN token TEXT;
-- NULL: the message kind of the service.
ALTER TABLE push_invalidations ADD COLUMN kind INTEGER;
ALTER TABLE push_invalidations ADD COLUMN name TEXT;

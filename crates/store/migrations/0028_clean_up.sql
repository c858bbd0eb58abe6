-- When the device was deleted, in milliseconds. Its row is needed until the last of its tokens has expired. 0: an older
-- program deleted it; the clean-up sets the time.
ALTER TABLE deleted_devices ADD COLUMN deleted_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX deleted_devices_by_age ON deleted_devices (deleted_at);

-- Since when nothing needs the topic (engine/unused_topic.rs), in milliseconds. 0: something does, or the clean-up has
-- not looked yet.
ALTER TABLE topics ADD COLUMN unused_since INTEGER NOT NULL DEFAULT 0;
CREATE INDEX topics_unused ON topics (unused_since) WHERE unused_since > 0;

-- What the clean-up remembers: one row, which a start adds.
CREATE TABLE clean_up (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    device_token_ttl INTEGER NOT NULL, -- the greatest that any start had, in milliseconds
    topic_cursor INTEGER NOT NULL,     -- topics.num: up to which this round has looked for unused topics; 0: no round
    topic_round_at INTEGER NOT NULL    -- when the last round ended, in milliseconds
) STRICT;

-- What was sent to push services, and what they answered. A row has attempts of one batch.
CREATE TABLE push_records (
    id INTEGER PRIMARY KEY,
    app INTEGER NOT NULL,
    work BLOB NOT NULL,            -- 16 bytes: the id of the notification or the campaign
    keep_until INTEGER NOT NULL,   -- milliseconds
    devices BLOB NOT NULL,         -- sorted device numbers: LEB128 of each difference
    attempts BLOB NOT NULL         -- delivery::push::record
) STRICT;
CREATE INDEX push_records_by_work ON push_records (app, work, id);
CREATE INDEX push_records_to_prune ON push_records (keep_until);

-- Suspended tokens, which an operator may restore.
CREATE INDEX devices_suspended ON devices (app, push_suspect_at) WHERE push_suspect_at IS NOT NULL;
CREATE INDEX push_tokens_suspended ON push_tokens (suspect_at) WHERE suspect_at IS NOT NULL;

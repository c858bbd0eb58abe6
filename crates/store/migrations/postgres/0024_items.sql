-- The notification centre of each user: one item for a user and a notification.
CREATE TABLE IF NOT EXISTS items (
    app BIGINT NOT NULL,
    "user" TEXT NOT NULL,
    num BIGINT NOT NULL,          -- item_contents.num
    rank BIGINT NOT NULL,         -- its number among the items that the user ever got
    state BIGINT NOT NULL,        -- types::ItemState
    changed_at BIGINT NOT NULL,   -- of the state
    PRIMARY KEY (app, "user", num)
);
CREATE INDEX IF NOT EXISTS items_unread ON items (app, "user", num) WHERE state = 1;
CREATE INDEX IF NOT EXISTS items_by_notification ON items (num);

-- The content of items, which outlives the notification: one row for any number of users.
CREATE TABLE IF NOT EXISTS item_contents (
    num BIGINT PRIMARY KEY,       -- notifications.num
    app BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,   -- the end of its retention, or when it was cancelled
    category TEXT,                -- NULL: none
    notification TEXT,
    data TEXT
);
CREATE INDEX IF NOT EXISTS item_contents_by_app ON item_contents (app);
CREATE INDEX IF NOT EXISTS item_contents_to_expire ON item_contents (expires_at);

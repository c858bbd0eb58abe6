-- The notification centre of each user: one item for a user and a notification.
CREATE TABLE items (
    app INTEGER NOT NULL,
    user TEXT NOT NULL,
    num INTEGER NOT NULL,          -- item_contents.num
    rank INTEGER NOT NULL,         -- its number among the items that the user ever got
    state INTEGER NOT NULL,        -- types::ItemState
    changed_at INTEGER NOT NULL,   -- of the state
    PRIMARY KEY (app, user, num)
) STRICT, WITHOUT ROWID;
CREATE INDEX items_unread ON items (app, user, num) WHERE state = 1;
CREATE INDEX items_by_notification ON items (num);

-- The content of items, which outlives the notification: one row for any number of users.
CREATE TABLE item_contents (
    num INTEGER PRIMARY KEY,       -- notifications.num
    app INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,   -- the end of its retention, or when it was cancelled
    category TEXT,                 -- NULL: none
    notification TEXT,
    data TEXT
) STRICT;
CREATE INDEX item_contents_by_app ON item_contents (app);
CREATE INDEX item_contents_to_expire ON item_contents (expires_at);

-- Shared subscriptions (MQTT 5 §4.8.2): devices of one group get each message of a filter once, together.
CREATE TABLE share_groups (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    name TEXT NOT NULL,
    filter TEXT NOT NULL,
    since INTEGER NOT NULL -- messages up to this number were assigned to a member, or precede the group
) STRICT;
CREATE UNIQUE INDEX share_groups_by_name ON share_groups (app, name, filter);

CREATE TABLE share_members (
    share INTEGER NOT NULL,
    device INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    generation INTEGER NOT NULL, -- of the connection that subscribed last
    lasts INTEGER NOT NULL,      -- the session outlives its connection
    state INTEGER NOT NULL,      -- share::MemberState
    held BLOB,                   -- 16 bytes for each message that the device may already have
    PRIMARY KEY (share, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX share_members_by_device ON share_members (device);

-- Notifications to large conditions. Their inbox rows are written in several commits, before the notification itself,
-- so that no device sees one before all rows are written.
CREATE TABLE expansions (
    num INTEGER PRIMARY KEY,  -- the notification
    app INTEGER NOT NULL,
    state INTEGER NOT NULL,   -- engine::expansion::State
    place INTEGER NOT NULL,   -- the part of its outcomes up to which older rows with its collapse key were removed
    until INTEGER NOT NULL    -- with several nodes: when the writer's lease ends; 0: abandoned
) STRICT;

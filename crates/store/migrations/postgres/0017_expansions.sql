-- Notifications to large conditions. Their inbox rows are written in several commits, before the notification itself,
-- so that no device sees one before all rows are written.
CREATE TABLE expansions (
    num BIGINT PRIMARY KEY,  -- the notification
    app BIGINT NOT NULL,
    state BIGINT NOT NULL,   -- engine::expansion::State
    place BIGINT NOT NULL,   -- the part of its outcomes up to which older rows with its collapse key were removed
    until BIGINT NOT NULL    -- when the writer's lease ends, by this server's clock in milliseconds; 0: abandoned
);

-- When a member's session ends, so that a leader can end what nobody told of. `lasts` keeps its name and holds the
-- seconds that the session outlives its connection. What was kept before is not known: an hour.
UPDATE share_members SET lasts = 3600 WHERE lasts <> 0;
ALTER TABLE share_members ADD COLUMN ends_at INTEGER; -- milliseconds; of a member that is away

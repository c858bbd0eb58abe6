-- What explains why a device received a notification or not.
--
-- Running nodes lock these tables in various orders. So the change of each has a transaction of its own, which waits for
-- one lock and holds no other; all of them may run again. The index notifications_by_campaign is made by postgres::schema.

-- Fingerprints of the users or devices that the request names (engine::named). NULL: it names none, or an older program
-- accepted it.
ALTER TABLE notifications ADD COLUMN IF NOT EXISTS named BYTEA;
COMMIT;
-- When the device subscribed. NULL: to $everyone, or through an older program.
BEGIN;
ALTER TABLE subscriptions ADD COLUMN IF NOT EXISTS since BIGINT;
COMMIT;
-- When a sender took the batch; of meaning while it is leased. NULL: never, or through an older program.
BEGIN;
ALTER TABLE push_queue ADD COLUMN IF NOT EXISTS taken_at BIGINT;

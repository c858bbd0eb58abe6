-- What explains why a device received a notification or not.

-- Fingerprints of the users or devices that the request names (engine::named). NULL: it names none, or an older program
-- accepted it.
ALTER TABLE notifications ADD COLUMN named BLOB;
-- When the device subscribed. NULL: to $everyone, or through an older program.
ALTER TABLE subscriptions ADD COLUMN since INTEGER;
-- When a sender took the batch; of meaning while it is leased. NULL: never, or through an older program.
ALTER TABLE push_queue ADD COLUMN taken_at INTEGER;

-- The notifications as which a campaign's batches were published, and those of its variants.
CREATE INDEX notifications_by_campaign ON notifications (campaign) WHERE campaign IS NOT NULL;

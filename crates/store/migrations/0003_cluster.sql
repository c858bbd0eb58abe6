-- Several nodes: what a node that read a device a moment ago has to look at again, and what came since.

-- Grows with every change of user, token version or durable subscriptions.
ALTER TABLE devices ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

-- Topics by what they got last.
CREATE INDEX topic_log_by_age ON topic_log (num);

-- Who changed a campaign, of all its revisions: a JSON array of addresses and key:NAME. Its creator and who changed it last
-- have columns of their own.
ALTER TABLE campaigns ADD COLUMN IF NOT EXISTS authors TEXT NOT NULL DEFAULT '[]';

-- When an API key expires; null: never. The row stays afterwards.
ALTER TABLE keys ADD COLUMN expires_at INTEGER;

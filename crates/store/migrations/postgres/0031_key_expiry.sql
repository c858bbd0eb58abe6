-- When an API key expires; null: never. The row stays afterwards.
ALTER TABLE keys ADD COLUMN IF NOT EXISTS expires_at BIGINT;

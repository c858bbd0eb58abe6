-- The provider behind a webhook: an app has a credential for each. Empty for other push services.
ALTER TABLE push_credentials ADD COLUMN IF NOT EXISTS provider TEXT COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX IF EXISTS push_credentials_by_use;
CREATE UNIQUE INDEX push_credentials_by_use ON push_credentials (app, service, environment, provider);

-- What an app demands of its JWTs, and what it permits its devices: topic rules and quotas as JSON.
ALTER TABLE apps ADD COLUMN issuer TEXT COLLATE "C";
ALTER TABLE apps ADD COLUMN audience TEXT COLLATE "C";
ALTER TABLE apps ADD COLUMN topic_rules TEXT COLLATE "C";
ALTER TABLE apps ADD COLUMN quotas TEXT COLLATE "C";

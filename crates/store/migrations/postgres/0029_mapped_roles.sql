-- Where a role comes from: 0 a person gave it, 1 the mapping of an OpenID provider.
ALTER TABLE person_roles ADD COLUMN IF NOT EXISTS source BIGINT NOT NULL DEFAULT 0;

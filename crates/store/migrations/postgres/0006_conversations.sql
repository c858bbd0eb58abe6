-- What clients of an app may publish to: topic filters, one a line.
ALTER TABLE apps ADD COLUMN client_publish TEXT;
-- What a protocol keeps of a device's session, in its own words.
ALTER TABLE devices ADD COLUMN kept BYTEA;

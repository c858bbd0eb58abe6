-- How often a batch was taken to be sent without coming to an end: one that ends whoever sends it is set aside.
ALTER TABLE push_queue ADD COLUMN takes BIGINT NOT NULL DEFAULT 0;

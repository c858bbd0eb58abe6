-- The variant of the campaign (campaign_variants.variant) that was drawn for all of a batch when it was tried before;
-- 255: of none. 0: nobody was drawn for yet.
ALTER TABLE push_queue ADD COLUMN variant BIGINT NOT NULL DEFAULT 0;

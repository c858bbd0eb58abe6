-- What users opened, and campaigns that send the variants of an experiment. As in SQLite.

-- Once a notification and device; they go with the notification.
CREATE TABLE openings (
    num BIGINT NOT NULL,          -- notifications.num
    device BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (num, device)
);

-- An opening of a campaign's push names the notification alone.
CREATE INDEX campaigns_by_notification ON campaigns (notification);

-- Of each variant, the notification under which what push services made of it is recorded.
CREATE TABLE campaign_variants (
    campaign BIGINT NOT NULL,
    variant BIGINT NOT NULL,      -- from 1
    notification BIGINT NOT NULL, -- notifications.num
    PRIMARY KEY (campaign, variant)
);

-- All notifications that are of a variant: those, and its batches that were published. They go with the notification.
CREATE TABLE variant_notifications (
    num BIGINT PRIMARY KEY,       -- notifications.num
    campaign BIGINT NOT NULL,
    variant BIGINT NOT NULL
);

-- Of those in campaign_counts, what is of a variant. Spread over shards likewise.
CREATE TABLE campaign_variant_counts (
    campaign BIGINT NOT NULL,
    variant BIGINT NOT NULL,
    outcome BIGINT NOT NULL,
    reason TEXT COLLATE "C" NOT NULL, -- empty: none
    count BIGINT NOT NULL,
    shard BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign, variant, outcome, reason, shard)
) WITH (fillfactor = 50);

-- What users opened, and campaigns that send the variants of an experiment.

-- Once a notification and device; they go with the notification.
CREATE TABLE openings (
    num INTEGER NOT NULL,          -- notifications.num
    device INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (num, device)
) STRICT, WITHOUT ROWID;

-- An opening of a campaign's push names the notification alone.
CREATE INDEX campaigns_by_notification ON campaigns (notification);

-- Of each variant, the notification under which what push services made of it is recorded.
CREATE TABLE campaign_variants (
    campaign INTEGER NOT NULL,
    variant INTEGER NOT NULL,      -- from 1
    notification INTEGER NOT NULL, -- notifications.num
    PRIMARY KEY (campaign, variant)
) STRICT, WITHOUT ROWID;

-- All notifications that are of a variant: those, and its batches that were published. They go with the notification.
CREATE TABLE variant_notifications (
    num INTEGER PRIMARY KEY,       -- notifications.num
    campaign INTEGER NOT NULL,
    variant INTEGER NOT NULL
) STRICT;

-- Of those in campaign_counts, what is of a variant.
CREATE TABLE campaign_variant_counts (
    campaign INTEGER NOT NULL,
    variant INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    reason TEXT NOT NULL,          -- empty: none
    count INTEGER NOT NULL,
    PRIMARY KEY (campaign, variant, outcome, reason)
) STRICT, WITHOUT ROWID;

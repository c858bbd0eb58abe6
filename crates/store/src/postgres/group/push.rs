//! Push work of a group, written in the commit that accepts it.

use std::collections::BTreeMap;

use noroshi_types::{DeviceNum, Outcome, Target};

use super::reading::Found;
use crate::engine::accept::{PushPlan, by_service};
use crate::engine::device_list;
use crate::engine::outcome::Part;
use crate::ids::Num;
use crate::{Accept, BATCH_RECIPIENTS_MAX, VariantNum};

pub(super) const INSERT: &str = "INSERT INTO push_queue (app, lane, service, campaign, num, due_at, attempt, fallback,
                                                         leased_until, recipients)
     SELECT u.app, u.lane, u.service, u.campaign, u.num, u.due_at, 0, u.fallback, 0, u.recipients
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                 $8::bytea[]) u (app, lane, service, campaign, num, due_at, fallback, recipients)";

pub(super) const WALKS: &str = "INSERT INTO push_walks (app, num, lane, fallback, due_at, cursor)
     SELECT u.app, u.num, u.lane, u.fallback, u.due_at, 0
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
          u (app, num, lane, fallback, due_at)";

/// Adds to campaigns' sums. Groups use the first of the rows that a sum is spread over.
pub(super) const COUNT: &str = "INSERT INTO campaign_counts AS c (campaign, outcome, reason, count, shard)
     SELECT u.campaign, u.outcome, '', u.count, 0
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (campaign, outcome, count)
     ON CONFLICT (campaign, outcome, reason, shard) DO UPDATE SET count = c.count + excluded.count";

/// Columns of [`INSERT`].
#[derive(Default)]
pub(super) struct BatchColumns {
    pub apps: Vec<i64>,
    pub lanes: Vec<i64>,
    pub services: Vec<i64>,
    pub campaigns: Vec<i64>,
    pub nums: Vec<Num>,
    pub dues: Vec<i64>,
    pub fallbacks: Vec<i64>,
    pub recipients: Vec<Vec<u8>>,
}

/// Columns of [`WALKS`].
#[derive(Default)]
pub(super) struct WalkColumns {
    pub apps: Vec<i64>,
    pub nums: Vec<Num>,
    pub lanes: Vec<i64>,
    pub fallbacks: Vec<i64>,
    pub dues: Vec<i64>,
}

impl BatchColumns {
    pub(super) fn values(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 8] {
        [
            &self.apps,
            &self.lanes,
            &self.services,
            &self.campaigns,
            &self.nums,
            &self.dues,
            &self.fallbacks,
            &self.recipients,
        ]
    }
}

impl WalkColumns {
    pub(super) fn values(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 5] {
        [&self.apps, &self.nums, &self.lanes, &self.fallbacks, &self.dues]
    }
}

/// Columns of the statements for variants in [`crate::postgres::campaign_sum`].
#[derive(Default)]
pub(super) struct VariantColumns {
    pub nums: Vec<Num>,
    pub campaigns: Vec<i64>,
    pub variants: Vec<i64>,
    /// Notification, outcome, reason, count.
    pub counts: (Vec<Num>, Vec<i64>, Vec<&'static str>, Vec<i64>),
}

impl VariantColumns {
    pub(super) fn note(&mut self, num: Num, campaign: i64, variant: VariantNum) {
        self.nums.push(num);
        self.campaigns.push(campaign);
        self.variants.push(i64::from(variant.0));
    }

    pub(super) fn count(&mut self, num: Num, outcome: Outcome, count: u64) {
        self.counts.0.push(num);
        self.counts.1.push(outcome as i64);
        self.counts.2.push("");
        self.counts.3.push(count as i64);
    }
}

/// The push work of a group.
#[derive(Default)]
pub(super) struct Pushes {
    pub batches: BatchColumns,
    pub walks: WalkColumns,
    /// By campaign and the outcome's code.
    pub counts: BTreeMap<(i64, i64), i64>,
    pub variants: VariantColumns,
}

impl Pushes {
    /// Plans batches for users and devices, and a walk for other targets. Records and returns the devices that no
    /// push can reach.
    pub(super) fn plan(
        &mut self,
        num: Num,
        accept: &Accept,
        campaign: i64,
        devices: &[Found],
        parts: &mut Vec<Part>,
    ) -> Vec<(Outcome, Vec<DeviceNum>)> {
        let Some(PushPlan { lane, due_at, fallback }) = PushPlan::of(accept) else { return Vec::new() };
        let request = &accept.request;
        let (app, lane, fallback) = (i64::from(accept.app.0), lane as i64, fallback as i64);
        let due_at = due_at.0 as i64;
        if !matches!(request.target, Target::Users(_) | Target::Devices(_)) {
            let walks = &mut self.walks;
            walks.apps.push(app);
            walks.nums.push(num);
            walks.lanes.push(lane);
            walks.fallbacks.push(fallback);
            walks.dues.push(due_at);
            return Vec::new();
        }
        let found = devices.iter().map(|found| {
            let service = found.service.map(|code| u8::try_from(code).unwrap_or(u8::MAX));
            (DeviceNum(found.num as u64), service, found.suspect)
        });
        let (reachable, unreachable) = by_service(found);
        for (service, devices) in reachable {
            for batch in devices.chunks(BATCH_RECIPIENTS_MAX) {
                let batches = &mut self.batches;
                batches.apps.push(app);
                batches.lanes.push(lane);
                batches.services.push(service as i64);
                batches.campaigns.push(campaign);
                batches.nums.push(num);
                batches.dues.push(due_at);
                batches.fallbacks.push(fallback);
                batches.recipients.push(device_list::encode(batch));
            }
        }
        parts.extend(
            unreachable.iter().map(|(why, devices)| Part::of(num, *why, accept.now, devices.clone())),
        );
        unreachable
    }

    pub(super) fn count(&mut self, campaign: i64, outcome: Outcome, count: u64) {
        if campaign != 0 && count > 0 {
            *self.counts.entry((campaign, outcome as i64)).or_default() += count as i64;
        }
    }
}

//! Push work of a group, written in the commit that accepts it.

use std::collections::BTreeMap;

use noroshi_types::{DeviceNum, Outcome, Target};

use super::reading::Found;
use crate::engine::accept::{PushPlan, by_service};
use crate::engine::outcome::Part;
use crate::engine::push::Entry;
use crate::ids::Num;
use crate::postgres::push_queue::NewRows;
use crate::{Accept, BATCH_RECIPIENTS_MAX, VariantNum};

pub(super) const WALKS: &str = "INSERT INTO push_walks (app, num, lane, fallback, due_at, cursor)
     SELECT u.app, u.num, u.lane, u.fallback, u.due_at, 0
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
          u (app, num, lane, fallback, due_at)";

/// Adds to campaigns' sums. Groups use the first of the rows that a sum is spread over.
pub(super) const COUNT: &str = "INSERT INTO campaign_counts AS c (campaign, outcome, reason, count, shard)
     SELECT u.campaign, u.outcome, '', u.count, 0
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (campaign, outcome, count)
     ON CONFLICT (campaign, outcome, reason, shard) DO UPDATE SET count = c.count + excluded.count";

/// Columns of [`WALKS`].
#[derive(Default)]
pub(super) struct WalkColumns {
    pub apps: Vec<i64>,
    pub nums: Vec<Num>,
    pub lanes: Vec<i64>,
    pub fallbacks: Vec<i64>,
    pub dues: Vec<i64>,
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
    pub batches: NewRows,
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
        let due = due_at.0 as i64;
        if !matches!(accept.request.target, Target::Users(_) | Target::Devices(_)) {
            let walks = &mut self.walks;
            walks.apps.push(accept.app.0.into());
            walks.nums.push(num);
            walks.lanes.push(lane as i64);
            walks.fallbacks.push(fallback as i64);
            walks.dues.push(due);
            return Vec::new();
        }
        let found = devices.iter().map(|found| {
            let service = found.service.map(|code| u8::try_from(code).unwrap_or(u8::MAX));
            (DeviceNum(found.num as u64), service, found.suspect)
        });
        let (reachable, unreachable) = by_service(found);
        for (service, devices) in reachable {
            let service = Some(service);
            let (app, variant, attempt) = (accept.app, None, 0);
            let entry = Entry { app, lane, service, campaign, num, variant, due_at, attempt, fallback };
            for batch in devices.chunks(BATCH_RECIPIENTS_MAX) {
                self.batches.push(&entry, batch);
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

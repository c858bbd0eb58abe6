//! Push work of a group, written in the commit that accepts it.

use std::collections::BTreeMap;

use noroshi_types::{DeviceNum, Outcome, Target};

use super::reading::Found;
use crate::engine::accept::{PushPlan, by_service};
use crate::engine::outcome::Part;
use crate::engine::push::Entry;
use crate::engine::push_token::key_text;
use crate::ids::Num;
use crate::postgres::columns::columns;
use crate::postgres::push_queue::NewRows;
use crate::{Accept, BATCH_RECIPIENTS_MAX};

pub(super) const WALKS: &str = "INSERT INTO push_walks (app, num, lane, fallback, due_at, cursor, token)
     SELECT u.app, u.num, u.lane, u.fallback, u.due_at, 0, u.token
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
          u (app, num, lane, fallback, due_at, token)";

/// Adds to campaigns' sums. Groups use the first of the rows that a sum is spread over.
pub(super) const COUNT: &str = "INSERT INTO campaign_counts AS c (campaign, outcome, reason, count, shard)
     SELECT u.campaign, u.outcome, '', u.count, 0
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (campaign, outcome, count)
     ON CONFLICT (campaign, outcome, reason, shard) DO UPDATE SET count = c.count + excluded.count";

columns! {
    /// Columns of [`WALKS`].
    WalkColumns { apps: i64, nums: Num, lanes: i64, fallbacks: i64, dues: i64, tokens: Option<String> }
}

columns! {
    /// Columns of [`crate::postgres::campaign_sum::ADD_TO_VARIANTS`].
    VariantColumns { nums: Num, campaigns: i64, variants: i64 }
}

/// The push work of a group.
#[derive(Default)]
pub(super) struct Pushes {
    pub batches: NewRows,
    pub walks: WalkColumns,
    /// By campaign and the outcome's code.
    pub counts: BTreeMap<(i64, i64), i64>,
    pub variants: VariantColumns,
    /// Notification, outcome, reason, count.
    pub variant_counts: (Vec<Num>, Vec<i64>, Vec<&'static str>, Vec<i64>),
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
        let token = &accept.request.push.token;
        if !matches!(accept.request.target, Target::Users(_) | Target::Devices(_)) {
            let (app, token) = (accept.app.0.into(), key_text(token.as_ref()));
            self.walks.push_row((app, num, lane as i64, fallback as i64, due_at.0 as i64, token));
            return Vec::new();
        }
        let found = devices.iter().map(|found| {
            let service = found.service.map(|code| u8::try_from(code).unwrap_or(u8::MAX));
            (DeviceNum(found.num as u64), service, found.suspect)
        });
        let (reachable, unreachable) = by_service(found);
        for (service, devices) in reachable {
            let service = Some(service);
            let (app, variant, attempt, token) = (accept.app, None, 0, token.clone());
            let entry =
                Entry { app, lane, service, campaign, num, variant, due_at, attempt, fallback, token };
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

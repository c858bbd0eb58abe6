//! Taking batches that are due.
//!
//! The queue's index for taking begins with lane, app, service and campaign, so one seek finds the oldest row of each
//! such *group*. A statement visits the groups, picks the oldest rows of those that may be taken from, and locks
//! them, skipping rows that another node has locked. Obsolete rows are dropped with their outcome,
//! and the next *round* picks others instead. Each round is a transaction of its own, so it holds locks only briefly.
//!
//! **Leases.** On the node that holds it, a lease ends by the taker's clock, as in a store of one node. For other
//! nodes it ends by the server's clock, so that a wrong clock on one node does not affect them. Opening a store does
//! not end leases, because other nodes may hold them.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use noroshi_types::{DeviceNum, Outcome, Timestamp};
use tokio_postgres::Row;

use super::claim::{self, Ask};
use crate::Fallback;
use crate::engine::campaign::{CampaignRow, Count};
use crate::engine::device_list;
use crate::engine::outcome::Part;
use crate::engine::push::{
    DEVICES_MAX, Done, Entry, Known, QUEUE_COLUMNS, QueueRow, leased_until, service_code,
};
use crate::engine::record::Record;
use crate::postgres::push_queue::ENGINE_NOW;
use crate::postgres::transaction::{Failed, Tx, Values};
use crate::postgres::{Postgres, campaign_row, campaign_sum, outcome};
use crate::push::SPREAD;
use crate::{Error, Take, Taken};

/// Rounds of one call.
const ROUNDS_MAX: usize = 16;
/// Rows examined per requested row, so that several nodes can take at once without one of them finding nothing.
const GROUPS_READ: usize = 4;

pub(crate) async fn take(store: &Postgres, asked: Take) -> Result<Taken, Error> {
    let asked = Arc::new(asked);
    let (mut taken, mut examined) = (Taken::default(), 0);
    for number in 0..ROUNDS_MAX {
        let wanted = asked.batches_max - taken.batches.len();
        let (work, first) = (asked.clone(), number == 0);
        let round = move |tx| {
            let asked = work.clone();
            async move { Round { tx, asked, first, wanted }.run().await }
        };
        let round = match store.write(round).await {
            Ok(round) => round,
            // Earlier rounds have already leased batches.
            Err(error) if number > 0 => {
                tracing::debug!(%error, "a later round of take failed; earlier batches are returned");
                taken.next_due = Some(asked.now);
                break;
            }
            Err(error) => return Err(error),
        };
        examined += round.examined;
        taken.departed.append(round.taken.departed);
        taken.set_aside.extend(round.taken.set_aside);
        taken.done.extend(round.taken.done);
        taken.next_due = round.taken.next_due;
        taken.batches.extend(round.taken.batches);
        if round.last || examined >= DEVICES_MAX {
            break;
        }
    }
    // A row that was locked in one round may be free in the next.
    taken.batches.sort_by_key(|batch| (batch.lane, batch.due_at, batch.id));
    Ok(taken)
}

/// The result of a round.
struct Taking {
    taken: Taken,
    examined: usize,
    /// Enough was taken, or there is no more.
    last: bool,
}

/// A row with its notification and campaign.
fn picked(row: &Row) -> Result<QueueRow, Failed> {
    let (known, campaign) = (Known::of_row(row, 14)?, CampaignRow::of(row, 19)?);
    Ok(QueueRow { known, campaign, ..QueueRow::of_row(row)? })
}

/// The question to answer before the row is leased or dropped; `None` if there is none.
fn ask(row: &QueueRow, now: Timestamp) -> Option<Ask<'_>> {
    let known = row.known.filter(|_| !row.is_cancelled())?;
    let Entry { num, fallback, .. } = row.entry;
    Some(Ask { num, known, fallback, expired: row.is_expired(now), devices: &row.recipients })
}

struct Round {
    tx: Tx,
    asked: Arc<Take>,
    first: bool,
    wanted: usize,
}

/// The values of [`GROUPS`].
struct Groups<'a> {
    lanes: Vec<i64>,
    busy_apps: Vec<i64>,
    busy_services: Vec<i64>,
    held: Vec<&'a [u8]>,
}

/// What a round writes.
#[derive(Default)]
struct TakeWrites {
    leased: Vec<i64>,
    /// The remaining recipients of claimed rows.
    recipients: Vec<Option<Vec<u8>>>,
    dropped: Vec<i64>,
    parts: Vec<Part>,
    counts: Vec<Count>,
    /// Campaigns with dropped rows.
    campaigns: BTreeSet<i64>,
}

impl Round {
    async fn run(self) -> Result<Taking, Failed> {
        self.tx.prepare(&[&EXPIRE, &PICK, &LEASE, DROP, outcome::INSERT, &NEXT_DUE]).await?;
        let ((), picked) = tokio::try_join!(biased; self.expire(), self.pick())?;
        let now = self.asked.now;
        let asks: Vec<Ask<'_>> = picked.iter().filter_map(|row| ask(row, now)).collect();
        let answers = claim::ask(&self.tx, &asks).await?;
        let mut taking = Taking { taken: Taken::default(), examined: 0, last: false };
        let (mut writes, ids) = (TakeWrites::default(), self.tx.ids());
        for row in &picked {
            let mut still = row.recipients.clone();
            if let Some(ask) = ask(row, now) {
                let (needed, acknowledged) = answers.split(&ask);
                taking.examined +=
                    row.recipients.len() * usize::from(row.entry.fallback != Fallback::Settled);
                self.record(row, Outcome::PushNotNeeded, acknowledged, &mut writes, &mut taking.taken);
                still = needed;
            }
            let Some(why) = row.drop_outcome(now, &still) else {
                writes.leased.push(row.id);
                let claimed = row.entry.fallback != Fallback::Settled;
                writes.recipients.push(claimed.then(|| device_list::encode(&still)));
                taking.taken.batches.extend(row.batch(ids, leased_until(&self.asked), still));
                continue;
            };
            if why == Outcome::PushRefused {
                taking.taken.set_aside.extend(row.set_aside(ids, &still));
            }
            taking.examined += still.len();
            self.record(row, why, still, &mut writes, &mut taking.taken);
            writes.dropped.push(row.id);
            writes.campaigns.extend(row.campaign.map(|campaign| campaign.num));
        }
        taking.last = picked.len() < self.wanted || writes.leased.len() >= self.wanted;
        (taking.taken.next_due, taking.taken.done) = self.write(writes).await?;
        Ok(taking)
    }

    fn record(
        &self,
        row: &QueueRow,
        outcome: Outcome,
        devices: Vec<DeviceNum>,
        writes: &mut TakeWrites,
        taken: &mut Taken,
    ) {
        let (part, count) = row.record(outcome, devices, (self.asked.now, self.tx.ids()), taken);
        writes.parts.extend(part);
        writes.counts.extend(count);
    }

    /// Frees the batches of expired leases.
    async fn expire(&self) -> Result<(), Failed> {
        if !self.first {
            return Ok(());
        }
        let (now, spread_ms) = (self.asked.now.0 as i64, SPREAD.as_millis() as i64);
        self.tx.execute(&EXPIRE, &[&self.tx.context().holder, &now, &spread_ms]).await?;
        Ok(())
    }

    fn groups(&self) -> Groups<'_> {
        let Take { lanes, busy, held, .. } = &*self.asked;
        Groups {
            lanes: lanes.iter().map(|lane| *lane as i64).collect(),
            busy_apps: busy.iter().map(|(app, _)| i64::from(app.0)).collect(),
            busy_services: busy.iter().map(|(_, service)| service_code(Some(*service)).into()).collect(),
            held: held.iter().map(|id| id.as_bytes().as_slice()).collect(),
        }
    }

    /// Locks the oldest rows that are due, lane by lane.
    async fn pick(&self) -> Result<Vec<QueueRow>, Failed> {
        let Groups { lanes, busy_apps, busy_services, held } = self.groups();
        let rows = self
            .tx
            .query(
                &PICK,
                &[
                    &lanes,
                    &busy_apps,
                    &busy_services,
                    &held,
                    &(self.asked.now.0 as i64),
                    &(self.wanted as i64),
                    &((self.wanted * GROUPS_READ) as i64),
                ],
            )
            .await?;
        rows.iter().map(picked).collect()
    }

    /// When to ask again.
    async fn next_due(&self) -> Result<Option<Timestamp>, Failed> {
        let Groups { lanes, busy_apps, busy_services, held } = self.groups();
        let now = self.asked.now.0 as i64;
        let holder = self.tx.context().holder;
        let values: Values<'_> = &[&lanes, &busy_apps, &busy_services, &held, &holder, &now];
        let row = self.tx.query_one(&NEXT_DUE, values).await?;
        Ok(row.time_or_null(0)?)
    }

    /// Writes the decisions. Returns when to ask again, and the campaigns that ended.
    async fn write(&self, writes: TakeWrites) -> Result<(Option<Timestamp>, Done), Failed> {
        let TakeWrites { leased, recipients, dropped, parts, counts, campaigns } = writes;
        let ((), (), (), next_due) = tokio::try_join!(
            biased;
            self.lease(&leased, &recipients),
            self.drop_rows(&dropped),
            outcome::add(&self.tx, &parts),
            self.next_due(),
        )?;
        let mut done = Vec::new();
        if !campaigns.is_empty() {
            let campaigns: Vec<_> = campaigns.into_iter().collect();
            campaign_row::hold_open(&self.tx, &campaigns).await?;
            done = campaign_row::settle(&self.tx, &campaigns, self.asked.now).await?;
        }
        campaign_sum::count(&self.tx, counts).await?;
        Ok((next_due, done))
    }

    async fn lease(&self, ids: &[i64], recipients: &[Option<Vec<u8>>]) -> Result<(), Failed> {
        if ids.is_empty() {
            return Ok(());
        }
        let lease_ms = i64::try_from(self.asked.lease.as_millis()).unwrap_or(i64::MAX / 2);
        let until = leased_until(&self.asked).0 as i64;
        let (counted, now) = (i64::from(self.asked.sends), self.asked.now.0 as i64);
        let holder = self.tx.context().holder;
        let values: Values<'_> = &[&ids, &recipients, &until, &holder, &lease_ms, &counted, &now];
        self.tx.execute(&LEASE, values).await.map(drop)
    }

    async fn drop_rows(&self, ids: &[i64]) -> Result<(), Failed> {
        if !ids.is_empty() {
            self.tx.execute(DROP, &[&ids]).await?;
        }
        Ok(())
    }
}

/// Frees batches whose lease has expired: for the holder $1 by its clock, which is $2. A batch whose sender crashed
/// more than once is due again within $3 for each crash.
static EXPIRE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH lapsed AS (
         SELECT id FROM push_queue
         WHERE leased_until > 0 AND lapses_at <= {ENGINE_NOW}
            OR leased_until > 0 AND holder = $1 AND leased_until <= $2
         FOR UPDATE SKIP LOCKED)
     UPDATE push_queue q SET leased_until = 0, holder = 0, lapses_at = 0,
         due_at = CASE WHEN takes > 1 THEN greatest(due_at, $2 + floor(random() * $3::bigint * (takes - 1))::bigint)
                       ELSE due_at END
     FROM lapsed WHERE q.id = lapsed.id"
    )
});

/// Locks the oldest rows that are due at $5, lane by lane; at most $6.
static PICK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH RECURSIVE {GROUPS},
     due AS (SELECT * FROM open WHERE due_at <= $5 ORDER BY lane, due_at LIMIT $6),
     picked AS (
         SELECT q.id FROM due g CROSS JOIN LATERAL (
             SELECT id, due_at FROM push_queue
             WHERE lane = g.lane AND app = g.app AND service = g.service AND campaign = g.campaign
               AND leased_until = 0 AND due_at <= $5
             ORDER BY due_at, id LIMIT $7) q
         ORDER BY g.lane, q.due_at, q.id LIMIT $7),
     locked AS (
         SELECT * FROM push_queue q
         WHERE q.id = ANY(ARRAY(SELECT id FROM picked)) AND q.leased_until = 0
         ORDER BY q.lane, q.due_at, q.id LIMIT $6 FOR UPDATE SKIP LOCKED)
     SELECT {QUEUE_COLUMNS}, n.created_at, n.expires_at, n.standing, n.topic, n.topic_offset,
            c.num, c.id, c.state, c.notification
     FROM locked q LEFT JOIN notifications n ON n.num = q.num LEFT JOIN campaigns c ON c.num = q.campaign
     ORDER BY q.lane, q.due_at, q.id"
    )
});

static LEASE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE push_queue q SET leased_until = $3, holder = $4, lapses_at = {ENGINE_NOW} + $5,
                             takes = takes + $6::bigint, taken_at = $7, fallback = 0,
                             recipients = coalesce(lease.recipients, q.recipients)
     FROM unnest($1::bigint[], $2::bytea[]) AS lease (id, recipients) WHERE q.id = lease.id"
    )
});

const DROP: &str = "DELETE FROM push_queue WHERE id = ANY($1)";

/// When a row is due or a lease expires, by the clock of the holder $5, which is $6.
static NEXT_DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH RECURSIVE {GROUPS}
     SELECT least((SELECT min(due_at) FROM open),
                  (SELECT min(leased_until) FROM push_queue WHERE holder = $5 AND leased_until > 0),
                  (SELECT $6 + greatest(lapses_at - {ENGINE_NOW}, 0) FROM push_queue
                   WHERE leased_until > 0 AND holder <> $5 ORDER BY lapses_at LIMIT 1))"
    )
});

/// `open`: the groups of the lanes $1 that may be taken from, with their oldest row, by one seek each. Skips apps $2
/// with services $3, the campaigns $4, and campaigns that are not running; rows of ended campaigns are included, to
/// be dropped.
const GROUPS: &str = "groups AS (
         SELECT q.lane, q.app, q.service, q.campaign, q.due_at
         FROM unnest($1::bigint[]) AS asked (lane) CROSS JOIN LATERAL (
             SELECT lane, app, service, campaign, due_at FROM push_queue
             WHERE lane = asked.lane AND leased_until = 0
             ORDER BY lane, app, service, campaign, due_at LIMIT 1) q
         UNION ALL
         SELECT q.lane, q.app, q.service, q.campaign, q.due_at
         FROM groups g CROSS JOIN LATERAL (
             SELECT lane, app, service, campaign, due_at FROM push_queue
             WHERE lane = g.lane AND leased_until = 0 AND (app, service, campaign) > (g.app, g.service, g.campaign)
             ORDER BY lane, app, service, campaign, due_at LIMIT 1) q),
     open AS (
         SELECT g.* FROM groups g LEFT JOIN campaigns c ON c.num = g.campaign
         WHERE g.campaign <> 0 AND (c.num IS NULL OR c.state >= 5)
            OR (g.campaign = 0 OR c.state = 3 AND c.id <> ALL ($4::bytea[]))
               AND NOT EXISTS (SELECT 1 FROM unnest($2::bigint[], $3::bigint[]) AS busy (app, service)
                               WHERE busy.app = g.app AND busy.service = g.service))";

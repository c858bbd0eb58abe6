//! Taking batches that are due.
//!
//! The queue's index for taking begins with lane, app, service and campaign, so each such *group* has its
//! oldest row at a place that one seek finds. A statement walks over the groups, picks the oldest rows of those
//! that may be taken from, and locks them; rows that another node has locked at this moment are passed over.
//! What turns out to be nobody's is dropped, with its outcome, and in the next *round* others are picked in its
//! place. A round is a transaction of its own: nothing waits long for what it locks.
//!
//! **Leases.** A lease ends by its taker's clock on the node that holds it, as it does for a store of one node; for
//! all others by the engine's clock, which a clock that is wrong or jumps on any node has no part in. Nothing
//! is void when a store is opened, for others may be at work.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use noroshi_types::{AppId, BatchId, CampaignId, DeviceNum, Outcome, Timestamp};
use tokio_postgres::Row;

use super::claim::{self, Ask, Known};
use super::queue::{self, ENGINE_NOW};
use crate::ids::{Ids, Num};
use crate::postgres::Postgres;
use crate::postgres::campaign::{self, CampaignRow, Count};
use crate::postgres::outcome::{self, Part};
use crate::postgres::transaction::{Failed, Tx};
use crate::push::SPREAD;
use crate::row::{Fallback, Standing};
use crate::{Batch, Error, SENDER_ENDED, SetAside, TAKES_MAX, Take, Taken, VariantNum, Work, device_list};

/// Devices looked up or dropped by one call: what is left is due at once.
const DEVICES_MAX: usize = 16_384;
/// Rounds of one call.
const ROUNDS_MAX: usize = 16;
/// Rows that are looked at for each that is wanted: as many nodes may take at once without one of them finding
/// nothing.
const LOOKED_AT: usize = 4;

pub(super) async fn take(store: &Postgres, asked: Take) -> Result<Taken, Error> {
    let asked = Arc::new(asked);
    let (mut taken, mut looked_at) = (Taken::default(), 0);
    for number in 0..ROUNDS_MAX {
        let wanted = asked.batches_max - taken.batches.len();
        let (work, store_of_work) = (asked.clone(), store.clone());
        let first = number == 0;
        let round = store
            .write(move |tx| {
                let (store, asked) = (store_of_work.clone(), work.clone());
                async move { Round { tx, store, asked, first, wanted }.run().await }
            })
            .await;
        let round = match round {
            Ok(round) => round,
            // What earlier rounds took is taken.
            Err(error) if number > 0 => {
                tracing::debug!(%error, "fewer batches were taken than are due");
                taken.next_due = Some(asked.now);
                break;
            }
            Err(error) => return Err(error),
        };
        looked_at += round.looked_at;
        taken.departed.append(round.taken.departed);
        taken.set_aside.extend(round.taken.set_aside);
        taken.done.extend(round.taken.done);
        taken.next_due = round.taken.next_due;
        taken.batches.extend(round.taken.batches);
        if round.last || looked_at >= DEVICES_MAX {
            break;
        }
    }
    // A row that was locked in one round may have come free for the next.
    taken.batches.sort_by_key(|batch| (batch.lane, batch.due_at, batch.id));
    Ok(taken)
}

/// What a round came to.
struct Taking {
    taken: Taken,
    looked_at: usize,
    /// As much was taken as was asked for, or there is no more.
    last: bool,
}

struct Picked {
    id: i64,
    app: AppId,
    lane: i64,
    service: i64,
    campaign: i64,
    num: Num,
    due_at: Timestamp,
    attempt: u32,
    fallback: Fallback,
    recipients: Vec<DeviceNum>,
    takes: u32,
    variant: Option<VariantNum>,
    /// Under which outcomes of that variant are recorded.
    variant_num: Option<Num>,
    known: Option<(Known, Standing)>,
    of: Option<CampaignRow>,
}

impl Picked {
    fn of(row: &Row) -> Result<Self, Failed> {
        let known = row.get::<_, Option<i64>>(10).map(|created_at| {
            let known = Known {
                created_at,
                expires_at: row.get(11),
                topic: row.get(13),
                offset: row.get::<_, Option<i64>>(14).unwrap_or(0),
            };
            (known, Standing::from_code(row.get::<_, i64>(12) as u8))
        });
        Ok(Self {
            id: row.get(0),
            app: AppId(row.get::<_, i64>(1) as u32),
            lane: row.get(2),
            service: row.get(3),
            campaign: row.get(4),
            num: row.get(5),
            due_at: Timestamp(row.get::<_, i64>(6) as u64),
            attempt: row.get::<_, i64>(7) as u32,
            fallback: Fallback::from_code(row.get::<_, i64>(8) as u8),
            recipients: device_list::decode(row.get(9)).collect(),
            takes: row.get::<_, i64>(19) as u32,
            variant: VariantNum::from_code(row.get::<_, i64>(20) as u8),
            variant_num: row.get(21),
            known,
            of: CampaignRow::of(row, 15)?,
        })
    }

    /// Its notification or its campaign is gone, or is not wanted any more.
    fn is_cancelled(&self) -> bool {
        let lost = (self.campaign != 0 && self.of.is_none()) || (self.num > 0 && self.known.is_none());
        lost || self.of.is_some_and(|of| of.state.ended())
            || self.known.is_some_and(|(_, standing)| standing == Standing::Cancelled)
    }

    fn work(&self, ids: &Ids) -> Option<Work> {
        Work::of(ids, self.num, self.of.map(|of| of.id))
    }

    fn set_aside(&self, work: Work, recipients: &[DeviceNum]) -> SetAside {
        SetAside {
            batch: BatchId(self.id as u64),
            app: self.app,
            service: queue::service_of(self.service),
            lane: queue::lane_of(self.lane),
            work,
            recipients: recipients.to_vec(),
        }
    }

    fn ask(&self, now: Timestamp) -> Option<Ask<'_>> {
        let (known, _) = self.known.filter(|_| !self.is_cancelled())?;
        let expired = claim::expired(&known, self.fallback, now);
        Some(Ask { num: self.num, known, fallback: self.fallback, expired, devices: &self.recipients })
    }
}

struct Round {
    tx: Tx,
    store: Postgres,
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

/// What of a round is to be written.
#[derive(Default)]
struct Writes {
    leased: Vec<i64>,
    /// Of those that were claimed, the recipients that are left.
    recipients: Vec<Option<Vec<u8>>>,
    dropped: Vec<i64>,
    parts: Vec<Part>,
    counts: Vec<Count>,
    /// Of which something was dropped.
    campaigns: BTreeSet<i64>,
}

impl Round {
    async fn run(self) -> Result<Taking, Failed> {
        self.tx.prepare(&[&LAPSE, &PICK, &LEASE, DROP, outcome::INSERT, &NEXT_DUE]).await?;
        let ((), picked) = tokio::try_join!(biased; self.lapse(), self.pick())?;
        let asks: Vec<Ask<'_>> = picked.iter().filter_map(|row| row.ask(self.asked.now)).collect();
        let answers = claim::ask(&self.tx, &asks).await?;
        let mut taking = Taking { taken: Taken::default(), looked_at: 0, last: false };
        let mut writes = Writes::default();
        for row in &picked {
            let (mut still, mut why) = (row.recipients.clone(), Some(Outcome::Cancelled));
            if let Some(ask) = row.ask(self.asked.now) {
                let (needed, confirmed) = answers.split(&ask);
                taking.looked_at += row.recipients.len() * usize::from(row.fallback != Fallback::Settled);
                self.record(row, Outcome::PushNotNeeded, confirmed, &mut writes, &mut taking.taken);
                why = (ask.expired || needed.is_empty()).then_some(Outcome::PushExpired);
                still = needed;
            } else if row.num == 0 && !row.is_cancelled() {
                why = None;
            }
            if why.is_none() && row.takes >= TAKES_MAX {
                why = Some(Outcome::PushRefused);
                let set_aside = row.work(&self.store.ids).map(|work| row.set_aside(work, &still));
                taking.taken.set_aside.extend(set_aside);
            }
            match why {
                Some(why) => {
                    taking.looked_at += still.len();
                    self.record(row, why, still, &mut writes, &mut taking.taken);
                    writes.dropped.push(row.id);
                    writes.campaigns.extend(row.of.map(|of| of.num));
                }
                None => {
                    writes.leased.push(row.id);
                    let claimed = row.fallback != Fallback::Settled;
                    writes.recipients.push(claimed.then(|| device_list::encode(&still)));
                    taking.taken.batches.extend(self.batch(row, still));
                }
            }
        }
        taking.last = picked.len() < self.wanted || writes.leased.len() >= self.wanted;
        (taking.taken.next_due, taking.taken.done) = self.write(writes).await?;
        Ok(taking)
    }

    fn batch(&self, row: &Picked, recipients: Vec<DeviceNum>) -> Option<Batch> {
        let work = row.work(&self.store.ids)?;
        Some(Batch {
            id: BatchId(row.id as u64),
            app: row.app,
            service: queue::service_of(row.service),
            lane: queue::lane_of(row.lane),
            due_at: row.due_at,
            attempt: row.attempt,
            work,
            campaign: row.of.map(|of| of.id),
            variant: row.variant,
            leased_until: self.until(),
            recipients,
        })
    }

    fn until(&self) -> Timestamp {
        Timestamp(self.asked.now.saturating_add(self.asked.lease).0.max(1))
    }

    fn record(
        &self,
        row: &Picked,
        outcome: Outcome,
        devices: Vec<DeviceNum>,
        writes: &mut Writes,
        taken: &mut Taken,
    ) {
        let count = devices.len() as u64;
        // What is set aside is told as such.
        if outcome != Outcome::PushRefused {
            taken.departed.add(row.work(&self.store.ids), outcome, self.asked.now, &devices);
        }
        // A batch that was published is of the variant that its notification is of.
        let num = Some(row.num).filter(|num| *num > 0).or(row.variant_num);
        let under = match row.num {
            0 => num.or(row.of.map(|of| of.notification)),
            num => row.known.map(|_| num),
        };
        let reason = (outcome == Outcome::PushRefused).then_some(SENDER_ENDED);
        let part = |num| Part { reason, ..Part::of(num, outcome, self.asked.now, devices) };
        writes.parts.extend(under.map(part));
        writes.counts.extend(row.of.map(|of| Count { campaign: of.num, num, outcome, reason, count }));
    }

    /// Leases that lapsed make their batches free.
    async fn lapse(&self) -> Result<(), Failed> {
        if !self.first {
            return Ok(());
        }
        let (now, spread_ms) = (self.asked.now.0 as i64, SPREAD.as_millis() as i64);
        self.tx.execute(&LAPSE, &[&self.store.holder, &now, &spread_ms]).await?;
        Ok(())
    }

    fn groups(&self) -> Groups<'_> {
        let Take { lanes, busy, held, .. } = &*self.asked;
        Groups {
            lanes: lanes.iter().map(|lane| *lane as i64).collect(),
            busy_apps: busy.iter().map(|(app, _)| i64::from(app.0)).collect(),
            busy_services: busy.iter().map(|(_, service)| queue::service_code(Some(*service))).collect(),
            held: held.iter().map(|id| id.as_bytes().as_slice()).collect(),
        }
    }

    /// Locks the oldest rows that are due, lane by lane.
    async fn pick(&self) -> Result<Vec<Picked>, Failed> {
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
                    &((self.wanted * LOOKED_AT) as i64),
                ],
            )
            .await?;
        rows.iter().map(Picked::of).collect()
    }

    /// When to ask again.
    async fn next_due(&self) -> Result<Option<Timestamp>, Failed> {
        let Groups { lanes, busy_apps, busy_services, held } = self.groups();
        let now = self.asked.now.0 as i64;
        let row = self
            .tx
            .query_one(&NEXT_DUE, &[&lanes, &busy_apps, &busy_services, &held, &self.store.holder, &now])
            .await?;
        Ok(row.get::<_, Option<i64>>(0).map(|at| Timestamp(at as u64)))
    }

    /// Writes what was decided, and looks when there is something to do again; with the campaigns that ended with it.
    async fn write(&self, writes: Writes) -> Result<(Option<Timestamp>, Vec<(AppId, CampaignId)>), Failed> {
        let Writes { leased, recipients, dropped, parts, counts, campaigns } = writes;
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
            campaign::hold_open(&self.tx, &campaigns).await?;
            let now = self.asked.now;
            done = campaign::settle(&self.tx, &campaigns, now, self.store.keep_until(now)).await?;
        }
        campaign::count(&self.tx, counts).await?;
        Ok((next_due, done))
    }

    async fn lease(&self, ids: &[i64], recipients: &[Option<Vec<u8>>]) -> Result<(), Failed> {
        if ids.is_empty() {
            return Ok(());
        }
        let lease_ms = i64::try_from(self.asked.lease.as_millis()).unwrap_or(i64::MAX / 2);
        let until = self.until().0 as i64;
        let counted = i64::from(self.asked.sends);
        self.tx
            .execute(&LEASE, &[&ids, &recipients, &until, &self.store.holder, &lease_ms, &counted])
            .await?;
        Ok(())
    }

    async fn drop_rows(&self, ids: &[i64]) -> Result<(), Failed> {
        if !ids.is_empty() {
            self.tx.execute(DROP, &[&ids]).await?;
        }
        Ok(())
    }
}

/// Makes the batches free whose lease has lapsed: for the holder $1 by its clock, which is $2. What ended its sender
/// before waits within $3 for each time.
static LAPSE: LazyLock<String> = LazyLock::new(|| {
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

/// Locks the oldest rows that are due at $5, lane by lane: $6 of those that are found first.
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
     SELECT q.id, q.app, q.lane, q.service, q.campaign, q.num, q.due_at, q.attempt, q.fallback, q.recipients,
            n.created_at, n.expires_at, n.standing, n.topic, n.topic_offset, c.num, c.id, c.state, c.notification,
            q.takes, q.variant,
            CASE WHEN q.variant > 0 THEN (SELECT v.notification FROM campaign_variants v
                                          WHERE v.campaign = q.campaign AND v.variant = q.variant) END
     FROM locked q LEFT JOIN notifications n ON n.num = q.num LEFT JOIN campaigns c ON c.num = q.campaign
     ORDER BY q.lane, q.due_at, q.id"
    )
});

static LEASE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE push_queue q SET leased_until = $3, holder = $4, lapses_at = {ENGINE_NOW} + $5,
                             takes = takes + $6::bigint, fallback = 0, recipients = coalesce(lease.recipients, q.recipients)
     FROM unnest($1::bigint[], $2::bytea[]) AS lease (id, recipients) WHERE q.id = lease.id"
    )
});

const DROP: &str = "DELETE FROM push_queue WHERE id = ANY($1)";

/// When something is due or a lease lapses, by the clock of the holder $5, which is $6.
static NEXT_DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH RECURSIVE {GROUPS}
     SELECT least((SELECT min(due_at) FROM open),
                  (SELECT min(leased_until) FROM push_queue WHERE holder = $5 AND leased_until > 0),
                  (SELECT $6 + greatest(lapses_at - {ENGINE_NOW}, 0) FROM push_queue
                   WHERE leased_until > 0 AND holder <> $5 ORDER BY lapses_at LIMIT 1))"
    )
});

/// `open`: the groups of the lanes $1 that may be taken from with their oldest row, by a seek each. Passed over are
/// apps $2 with services $3, the campaigns $4, and those that do not run; what is left of campaigns that
/// ended is there to be dropped.
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

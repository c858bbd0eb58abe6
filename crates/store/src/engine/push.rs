//! Push work: rows of the queue, what happens to a row that is taken or finished, walks, and invalidated tokens.

use std::collections::BTreeMap;

use noroshi_types::{
    AppId, BatchId, CampaignId, Condition, DeviceNum, Lane, Outcome, PushEnvironment, PushService, Timestamp,
    TokenKey, TokenKind, Topic,
};

use super::campaign::{CampaignNum, CampaignRow, Count, VariantNotifications};
use super::device;
use super::device_list;
use super::notification::Standing;
use super::outcome::Part;
use super::push_token::key_of;
use super::record::{Record, invalid, unknown};
use super::session::{Session, values};
use super::topic::TopicNum;
use crate::ids::{Ids, Num};
use crate::{
    AbandonedBatch, Again, Audience, Batch, Error, Fallback, Finished, FinishedCounts, Invalidation,
    PushPart, Rest, SENDER_ENDED, TAKES_MAX, Taken, VariantNum, Walk, Work,
};

/// Devices that one call of `take` examines or drops, 1 µs each: the rest is due at once.
pub(crate) const DEVICES_MAX: usize = 16_384;

/// Batches that are counted per walk: the collector limits what it enqueues, but retries have no limit.
pub(crate) const WAITING_MAX: usize = 256;

/// What the rows of one piece of work have in common.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub app: AppId,
    pub lane: Lane,
    /// `None`: the batch is published as a notification.
    pub service: Option<PushService>,
    /// 0: of no campaign.
    pub campaign: CampaignNum,
    /// 0: the campaign's message.
    pub num: Num,
    /// The variant that was drawn for all recipients; `None` before the draw.
    pub variant: Option<VariantNum>,
    pub due_at: Timestamp,
    pub attempt: u32,
    pub fallback: Fallback,
    /// The token of each device that the push is for; `None`: the main token.
    pub token: Option<TokenKey>,
}

impl Entry {
    /// Reads `app, lane, service, campaign, num, due_at, token` from column `first` on.
    pub(crate) fn of_row(row: &(impl Record + ?Sized), first: usize) -> Result<Self, Error> {
        Ok(Self {
            app: row.app(first)?,
            lane: lane_of(row, first + 1)?,
            service: PushService::from_code(row.code(first + 2)?),
            campaign: row.int(first + 3)?,
            num: row.int(first + 4)?,
            variant: None,
            due_at: row.time(first + 5)?,
            attempt: 0,
            fallback: Fallback::Settled,
            token: key_of(row, first + 6)?,
        })
    }

    /// The tokens that the batch was sent to: those of this kind and name. `None`: it was published.
    pub(crate) fn sent_to(&self) -> Option<TokenKey> {
        self.token.clone().or_else(|| self.service.map(TokenKey::of_messages))
    }
}

pub(crate) fn lane_of(row: &(impl Record + ?Sized), column: usize) -> Result<Lane, Error> {
    Ok(Lane::from_code(row.code(column)?).unwrap_or(Lane::Direct))
}

/// 0 for a batch that is published.
pub(crate) fn service_code(service: Option<PushService>) -> u8 {
    service.map_or(0, |service| service as u8)
}

/// Sorted, without duplicates.
pub(crate) fn sorted(mut devices: Vec<DeviceNum>) -> Vec<DeviceNum> {
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// The notification of a batch, as far as the decision about the batch needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub created_at: i64,
    pub expires_at: i64,
    pub standing: Standing,
    pub topic: Option<TopicNum>,
    pub offset: i64,
}

impl Known {
    /// Reads `created_at, expires_at, standing, topic, topic_offset` from column `first` on; `None` where they are NULL.
    pub(crate) fn of_row(row: &(impl Record + ?Sized), first: usize) -> Result<Option<Self>, Error> {
        let Some(created_at) = row.int_or_null(first)? else { return Ok(None) };
        Ok(Some(Self {
            created_at,
            expires_at: row.int(first + 1)?,
            standing: Standing::from_code(row.code(first + 2)?),
            topic: row.int_or_null(first + 3)?,
            offset: row.int_or_null(first + 4)?.unwrap_or(0),
        }))
    }
}

/// A row of the queue that is due.
pub(crate) struct QueueRow {
    pub id: i64,
    pub entry: Entry,
    pub takes: u32,
    pub recipients: Vec<DeviceNum>,
    /// The notification that outcomes of the variant are recorded under.
    pub variant_num: Option<Num>,
    /// `None`: the row names no notification, or it was deleted.
    pub known: Option<Known>,
    /// `None`: the row names no campaign, or it was deleted.
    pub campaign: Option<CampaignRow>,
}

/// Columns of `push_queue q` for [`QueueRow::of_row`].
pub(crate) const QUEUE_COLUMNS: &str = "q.id, q.app, q.lane, q.service, q.campaign, q.num, q.due_at, q.token, q.attempt, \
     q.fallback, q.recipients, q.takes, q.variant, \
     CASE WHEN q.variant > 0 THEN (SELECT v.notification FROM campaign_variants v \
                                   WHERE v.campaign = q.campaign AND v.variant = q.variant) END";

impl QueueRow {
    /// The row of [`QUEUE_COLUMNS`], without its notification and campaign.
    pub(crate) fn of_row(row: &(impl Record + ?Sized)) -> Result<Self, Error> {
        Ok(Self {
            id: row.int(0)?,
            entry: Entry {
                attempt: row.int(8)? as u32,
                fallback: Fallback::from_code(row.code(9)?),
                variant: VariantNum::from_code(row.code(12)?),
                ..Entry::of_row(row, 1)?
            },
            takes: row.int(11)? as u32,
            recipients: device_list::decode(row.bytes(10)?).collect(),
            variant_num: row.int_or_null(13)?,
            known: None,
            campaign: None,
        })
    }

    /// The notification or the campaign was deleted, cancelled or aborted.
    pub(crate) fn is_cancelled(&self) -> bool {
        let Entry { campaign, num, .. } = self.entry;
        (campaign != 0 && self.campaign.is_none())
            || (num > 0 && self.known.is_none())
            || self.campaign.is_some_and(|campaign| campaign.state.ended())
            || self.known.is_some_and(|known| known.standing == Standing::Cancelled)
    }

    /// The ttl has ended. With a ttl of 0 an unconditional push is tried once: the push service delivers it now or
    /// never (RFC 8030 §5.2).
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.known.is_some_and(|known| {
            let at_once = self.entry.fallback == Fallback::Settled && known.expires_at == known.created_at;
            known.expires_at <= now.0 as i64 && !at_once
        })
    }

    /// With which outcome the row is dropped; `None`: it is leased. `still` are the recipients that need a push.
    pub(crate) fn drop_outcome(&self, now: Timestamp, still: &[DeviceNum]) -> Option<Outcome> {
        if self.is_cancelled() {
            Some(Outcome::Cancelled)
        } else if self.known.is_some() && (self.is_expired(now) || still.is_empty()) {
            Some(Outcome::PushExpired)
        } else {
            (self.takes >= TAKES_MAX).then_some(Outcome::PushRefused)
        }
    }

    pub(crate) fn work(&self, ids: &Ids) -> Option<Work> {
        Work::of(ids, self.entry.num, self.campaign.map(|campaign| campaign.id))
    }

    pub(crate) fn set_aside(&self, ids: &Ids, recipients: &[DeviceNum]) -> Option<AbandonedBatch> {
        let Entry { app, service, lane, .. } = self.entry;
        let (batch, recipients) = (BatchId(self.id as u64), recipients.to_vec());
        Some(AbandonedBatch { batch, app, service, lane, work: self.work(ids)?, recipients })
    }

    pub(crate) fn batch(
        &self,
        ids: &Ids,
        leased_until: Timestamp,
        recipients: Vec<DeviceNum>,
    ) -> Option<Batch> {
        let Entry { app, lane, service, variant, due_at, attempt, ref token, .. } = self.entry;
        Some(Batch {
            id: BatchId(self.id as u64),
            app,
            service,
            lane,
            due_at,
            attempt,
            work: self.work(ids)?,
            campaign: self.campaign.map(|campaign| campaign.id),
            variant,
            token: token.clone(),
            leased_until,
            recipients,
        })
    }

    /// What `devices` leaving the row with this outcome adds to the trace and to the campaign's sums, and to the answer.
    pub(crate) fn record(
        &self,
        outcome: Outcome,
        devices: Vec<DeviceNum>,
        (now, ids): (Timestamp, &Ids),
        taken: &mut Taken,
    ) -> (Option<Part>, Option<Count>) {
        let count = devices.len() as u64;
        // Batches that are set aside are in the answer already.
        if outcome != Outcome::PushRefused {
            taken.departed.add(self.entry.app, self.work(ids), outcome, now, &devices);
        }
        let published = Some(self.entry.num).filter(|num| *num > 0);
        // A published batch belongs to the variant that its notification belongs to.
        let num = published.or(self.variant_num);
        let under = match published {
            None => num.or(self.campaign.map(|campaign| campaign.notification)),
            published => published.filter(|_| self.known.is_some()),
        };
        let reason = (outcome == Outcome::PushRefused).then_some(SENDER_ENDED);
        let part = under.map(|num| Part { reason, ..Part::of(num, outcome, now, devices) });
        let campaign = self.campaign.map(|campaign| campaign.num);
        (part, campaign.map(|campaign| Count { campaign, num, outcome, reason, count }))
    }
}

/// When a lease that is taken now ends by the taker's clock.
pub(crate) fn leased_until(asked: &crate::Take) -> Timestamp {
    Timestamp(asked.now.saturating_add(asked.lease).0.max(1))
}

/// What became of a part of a batch's results.
pub(crate) enum Kept<T> {
    /// This call writes it.
    Now(T),
    /// It was written by an earlier call.
    Before,
    /// The batch has another lease, or no row.
    Stale,
}

impl Kept<Entry> {
    /// By the row of the batch: its lease and its encoded recipients.
    pub(crate) fn of(entry: Entry, leased_until: Timestamp, recipients: &[u8], rest: &Rest) -> Self {
        match leased_until == rest.leased_until {
            false => Self::Stale,
            true if recipients == device_list::encode(&rest.recipients) => Self::Before,
            true => Self::Now(entry),
        }
    }
}

/// A batch that ends, or has a part of its results. In the first case its row is removed.
pub(crate) struct Ended {
    pub entry: Entry,
    /// `None`: the batch belongs to none, or the campaign was deleted.
    pub campaign: Option<CampaignRow>,
    /// Retries are still wanted, as far as the batch's notification is concerned.
    pub wanted: bool,
}

/// What finished batches add to other tables.
#[derive(Default)]
pub(crate) struct FinishWrites {
    pub parts: Vec<Part>,
    pub counts: Vec<Count>,
    /// By campaign and bucket.
    pub latencies: BTreeMap<(CampaignNum, i64), i64>,
    pub retries: Vec<(Entry, Vec<DeviceNum>)>,
}

impl FinishWrites {
    /// Adds a finished batch. Retries of work that was cancelled or aborted are recorded as cancelled.
    pub(crate) fn add(
        &mut self,
        ended: &Ended,
        finished: &Finished,
        variants: &VariantNotifications,
        (now, ids): (Timestamp, &Ids),
        counts: &mut FinishedCounts,
    ) {
        for part in &finished.parts {
            self.add_part(ended, part, variants, now);
        }
        let wanted = match ended.campaign {
            Some(campaign) if campaign.state.ended() => false,
            None if ended.entry.campaign != 0 => false,
            _ => ended.entry.num == 0 || ended.wanted,
        };
        let work = Work::of(ids, ended.entry.num, ended.campaign.map(|campaign| campaign.id));
        for again in &finished.again {
            let recipients = sorted(again.recipients.clone());
            if wanted {
                let Again { due_at, attempt, variant, fallback, .. } = *again;
                let entry = ended.entry.clone();
                self.retries.push((Entry { due_at, attempt, variant, fallback, ..entry }, recipients));
            } else {
                self.add_part(ended, &again.cancelled(), variants, now);
                counts.cancelled.add(ended.entry.app, work, Outcome::Cancelled, now, &recipients);
            }
        }
        if let Some(campaign) = ended.campaign {
            for (bucket, count) in finished.latencies.iter().filter(|(_, count)| *count > 0) {
                *self.latencies.entry((campaign.num, i64::from(*bucket))).or_default() += i64::from(*count);
            }
        }
    }

    fn add_part(&mut self, ended: &Ended, part: &PushPart, variants: &VariantNotifications, now: Timestamp) {
        let PushPart { outcome, reason, variant, ref devices } = *part;
        let devices = sorted(devices.clone());
        let count = devices.len() as u64;
        let of_variant =
            ended.campaign.zip(variant).and_then(|(of, variant)| variants.get(&(of.num, variant)).copied());
        // A published batch belongs to the variant that its notification belongs to.
        let num = of_variant.or(Some(ended.entry.num).filter(|num| *num > 0));
        let under = num.or(ended.campaign.map(|campaign| campaign.notification));
        self.parts.extend(under.map(|num| Part { reason, ..Part::of(num, outcome, now, devices) }));
        let campaign = ended.campaign.map(|campaign| campaign.num);
        self.counts.extend(campaign.map(|campaign| Count { campaign, num, outcome, reason, count }));
    }
}

/// Whether any part or retry of these names a variant.
pub(crate) fn has_variant(finished: &[Finished]) -> bool {
    let parts = finished.iter().flat_map(|one| one.parts.iter().map(|part| part.variant));
    let again = finished.iter().flat_map(|one| one.again.iter().map(|again| again.variant));
    parts.chain(again).any(|variant| variant.is_some())
}

/// Reads `id, app, num, lane, due_at, cursor`, the target's text, whether it is a topic, how many batches wait, and the
/// token.
pub(crate) fn walk_of(row: &(impl Record + ?Sized), ids: &Ids) -> Result<Walk, Error> {
    let audience = match (row.text_or_null(6)?, row.flag(7)?) {
        (Some(topic), true) => Audience::Topic(Topic::from_trusted(topic)),
        (Some(condition), false) => {
            Audience::Condition(Condition::parse(condition).map_err(|error| invalid("condition", error))?)
        }
        (None, _) => Audience::Everyone,
    };
    Ok(Walk {
        id: row.count(0)?,
        app: row.app(1)?,
        notification: ids.id(row.int(2)?),
        audience,
        cursor: row.count(5)?,
        lane: lane_of(row, 3)?,
        due_at: row.time(4)?,
        batches_waiting: row.count(8)? as usize,
        token: key_of(row, 9)?,
    })
}

/// Walks that are due at $1, at most $2, with up to $3 waiting batches counted for each. It compares the 10,000 that
/// have been due longest, so its work is bounded.
pub(crate) const DUE_WALKS: &str = "SELECT w.id, w.app, w.num, w.lane, w.due_at, w.cursor, n.target_text,
            n.topic IS NOT NULL,
            (SELECT count(*) FROM (
                SELECT 1 FROM push_queue q
                WHERE q.num = w.num AND q.num > 0 AND q.leased_until = 0 AND q.due_at <= $1 LIMIT $3) AS waiting)
                AS waiting, w.token
     FROM (SELECT id, app, num, lane, due_at, cursor, token FROM push_walks WHERE due_at <= $1
           ORDER BY due_at LIMIT 10000) AS w
     JOIN notifications n ON n.num = w.num
     ORDER BY waiting, w.due_at, w.id LIMIT $2";

/// What the batches of a walk inherit.
pub(crate) struct WalkRow {
    pub app: AppId,
    pub num: Num,
    fallback: Fallback,
    token: Option<TokenKey>,
}

impl WalkRow {
    /// Reads `app, num, fallback, token`.
    pub(crate) fn of_row(row: &(impl Record + ?Sized)) -> Result<Self, Error> {
        let (app, num, fallback) = (row.app(0)?, row.int(1)?, Fallback::from_code(row.code(2)?));
        Ok(Self { app, num, fallback, token: key_of(row, 3)? })
    }
}

/// An entry of a walk's page. Every batch of a walk goes to a push service.
pub(crate) fn walk_entry(walk: &WalkRow, batch: &crate::NewBatch) -> Result<Entry, Error> {
    let WalkRow { app, num, fallback, ref token } = *walk;
    if batch.service.is_none() {
        return Err(Error::Engine("a batch of a walk names no push service".to_owned()));
    }
    Ok(Entry { app, num, fallback, token: token.clone(), ..new_entry(batch) })
}

/// An entry of a campaign's page.
pub(crate) fn campaign_entry(app: AppId, campaign: CampaignNum, batch: &crate::NewBatch) -> Entry {
    Entry { app, campaign, ..new_entry(batch) }
}

fn new_entry(batch: &crate::NewBatch) -> Entry {
    Entry {
        app: AppId(0),
        lane: batch.lane,
        service: batch.service,
        campaign: 0,
        num: 0,
        variant: None,
        due_at: batch.due_at,
        attempt: 0,
        fallback: Fallback::Settled,
        token: batch.token.clone(),
    }
}

/// The outcomes of a page: those of its recipients that are not pushed to.
pub(crate) fn page_part(num: Num, part: &PushPart, now: Timestamp) -> Part {
    let devices = sorted(part.devices.clone());
    Part { reason: part.reason, ..Part::of(num, part.outcome, now, devices) }
}

/// Invalidated tokens, oldest first.
pub(crate) async fn invalidations<S: Session>(
    session: &S,
    app: AppId,
    after: u64,
    limit: usize,
) -> Result<Vec<Invalidation>, S::Error> {
    let sql =
        "SELECT seq, at, device, service, environment, reason, removed, kind, name FROM push_invalidations
               WHERE app = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    session.query(sql, &values![app, after, limit], invalidation_of).await
}

fn invalidation_of(row: &dyn Record) -> Result<Invalidation, Error> {
    let service = PushService::from_code(row.code(3)?).ok_or_else(|| unknown("push service"))?;
    // Older programs know only message tokens, and write no kind.
    let key = match row.code_or_null(7)? {
        None => TokenKey::of_messages(service),
        Some(code) => {
            let kind = TokenKind::from_code(code).ok_or_else(|| unknown("kind of push token"))?;
            let name = row.text_or_null(8)?.unwrap_or_default();
            TokenKey::new(kind, name).map_err(|error| invalid("name of a push token", error))?
        }
    };
    Ok(Invalidation {
        seq: row.count(0)?,
        at: row.time(1)?,
        device: device::id_of(row, 2)?,
        service,
        key,
        environment: PushEnvironment::from_code(row.code(4)?).unwrap_or_default(),
        reason: row.string(5)?,
        removed: row.flag(6)?,
    })
}

/// Campaigns that ended.
pub(crate) type Done = Vec<(AppId, CampaignId)>;

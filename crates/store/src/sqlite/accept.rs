//! [`Notifications`] for SQLite. Accepting a notification is one operation of the writer.

mod broadcast;
mod expansion;
mod push_plan;
mod recipient;

use noroshi_types::{
    AppId, DeviceId, DeviceNum, NotificationId, Outcome, Position, PushMode, Target, Timestamp, Topic,
};

use self::expansion::AcceptJob;
pub(super) use self::expansion::{last as last_expansion, settle as settle_expansions};
use self::recipient::Recipients;
use super::notification::LogPlace;
use super::statement::ready;
use super::status::{CancelStep, Cancelling};
use super::writer::Write;
use super::{
    Sqlite, audience, campaign_row, idempotency, inbox, item, notification, number, outcome, status, topic,
};
use crate::engine::accept::is_stored;
use crate::engine::campaign::Count;
use crate::engine::expansion::AT_ONCE;
use crate::engine::notification::{Standing, message_of};
use crate::engine::outcome::{Part, recorded};
use crate::engine::preferences;
use crate::engine::record::Record;
use crate::engine::trace::trace;
use crate::ids::Num;
use crate::metrics::Held;
use crate::{
    Accept, Accepted, Cancelled, Done, Error, Gate, Idempotency, NotificationState, Notifications,
    OutcomePart, RemovedMessages, Trace,
};

#[async_trait::async_trait]
impl Notifications for Sqlite {
    fn accept(&self, request: Accept, done: Done) {
        let rows = request.request.target.named_count().unwrap_or(0) as usize;
        self.writer.submit_job(AcceptJob::new(rows, request, done));
    }

    fn note(&self, request: Accept) -> Accepted {
        let num = self.ids.next(request.now);
        let message = message_of(&request, self.ids.id(num), None);
        let accepted = Accepted::new(&request, message, Vec::new(), RemovedMessages::default());
        self.writer.submit_background(1, move |w| {
            w.held.set(Held::Traces);
            notification::insert(w, num, &request, 0, None, Standing::Nothing)
        });
        accepted
    }

    fn record(&self, parts: Vec<OutcomePart>) {
        if !parts.is_empty() {
            let parts = recorded(&self.ids, parts);
            self.writer.submit_background(parts.len(), move |w| record(w, &parts));
        }
    }

    async fn notification(
        &self,
        app: AppId,
        id: NotificationId,
        now: Timestamp,
    ) -> Result<Option<NotificationState>, Error> {
        self.read(move |read| status::state(read, app, id, now)).await
    }

    async fn trace(&self, app: AppId, id: NotificationId, device: &DeviceId) -> Result<Option<Trace>, Error> {
        let device = device.clone();
        self.read(move |read| ready(trace(read.db, read.ids, id, app, &device))).await
    }

    async fn cancel(&self, app: AppId, id: NotificationId, now: Timestamp) -> Result<Cancelled, Error> {
        let mut before = Cancelling::default();
        loop {
            match self.write(1, move |w| status::cancel(w, app, id, before, now)).await? {
                CancelStep::Done(cancelled) => return Ok(cancelled),
                CancelStep::More(next) => before = next,
            }
        }
    }
}

/// Pages of a bounded database that accepting leaves free, so that acknowledgements and removals still fit in.
const PAGES_KEPT_FREE: i64 = 8;

/// Fails if a bounded database has no room for more notifications. A full disk cannot keep anything free.
pub(super) fn check_space(w: &Write<'_>) -> Result<(), Error> {
    if w.options.database_bytes_max.is_none() {
        return Ok(());
    }
    let used = w.db.int("PRAGMA page_count", ())? - w.db.int("PRAGMA freelist_count", ())?;
    match used + PAGES_KEPT_FREE > w.db.int("PRAGMA max_page_count", ())? {
        true => Err(Error::Full),
        false => Ok(()),
    }
}

/// What accepting leads to.
pub(super) enum Begun {
    Accepted(Accepted),
    /// The condition selects too many devices for one commit.
    TooMany,
}

/// Accepts a notification, unless that takes several commits.
pub(super) fn begin(w: &mut Write<'_>, accept: &Accept) -> Result<Begun, Error> {
    w.held.set(Held::Accept);
    let Accept { app, request, now, idempotency, .. } = accept;
    if let Some(key) = idempotency
        && let Some(earlier) = answered_before(w, accept, key)?
    {
        return Ok(Begun::Accepted(earlier));
    }
    check_space(w)?;
    let mut found = Recipients::default();
    match &request.target {
        Target::Topic(_) | Target::Everyone => {}
        Target::Condition(condition) if is_stored(accept) => {
            let (devices, next) = audience::numbers(w.db, *app, condition, 0, AT_ONCE)?;
            if next.is_some() {
                return Ok(Begun::TooMany);
            }
            found.devices = devices.into_iter().map(|device| DeviceNum(device as u64)).collect();
        }
        Target::Condition(_) => {}
        target if is_stored(accept) || request.push.mode != PushMode::Never => {
            found = recipient::find(w.db, *app, target)?;
        }
        Target::Users(_) | Target::Devices(_) => {}
    }
    w.staged.count_operation();
    let num = w.ids.next(*now);
    let id = w.ids.id(num);
    let mut stored = Stored::default();
    match &request.target {
        Target::Topic(_) | Target::Everyone => {
            let everyone = Topic::everyone();
            let name = if let Target::Topic(topic) = &request.target { topic } else { &everyone };
            let published = topic::publish(w, name, num, accept)?;
            stored.standing = published.standing;
            let position = published.position;
            stored.place = Some((LogPlace { topic: published.topic, offset: position.offset }, position));
        }
        Target::Users(_) | Target::Devices(_) | Target::Condition(_) if is_stored(accept) => {
            let category = request.category.as_ref();
            let (devices, muted) = ready(preferences::split_muted(w.db, category, found.devices))?;
            found.devices = devices;
            Gate::check(accept.gate.as_ref(), found.devices.len())?;
            stored.departed =
                inbox::deliver(w, (*app, num), request.collapse_key.as_deref(), &found.devices, *now)?;
            if found.unknown > 0 {
                stored.parts.push(OutcomePart::of_unknown(*app, id, *now, found.unknown));
                let part = Part::of(num, Outcome::Unknown, *now, Vec::new());
                outcome::add(w.db, &Part { count: found.unknown, ..part })?;
            }
            if !muted.is_empty() {
                outcome::add(w.db, &Part::of(num, Outcome::Muted, *now, muted.clone()))?;
                stored.parts.push(OutcomePart::of(*app, id, Outcome::Muted, *now, muted));
            }
            if !found.devices.is_empty() {
                stored.standing = Standing::Kept;
                stored.parts.push(OutcomePart::of(*app, id, Outcome::Kept, *now, found.devices.clone()));
            }
        }
        Target::Users(_) | Target::Devices(_) | Target::Condition(_) => {}
    }
    finish(w, accept, num, stored, &found.devices).map(Begun::Accepted)
}

/// What was stored of a notification for its devices.
pub(super) struct Stored {
    pub standing: Standing,
    pub place: Option<(LogPlace, Position)>,
    /// What was recorded.
    pub parts: Vec<OutcomePart>,
    pub departed: RemovedMessages,
}

impl Default for Stored {
    fn default() -> Self {
        let (parts, departed) = (Vec::new(), RemovedMessages::default());
        Self { standing: Standing::Nothing, place: None, parts, departed }
    }
}

/// Writes the notification and its push work. Its rows in inboxes and logs are written. `devices` are those that the
/// request names.
pub(super) fn finish(
    w: &Write<'_>,
    accept: &Accept,
    num: Num,
    stored: Stored,
    devices: &[DeviceNum],
) -> Result<Accepted, Error> {
    let Accept { app, now, idempotency, campaign, .. } = accept;
    let Stored { standing, place, mut parts, departed } = stored;
    let id = w.ids.id(num);
    let (place, position) = place.unzip();
    let variant = campaign.and_then(|of| of.variant);
    let campaign = match campaign {
        Some(of) => number::campaign(w.db, *app, of.id)?.unwrap_or(0),
        None => 0,
    };
    notification::insert(w, num, accept, campaign, place, standing)?;
    if let Some(variant) = variant.filter(|_| campaign != 0) {
        campaign_row::add_to_variant(w.db, num, campaign, variant)?;
    }
    broadcast::enqueue(w.db, id, accept)?;
    let unreachable = push_plan::enqueue(w.db, num, accept, campaign, devices)?;
    let part = |(why, devices)| OutcomePart::of(*app, id, why, *now, devices);
    parts.extend(unreachable.into_iter().map(part));
    if campaign != 0 {
        for &OutcomePart { outcome, count, .. } in &parts {
            campaign_row::count(w.db, &Count { campaign, num: Some(num), outcome, reason: None, count })?;
        }
    }
    if let Some(key) = idempotency {
        idempotency::remember(w.db, *app, key, num, *now)?;
    }
    let item_users = item::write(w, num, accept)?;
    Ok(Accepted { item_users, ..Accepted::new(accept, message_of(accept, id, position), parts, departed) })
}

/// The first answer to the same idempotency key, while it is remembered.
fn answered_before(w: &Write<'_>, accept: &Accept, key: &Idempotency) -> Result<Option<Accepted>, Error> {
    let Some(num) = idempotency::find(w.db, accept.app, key, accept.now)? else { return Ok(None) };
    if notification::is_campaign(w.db, num)? {
        return Err(Error::IdempotencyConflict);
    }
    let message = notification::message(w.db, w.ids, num)?;
    Ok(message.map(|message| Accepted::replay(accept, message)))
}

/// Writes parts that callers recorded, except those of unknown notifications: their rows were dropped or pruned, so the
/// parts would never be pruned. A campaign counts the parts of what its batches published.
fn record(w: &Write<'_>, parts: &[Part]) -> Result<(), Error> {
    w.held.set(Held::Traces);
    // 0: of no campaign, or of one that was deleted.
    let known = "SELECT coalesce((SELECT c.num FROM campaigns c WHERE c.num = n.campaign), 0)
                 FROM notifications n WHERE n.num = ?1";
    for part in parts {
        let Some(campaign) = w.db.first(known, (part.num,), |row| row.int(0))? else { continue };
        outcome::add(w.db, part)?;
        if campaign != 0 {
            let &Part { num, outcome, count, .. } = part;
            campaign_row::count(w.db, &Count { campaign, num: Some(num), outcome, reason: None, count })?;
        }
    }
    Ok(())
}

//! [`Notifications`] for SQLite. Accepting a notification is one operation of the writer.

mod push_plan;
mod recipient;

use noroshi_types::{AppId, DeviceId, NotificationId, Outcome, PushMode, Target, Timestamp, Topic};

use super::notification::LogPlace;
use super::statement::ready;
use super::status::{CancelStep, Cancelling};
use super::writer::Write;
use super::{Sqlite, campaign_row, idempotency, inbox, notification, number, outcome, status, topic};
use crate::engine::accept::is_stored;
use crate::engine::campaign::Count;
use crate::engine::notification::{Standing, message_of};
use crate::engine::outcome::{Part, recorded, trace};
use crate::engine::record::Record;
use crate::metrics::Held;
use crate::{
    Accept, Accepted, Cancelled, Done, Error, Gate, Idempotency, NotificationState, Notifications,
    OutcomePart, RemovedMessages, Trace,
};

#[async_trait::async_trait]
impl Notifications for Sqlite {
    fn accept(&self, request: Accept, done: Done) {
        let rows = request.request.target.named_count().unwrap_or(0) as usize;
        self.writer.submit_addition(rows, move |w| accept(w, &request), done);
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
        let (Some(num), device) = (self.ids.num(id), device.clone()) else { return Ok(None) };
        self.read(move |read| ready(trace(read.db, num, app, &device))).await
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
fn check_space(w: &Write<'_>) -> Result<(), Error> {
    if w.options.database_bytes_max.is_none() {
        return Ok(());
    }
    let used = w.db.int("PRAGMA page_count", ())? - w.db.int("PRAGMA freelist_count", ())?;
    match used + PAGES_KEPT_FREE > w.db.int("PRAGMA max_page_count", ())? {
        true => Err(Error::Full),
        false => Ok(()),
    }
}

fn accept(w: &mut Write<'_>, accept: &Accept) -> Result<Accepted, Error> {
    w.held.set(Held::Accept);
    let Accept { app, request, now, idempotency, campaign, .. } = accept;
    if let Some(key) = idempotency
        && let Some(earlier) = answered_before(w, accept, key)?
    {
        return Ok(earlier);
    }
    check_space(w)?;
    w.staged.count_operation();
    let num = w.ids.next(*now);
    let id = w.ids.id(num);
    let (mut parts, mut departed) = (Vec::new(), RemovedMessages::default());
    let mut devices = Vec::new();
    let (mut standing, mut is_kept, mut place) = (Standing::Nothing, false, None);
    match &request.target {
        Target::Topic(_) | Target::Everyone => {
            let everyone = Topic::everyone();
            let name = if let Target::Topic(topic) = &request.target { topic } else { &everyone };
            let published = topic::publish(w, name, num, accept)?;
            standing = published.standing;
            let position = published.position;
            place = Some((LogPlace { topic: published.topic, offset: position.offset }, position));
        }
        Target::Users(_) | Target::Devices(_) | Target::Condition(_) => {
            if is_stored(accept) {
                let found = recipient::find(w.db, *app, &request.target)?;
                Gate::check(accept.gate.as_ref(), found.devices.len())?;
                departed = inbox::deliver(w, num, request.collapse_key.as_deref(), &found.devices, *now)?;
                if found.unknown > 0 {
                    parts.push(OutcomePart::of_unknown(id, *now, found.unknown));
                    let part = Part::of(num, Outcome::Unknown, *now, Vec::new());
                    outcome::add(w.db, &Part { count: found.unknown, ..part })?;
                }
                devices = found.devices;
                is_kept = !devices.is_empty();
                standing = if is_kept { Standing::Kept } else { Standing::Nothing };
            } else if request.push.mode != PushMode::Never && !matches!(request.target, Target::Condition(_))
            {
                devices = recipient::find(w.db, *app, &request.target)?.devices;
            }
        }
    }
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
    let unreachable = push_plan::enqueue(w.db, num, accept, campaign, &devices)?;
    if is_kept {
        parts.push(OutcomePart::of(id, Outcome::Kept, *now, devices));
    }
    parts.extend(unreachable.into_iter().map(|(why, devices)| OutcomePart::of(id, why, *now, devices)));
    if campaign != 0 {
        for &OutcomePart { outcome, count, .. } in &parts {
            campaign_row::count(w.db, &Count { campaign, num: Some(num), outcome, reason: None, count })?;
        }
    }
    if let Some(key) = idempotency {
        idempotency::remember(w.db, *app, key, num, *now)?;
    }
    Ok(Accepted::new(accept, message_of(accept, id, position), parts, departed))
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

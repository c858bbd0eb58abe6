//! Accepting notifications: everything that must survive of one, in one operation.

use std::sync::Arc;

use noroshi_types::{
    AppId, DeviceId, NotificationId, Outcome, Position, PushMode, Target, Timestamp, Topic, When, limits,
};
use rusqlite::{Connection, OptionalExtension};

use super::campaign::{self, CampaignNum};
use super::ids::Num;
use super::notification::{self, Place, Standing};
use super::push::plan;
use super::recipients::Recipients;
use super::writer::Write;
use super::{Sqlite, inbox, outcome, recipients, topic, variant};
use crate::{
    Accept, Accepted, Cancelled, Departed, Done, Error, Gate, Idempotency, NotificationState, Notifications,
    OutcomePart, Trace,
};

#[async_trait::async_trait]
impl Notifications for Sqlite {
    fn accept(&self, request: Accept, done: Done) {
        let rows = request.request.target.named_count().unwrap_or(0) as usize;
        self.writer.submit(rows, move |w| accept(w, &request), done);
    }

    fn note(&self, request: Accept) -> Accepted {
        let num = self.ids.next(request.now);
        let message = Arc::new(notification::message_of(&request, self.ids.id(num), None));
        let targets = request.request.target.named_count();
        self.writer
            .submit_behind(1, move |w| notification::insert(w, num, &request, 0, None, Standing::Nothing));
        Accepted { message, targets, parts: Vec::new(), departed: Departed::default(), replayed: false }
    }

    fn record(&self, parts: Vec<OutcomePart>) {
        if !parts.is_empty() {
            self.writer.submit_behind(parts.len(), move |w| outcome::record(w, parts));
        }
    }

    async fn notification(
        &self,
        app: AppId,
        id: NotificationId,
        now: Timestamp,
    ) -> Result<Option<NotificationState>, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| notification::state(db, &ids, app, id, now)).await
    }

    async fn trace(&self, app: AppId, id: NotificationId, device: &DeviceId) -> Result<Option<Trace>, Error> {
        let (ids, device) = (Arc::clone(&self.ids), device.clone());
        self.read(move |db| notification::trace(db, &ids, app, id, &device)).await
    }

    async fn cancel(&self, app: AppId, id: NotificationId, now: Timestamp) -> Result<Cancelled, Error> {
        self.write(1, move |w| notification::cancel(w, app, id, now)).await
    }
}

/// Under [`crate::Error::Full`] what is left is for what makes room: confirmations and removals, which leave a trace.
const PAGES_KEPT_FREE: i64 = 8;

/// Whether a bounded database may take in more. On a disk that is full itself nothing can be kept free.
fn find_room(w: &Write<'_>) -> Result<(), Error> {
    if w.options.database_bytes_max.is_none() {
        return Ok(());
    }
    let count = |pragma: &str| w.db.prepare_cached(pragma)?.query_row((), |row| row.get::<_, i64>(0));
    let used = count("PRAGMA page_count")? - count("PRAGMA freelist_count")?;
    match used + PAGES_KEPT_FREE > count("PRAGMA max_page_count")? {
        true => Err(Error::Full),
        false => Ok(()),
    }
}

fn accept(w: &mut Write<'_>, accept: &Accept) -> Result<Accepted, Error> {
    let Accept { app, request, now, idempotency, campaign, .. } = accept;
    if let Some(idempotency) = idempotency
        && let Some(earlier) = answered_before(w, accept, idempotency)?
    {
        return Ok(earlier);
    }
    find_room(w)?;
    let num = w.ids.next(*now);
    let id = w.ids.id(num);
    let (mut parts, mut departed) = (Vec::new(), Departed::default());
    let mut devices = Vec::new();
    let (mut standing, mut is_kept) = (Standing::Nothing, false);
    let mut place: Option<(Place, Position)> = None;
    let everyone = Topic::everyone();
    match &request.target {
        Target::Topic(_) | Target::Everyone => {
            let name = if let Target::Topic(topic) = &request.target { topic } else { &everyone };
            let published = topic::publish(w, *app, name, num, request, *now)?;
            standing = published.standing;
            let position = published.position;
            place = Some((Place { topic: published.topic, offset: position.offset }, position));
        }
        Target::Users(_) | Target::Devices(_) | Target::Condition(_) => {
            // With a ttl of 0 it is now or never (RFC 8030 §5.2).
            if request.when == When::Stored && !request.ttl.duration().is_zero() {
                let found;
                (found, departed) = keep(w, num, accept)?;
                if found.unknown > 0 {
                    parts.push(OutcomePart::of_unknown(id, *now, found.unknown));
                }
                devices = found.devices;
                is_kept = !devices.is_empty();
                standing = if is_kept { Standing::Kept } else { Standing::Nothing };
            } else if request.push.mode != PushMode::Never && !matches!(request.target, Target::Condition(_))
            {
                devices = recipients::find(w.db, *app, &request.target)?.devices;
            }
        }
    }
    let (place, position) = place.unzip();
    let variant = campaign.and_then(|of| of.variant);
    let campaign = match campaign {
        Some(of) => campaign::number(w.db, *app, of.id)?.unwrap_or(0),
        None => 0,
    };
    notification::insert(w, num, accept, campaign, place, standing)?;
    if let Some(variant) = variant.filter(|_| campaign != 0) {
        variant::note(w.db, num, campaign, variant)?;
    }
    let unreachable = plan::plan(w.db, num, accept, campaign, &devices)?;
    if is_kept {
        parts.push(OutcomePart::of(id, Outcome::Kept, *now, devices));
    }
    parts.extend(unreachable.into_iter().map(|(why, devices)| OutcomePart::of(id, why, *now, devices)));
    if campaign != 0 {
        count_for_campaign(w.db, (campaign, num), &parts)?;
    }
    if let Some(idempotency) = idempotency {
        remember(w, *app, idempotency, num, *now)?;
    }
    let message = Arc::new(notification::message_of(accept, id, position));
    Ok(Accepted { message, targets: request.target.named_count(), parts, departed, replayed: false })
}

/// What is known of the notification so far.
fn count_for_campaign(
    db: &Connection,
    (campaign, num): (CampaignNum, Num),
    parts: &[OutcomePart],
) -> Result<(), Error> {
    for OutcomePart { outcome, count, .. } in parts {
        campaign::count(db, campaign, *outcome, None, *count)?;
        variant::count(db, num, *outcome, None, *count)?;
    }
    Ok(())
}

/// Puts it into the inboxes; whose, and what that pushed out.
fn keep(w: &mut Write<'_>, num: Num, accept: &Accept) -> Result<(Recipients, Departed), Error> {
    let found = recipients::find(w.db, accept.app, &accept.request.target)?;
    Gate::check(accept.gate.as_ref(), found.devices.len())?;
    let collapse_key = accept.request.collapse_key.as_deref();
    let departed = inbox::deliver(w, num, collapse_key, &found.devices, accept.now)?;
    outcome::add(w.db, num, Outcome::Unknown, accept.now, &[], found.unknown)?;
    Ok((found, departed))
}

/// The first answer to the same idempotency key, while it is remembered.
fn answered_before(
    w: &Write<'_>,
    accept: &Accept,
    idempotency: &Idempotency,
) -> Result<Option<Accepted>, Error> {
    let Some(num) = remembered(w.db, accept.app, idempotency, accept.now)? else { return Ok(None) };
    if notification::is_campaign(w.db, num)? {
        return Err(Error::IdempotencyConflict);
    }
    // The same body names the same targets.
    let targets = accept.request.target.named_count();
    let message = notification::message(w.db, w.ids, num)?;
    Ok(message.map(|message| Accepted {
        message,
        targets,
        parts: Vec::new(),
        departed: Departed::default(),
        replayed: true,
    }))
}

/// What the same key was used for with the same body, while that is remembered.
pub(super) fn remembered(
    db: &Connection,
    app: AppId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Num>, Error> {
    let mut find = db.prepare_cached(
        "SELECT body_hash, num FROM idempotency WHERE app = ?1 AND key = ?2 AND expires_at > ?3",
    )?;
    let found = find
        .query_row((app.0, &*idempotency.key, now.0 as i64), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((body_hash, num)) = found else { return Ok(None) };
    let (body_hash, num): ([u8; 32], Num) = (body_hash, num);
    match body_hash == idempotency.body_hash {
        true => Ok(Some(num)),
        false => Err(Error::IdempotencyConflict),
    }
}

pub(super) fn remember(
    w: &Write<'_>,
    app: AppId,
    idempotency: &Idempotency,
    num: Num,
    now: Timestamp,
) -> Result<(), Error> {
    let expires_at = now.saturating_add(limits::IDEMPOTENCY_WINDOW);
    w.db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency (app, key, body_hash, num, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute((app.0, &*idempotency.key, idempotency.body_hash, num, expires_at.0 as i64))?;
    Ok(())
}

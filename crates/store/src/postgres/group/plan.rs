//! Plans a group: numbers, answers, and every row to write.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_types::{DeviceNum, JsonText, NotificationId, Outcome, PushMode, Target, Topic};

use super::broadcast::Broadcasts;
use super::form::{Expanded, Form};
use super::inbox::{InboxRemoval, Inboxes};
use super::item::Items;
use super::push::Pushes;
use super::reading::{Found, Reading};
use super::topic::Topics;
use crate::engine::accept::{is_stored, key_expires_at};
use crate::engine::named;
use crate::engine::notification::{Standing, keep_until, message_of, push_text, target_of};
use crate::engine::outcome::Part;
use crate::ids::{Ids, Num};
use crate::postgres::PostgresOptions;
use crate::postgres::columns::columns;
use crate::postgres::ids::ordered_after;
use crate::{Accept, Accepted, Error, Gate, OutcomePart, RemovedMessages, Work};

/// The answers of a group, in order.
pub(in crate::postgres) type Answer = Result<Accepted, Error>;

/// A planned group.
pub(in crate::postgres) struct Plan<'a> {
    pub answers: Vec<Answer>,
    /// The last ordered number, including this group.
    pub(super) last: Num,
    /// The maximum number of rows in a topic's log.
    pub(super) log_rows_max: i64,
    /// The index in the group of each of `rows`; ascending.
    places: Vec<usize>,
    pub(super) rows: Rows<'a>,
    pub(super) inboxes: Inboxes<'a>,
    pub(super) items: Items<'a>,
    /// The maximum number of items of a user.
    pub(super) item_rows_max: i64,
    pub(super) topics: Topics<'a>,
    pub(super) pushes: Pushes,
    pub(super) broadcasts: Broadcasts<'a>,
    pub(super) parts: Vec<Part>,
    pub(super) keys: Keys<'a>,
    /// Expansions that end with the group.
    pub(super) expanded: Vec<Num>,
    /// The same, of notifications with a collapse key.
    pub(super) collapsing: Vec<Num>,
}

columns! {
    /// Columns of `idempotency`.
    Keys<'a> { apps: i64, keys: &'a str, hashes: &'a [u8], nums: Num, ends: i64 }
}

/// The parts of a notification's row that are not in the request.
#[derive(Clone, Copy)]
pub(in crate::postgres) struct NotificationSource {
    /// 0: of no campaign.
    pub campaign: i64,
    /// The topic's number and the offset.
    pub place: Option<(i64, u64)>,
    pub standing: Standing,
}

columns! {
    /// Columns of `notifications`.
    Rows<'a> {
        nums: Num, apps: i64, created: i64, expires: i64, keep_until: i64, deliveries: i64, urgencies: i64,
        targets: i64, target_texts: Option<&'a str>, counts: Option<i64>, topics: Option<i64>, offsets: Option<i64>,
        collapse_keys: Option<&'a str>, retains: i64, notifications: Option<&'a str>, datas: Option<&'a str>,
        pushes: Option<String>, standings: i64, campaigns: Option<i64>, traces: Option<Vec<u8>>,
        names: Option<Vec<u8>>,
    }
}

impl<'a> Rows<'a> {
    pub(in crate::postgres) fn add(
        &mut self,
        num: Num,
        accept: &'a Accept,
        options: &PostgresOptions,
        source: NotificationSource,
    ) {
        let Accept { app, request, now, .. } = accept;
        let (target, target_text) = target_of(&request.target);
        self.push_row((
            num,
            i64::from(app.0),
            now.0 as i64,
            request.expires_at(*now).0 as i64,
            keep_until(accept, options.trace_retention).0 as i64,
            request.when as i64,
            request.urgency as i64,
            i64::from(target),
            target_text,
            request.target.named_count().map(|count| count as i64),
            source.place.map(|(topic, _)| topic),
            source.place.map(|(_, offset)| offset as i64),
            request.collapse_key.as_deref(),
            i64::from(request.retain),
            request.notification.as_ref().map(JsonText::as_str),
            request.data.as_ref().map(JsonText::as_str),
            push_text(&request.push, request.waits_for_use, request.category.as_ref()),
            source.standing as i64,
            (source.campaign != 0).then_some(source.campaign),
            request.trace.map(|trace| trace.to_stored().to_vec()),
            named::fingerprints(&request.target),
        ));
    }
}

/// Plans a group from what was read for it.
pub(in crate::postgres) fn plan<'a>(
    group: &[&'a Accept],
    forms: &[&Form],
    reading: &Reading,
    options: &PostgresOptions,
    ids: &Ids,
) -> Plan<'a> {
    let mut plan = Plan {
        answers: Vec::with_capacity(group.len()),
        last: reading.last,
        log_rows_max: options.topic_log_rows.max(1) as i64,
        places: Vec::new(),
        rows: Rows::default(),
        inboxes: Inboxes::new(options.inbox_rows),
        items: Items::default(),
        item_rows_max: i64::from(options.item_rows.max(1)),
        topics: Topics::default(),
        pushes: Pushes::default(),
        broadcasts: Broadcasts::default(),
        parts: Vec::new(),
        keys: Keys::default(),
        expanded: Vec::new(),
        collapsing: Vec::new(),
    };
    // Index of the first notification of the group with the key.
    let mut keys: HashMap<(u32, &str), usize> = HashMap::new();
    for (place, (accept, form)) in group.iter().zip(forms).enumerate() {
        let key = accept.idempotency.as_ref().map(|idempotency| (accept.app.0, &*idempotency.key));
        let answer = match plan.answered_before(group, place, reading, key.and_then(|key| keys.get(&key))) {
            Some(answer) => answer,
            None => {
                let answer = plan.accept(place, (accept, form), reading, options, ids);
                // A refused request does not use up its key.
                if let Some(key) = key.filter(|_| answer.is_ok()) {
                    keys.insert(key, place);
                }
                answer
            }
        };
        plan.answers.push(answer);
    }
    plan.settle_replaced();
    plan
}

impl<'a> Plan<'a> {
    /// The answer of an earlier commit, or of `first` in this group, for the same idempotency key.
    fn answered_before(
        &self,
        group: &[&Accept],
        place: usize,
        reading: &Reading,
        first: Option<&usize>,
    ) -> Option<Answer> {
        let accept = group[place];
        let idempotency = accept.idempotency.as_ref()?;
        let (body_hash, message) = if let Some(&first) = first {
            let body_hash = group[first].idempotency.as_ref()?.body_hash.as_slice();
            (body_hash, self.answers[first].as_ref().ok().map(|accepted| Arc::clone(&accepted.message)))
        } else {
            let earlier = reading.earlier.get(&(accept.app, idempotency.key.to_string()))?;
            (earlier.body_hash.as_slice(), earlier.message.clone())
        };
        // A key without a message belongs to a campaign.
        Some(match message {
            Some(message) if body_hash == idempotency.body_hash => Ok(Accepted::replay(accept, message)),
            _ => Err(Error::IdempotencyConflict),
        })
    }

    fn accept(
        &mut self,
        place: usize,
        (accept, form): (&'a Accept, &Form),
        reading: &Reading,
        options: &PostgresOptions,
        ids: &Ids,
    ) -> Answer {
        let Accept { app, request, now, idempotency, campaign, gate } = accept;
        let num = match form {
            Form::Whole => ordered_after(self.last, *now),
            Form::Expanded(Expanded { num, .. }) if reading.expanding.contains_key(num) => *num,
            // The key has expired since, or the lease ended: the provider may try again.
            Form::Repeated | Form::Expanded(_) => return Err(Error::Overloaded),
        };
        let variant = campaign.and_then(|of| of.variant);
        let campaign = campaign.and_then(|of| reading.campaigns.get(&(*app, of.id)).copied());
        let campaign = campaign.unwrap_or_default();
        let id = ids.id(num);
        let mut parts = Vec::new();
        let mut devices: &[Found] = &[];
        let (mut standing, mut published) = (Standing::Nothing, None);
        let mut departed = RemovedMessages::default();
        match &request.target {
            Target::Topic(_) | Target::Everyone => {
                let everyone = Topic::everyone();
                let name = if let Target::Topic(topic) = &request.target { topic } else { &everyone };
                let topic = reading.topics.get(&(*app, name.as_str().to_owned()));
                let topic = topic.ok_or_else(|| Error::Engine("a topic was not created".to_owned()))?;
                let place = self.topics.publish(place, num, accept, *topic);
                standing = place.standing;
                published = Some(place);
            }
            Target::Condition(_) if let Form::Expanded(expanded) = form => {
                parts.extend(expanded.kept.clone().part((*app, id), Outcome::Kept, *now));
                let is_kept = !parts.is_empty();
                parts.extend(expanded.muted.clone().part((*app, id), Outcome::Muted, *now));
                departed = expanded.departed.clone();
                if is_kept {
                    standing = Standing::Kept;
                }
                match &request.collapse_key {
                    Some(_) if standing == Standing::Kept => self.collapsing.push(num),
                    _ => self.expanded.push(num),
                }
            }
            Target::Users(_) | Target::Devices(_) | Target::Condition(_) => {
                devices = &reading.devices[place];
                if is_stored(accept) {
                    Gate::check(gate.as_ref(), devices.len())?;
                    parts = self.keep(place, (num, id), accept, devices, reading.unknown[place]);
                    parts.extend(self.mute((num, id), accept, reading.muted.get(&place)));
                    standing = if devices.is_empty() { Standing::Nothing } else { Standing::Kept };
                } else if request.push.mode == PushMode::Never {
                    devices = &[];
                }
            }
        }
        self.last = self.last.max(num);
        let place_in_topic = published.as_ref().map(|place| (place.topic, place.position.offset));
        self.places.push(place);
        self.rows.add(num, accept, options, NotificationSource { campaign, place: place_in_topic, standing });
        self.broadcasts.plan(id, accept);
        let unreachable = self.pushes.plan(num, accept, campaign, devices, &mut self.parts);
        let part = |(why, devices)| OutcomePart::of(*app, id, why, *now, devices);
        parts.extend(unreachable.into_iter().map(part));
        for OutcomePart { outcome, count, .. } in &parts {
            self.pushes.count(campaign, *outcome, *count);
            if variant.is_some() && campaign != 0 && *count > 0 {
                self.pushes.variant_counts.extend([(num, *outcome as i64, "", *count as i64)]);
            }
        }
        if let Some(variant) = variant.filter(|_| campaign != 0) {
            self.pushes.variants.push_row((num, campaign, i64::from(variant.0)));
        }
        if let Some(idempotency) = idempotency {
            let (app, ends) = (i64::from(app.0), key_expires_at(*now).0 as i64);
            self.keys.push_row((app, &idempotency.key, &idempotency.body_hash, num, ends));
        }
        let users = reading.item_users.get(&place).map_or(&[][..], Vec::as_slice);
        let item_users = self.items.add(num, accept, users);
        let message = message_of(accept, id, published.map(|place| place.position));
        Ok(Accepted { item_users, ..Accepted::new(accept, message, parts, departed) })
    }

    /// Adds it to inboxes. Returns the outcomes that are known before rows are evicted.
    fn keep(
        &mut self,
        place: usize,
        (num, id): (Num, NotificationId),
        accept: &'a Accept,
        devices: &[Found],
        unknown: u64,
    ) -> Vec<OutcomePart> {
        self.inboxes.put(place, num, accept.request.collapse_key.as_deref(), devices);
        let nums: Vec<_> = devices.iter().map(|device| DeviceNum(device.num as u64)).collect();
        let mut parts = Vec::new();
        if unknown > 0 {
            parts.push(OutcomePart::of_unknown(accept.app, id, accept.now, unknown));
            let part = Part::of(num, Outcome::Unknown, accept.now, Vec::new());
            self.parts.push(Part { count: unknown, ..part });
        }
        if !nums.is_empty() {
            parts.push(OutcomePart::of(accept.app, id, Outcome::Kept, accept.now, nums.clone()));
        }
        self.parts.push(Part::of(num, Outcome::Kept, accept.now, nums));
        parts
    }

    /// Records the devices that mute its category.
    fn mute(
        &mut self,
        (num, id): (Num, NotificationId),
        accept: &Accept,
        devices: Option<&Vec<DeviceNum>>,
    ) -> Option<OutcomePart> {
        let devices = devices?;
        self.parts.push(Part::of(num, Outcome::Muted, accept.now, devices.clone()));
        Some(OutcomePart::of(accept.app, id, Outcome::Muted, accept.now, devices.clone()))
    }

    /// Marks notifications of the group that a later one replaced in a topic's log.
    fn settle_replaced(&mut self) {
        for place in self.topics.replaced() {
            if let Ok(row) = self.places.binary_search(&place) {
                self.rows.standings[row] = Standing::Replaced as i64;
            }
        }
    }

    /// Adds the rows that left inboxes, once they are known.
    pub(super) fn note_removals(&mut self, group: &[&Accept], removals: Vec<InboxRemoval>, ids: &Ids) {
        for InboxRemoval { place, num, outcome, devices } in removals {
            let Accept { app, now, .. } = *group[place];
            if let Some(Ok(accepted)) = self.answers.get_mut(place) {
                let of = Some(Work::Notification(ids.id(num)));
                accepted.departed.add(app, of, outcome, now, &devices);
            }
            self.parts.push(Part::of(num, outcome, now, devices));
        }
    }
}

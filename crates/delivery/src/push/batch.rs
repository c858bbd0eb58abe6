//! One batch's way: who its recipients are now, what each gets, and what came of it.
//!
//! Runs as a task of its own, so a slow recipient delays the finish of this batch and nothing else. Reads
//! that fail are repeated; the lease is kept meanwhile.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use noroshi_push::{Answer, Content, Fields, Push, Reply};
use noroshi_store::{Batch, Finished, Lease, PushRecipient, Renewal, Work};
use noroshi_telemetry::span::Open;
use noroshi_types::trace::TraceId;
use noroshi_types::{AppId, CampaignId, DeviceNum, Outcome, PushService, PushToken, Timestamp, TraceContext};
use ring::digest;
use tokio::sync::{mpsc, watch};

use crate::campaign::plan::Plan;
use crate::campaign::progress::TOKEN_LOST;
use crate::delivery::Delivery;
use crate::push::finisher::{PAUSE_MAX, PAUSE_MIN, Ready};
use crate::push::flight::{Aboard, Held};
use crate::push::gather::Gather;
use crate::push::hygiene::{Rate, Realm};
use crate::push::settle::{Sent, Settle};
use crate::push::side::Side;
use crate::push::{lease, publication};
use crate::spans;
use crate::telling::subject;

/// So often a batch may fail its sender: a defect of ours, which another attempt meets again.
const FAILURES_MAX: u32 = 5;

/// Until an operator gives the right key, or adds the credential again.
const UNREADABLE_WAIT: Duration = Duration::from_secs(60);

/// What every batch's task needs.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) side: Arc<Side>,
    pub(crate) ready: mpsc::Sender<Ready>,
    pub(crate) drain: watch::Receiver<bool>,
}

/// A batch that was taken.
pub(crate) struct Leased {
    pub(crate) batch: Batch,
    pub(crate) aboard: Arc<Aboard>,
    pub(crate) held: Arc<Held>,
    pub(crate) taken: Instant,
    /// When its campaign's rate lets it go; it counts as dequeued then.
    pub(crate) turn: Option<Instant>,
}

/// What is rendered for the recipients.
enum Source {
    Notification { content: Arc<Content>, once: bool, trace: Option<TraceContext> },
    Campaign(Arc<Plan>),
}

impl Source {
    /// Of whose trace its work is a part.
    fn trace(&self) -> Option<TraceContext> {
        match self {
            Source::Notification { trace, .. } => *trace,
            Source::Campaign(plan) => plan.spec.trace,
        }
    }
}

/// What a look at the store found of a batch's work.
enum Found {
    Source(Source),
    /// It does not exist any more, and the batch is finished with that.
    Ended,
    /// The store is closed, or this version cannot read the work.
    Nothing,
}

/// A recipient that gets a push.
struct Due {
    token: PushToken,
    content: Arc<Content>,
    /// What the push service is told of the trace.
    trace: Option<TraceContext>,
}

impl Way {
    /// Takes the batch to its end. Dropped at any moment, it is sent again after its lease. One that fails the sender
    /// is tried again likewise, and set aside at last.
    pub(crate) async fn go(self, leased: Leased) {
        let (way, batch, held) = (self.clone(), leased.batch.clone(), leased.held.clone());
        // Nothing of what it used is used again: the batch is read anew.
        if AssertUnwindSafe(self.send(leased)).catch_unwind().await.is_ok() {
            return;
        }
        let failures = way.side.failures.count(batch.id);
        way.delivery.metrics.push.batches_failed.inc();
        tracing::error!(batch = batch.id.0, app = batch.app.0, failures, "the sender of a batch failed");
        match failures < FAILURES_MAX {
            true => way.end(&batch, &held),
            false => way.set_aside(&batch, &held).await,
        }
    }

    /// Nobody tries it again.
    async fn set_aside(&self, batch: &Batch, held: &Arc<Held>) {
        let recipients = batch.recipients.len();
        tracing::error!(
            batch = batch.id.0,
            app = batch.app.0,
            recipients,
            "a batch that no sender can send was set aside"
        );
        self.delivery.metrics.push.batches_set_aside.inc();
        self.finish_all(batch, held, Outcome::PushRefused, Some("sender_failed")).await;
    }

    async fn send(mut self, leased: Leased) {
        let Leased { batch, aboard, held, taken, turn } = leased;
        let since = turn.unwrap_or(taken).max(taken);
        if let Some(turn) = turn
            && !self.wait_for(turn).await
        {
            return self.give_up(&batch, &held);
        }
        let source = match self.source(&batch, &held).await {
            Found::Source(source) => source,
            Found::Ended => return,
            // A sender of another version may know what to do; given back, this one would take it again at once.
            Found::Nothing => {
                let lease = Lease { batch: batch.id, until: held.until() };
                lease::uncount(&self.delivery, &self.side, lease);
                return self.end(&batch, &held);
            }
        };
        let Some(recipients) = self.recipients(&batch).await else {
            return self.give_up(&batch, &held);
        };
        if !self.may_send(&held) {
            return self.give_up(&batch, &held);
        }
        match (&source, batch.service) {
            (Source::Campaign(plan), None) => {
                let finished = publication::publish(&self, &batch, plan, recipients).await;
                drop(aboard);
                self.finish(&batch, &held, finished, None).await;
            }
            _ => self.push(batch, &source, recipients, (aboard, held, since)).await,
        }
    }

    /// False if the node stops first.
    async fn wait_for(&mut self, turn: Instant) -> bool {
        tokio::select! {
            () = tokio::time::sleep_until(turn.into()) => true,
            _ = self.drain.wait_for(|draining| *draining) => false,
        }
    }

    /// Whether nobody else can be sending it. With a store of its own a node is alone, whatever became of the lease.
    fn may_send(&self, held: &Held) -> bool {
        !self.side.config.shared || held.is_ours()
    }

    /// Before anything of it was sent.
    fn give_up(&self, batch: &Batch, held: &Held) {
        self.end(batch, held);
        let lease = Lease { batch: batch.id, until: held.until() };
        lease::give_back(&self.delivery, lease, Renewal::Returned);
    }

    /// Leaves the batch to whoever takes it next.
    fn end(&self, batch: &Batch, held: &Held) {
        if held.is_lost() {
            self.delivery.metrics.push.batches_lost.inc();
        }
        lease::done(&self.side, self.side.flight.end(batch.id).into_iter().collect());
    }

    async fn push(
        &self,
        batch: Batch,
        source: &Source,
        recipients: Vec<PushRecipient>,
        (aboard, held, since): (Arc<Aboard>, Arc<Held>, Instant),
    ) {
        let now = self.delivery.clock.now();
        let mut settle = Settle::new(&batch);
        missing(&mut settle, &batch, &recipients);
        let (mut sent, mut due) = (Vec::new(), Vec::new());
        let mut stint = self.side.turns.begin().await;
        for recipient in recipients {
            stint.rest().await;
            if let Some((one, push)) = sort_out(&mut settle, &batch, source, recipient, now) {
                sent.push(one);
                due.push(push);
            }
        }
        drop(stint);
        let trace = source.trace().map(|context| context.trace);
        let span = spans::push(self.delivery.spans(), source.trace(), &batch, due.len());
        let calls = spans::calls(self.delivery.spans(), span.as_ref(), &batch, due.len());
        aboard.land(batch.recipients.len() - due.len());
        self.carry(&mut due, span.as_ref(), &calls, source.trace());
        let seconds = self.delivery.metrics.push.answered_seconds.clone();
        let gather = Arc::new(Gather::new(aboard, since, seconds, due.len(), calls));
        if !self.hand_over(&batch, &held, &sent, due, &gather, trace).await {
            return self.end(&batch, &held);
        }
        let (mut answers, latencies) = gather.complete().await;
        self.hold_unreadable(&sent, &mut answers);
        spans::pushed(span, &answers);
        let with = (&self.side.hygiene, self.side.config.backoff, self.delivery.clock.now());
        for (realm, rate) in settle.answers(&batch, &sent, answers, with) {
            self.tell(realm, rate);
        }
        self.finish(&batch, &held, settle.finish(latencies), trace).await;
    }

    /// What push services are told of the trace, where an operator wants that.
    fn carry(
        &self,
        due: &mut [Due],
        span: Option<&Open>,
        calls: &[Option<Open>],
        kept: Option<TraceContext>,
    ) {
        if !self.side.config.traceparent {
            return;
        }
        let whole = span.and_then(Open::context).or(kept);
        for (index, one) in due.iter_mut().enumerate() {
            let call = calls.get(index).and_then(|call| call.as_ref()?.context());
            one.trace = call.or(whole);
        }
    }

    /// A credential that is there and does not open is no reason to lose what it is for.
    fn hold_unreadable(&self, sent: &[Sent], answers: &mut [Answer]) {
        let unreadable = self.side.unreadable.lock();
        for (sent, answer) in sent.iter().zip(answers) {
            if *answer == Answer::Unconfigured && unreadable.contains(&sent.realm) {
                *answer = Answer::Later { reason: "credential_unreadable", after: UNREADABLE_WAIT };
            }
        }
    }

    /// False if the lease lapsed in between: then another sends all of it, and what was handed over is sent twice.
    async fn hand_over(
        &self,
        batch: &Batch,
        held: &Held,
        sent: &[Sent],
        due: Vec<Due>,
        gather: &Arc<Gather>,
        trace: Option<TraceId>,
    ) -> bool {
        let seed = match batch.work {
            Work::Notification(id) => *id.as_bytes(),
            Work::Campaign(id) => *id.as_bytes(),
        };
        // Web Push recipients are spread over origins: one without room holds up none of the others.
        let spread = batch.service == Some(PushService::WebPush);
        let mut waiting = FuturesUnordered::new();
        let (all, mut count, mut stint) = (sent, 0, self.side.turns.begin().await);
        for (index, (sent, Due { token, content, trace: told })) in (0..).zip(sent.iter().zip(due)) {
            stint.rest().await;
            if !self.may_send(held) {
                self.tell_sent(batch, &all[..count], trace);
                return false;
            }
            count += 1;
            let reply = Reply { to: gather.clone(), index };
            let id = push_id(&seed, sent.device);
            let push = Push {
                app: batch.app,
                lane: batch.lane,
                token,
                content,
                id,
                trace: told.map(Box::new),
                reply,
            };
            let mut send = self.side.outlet.send(push);
            match spread {
                true if futures_util::poll!(&mut send).is_pending() => waiting.push(send),
                true => {}
                false => stint.wait_for(send).await,
            }
        }
        drop(stint);
        while waiting.next().await.is_some() {}
        self.tell_sent(batch, sent, trace);
        true
    }

    fn tell_sent(&self, batch: &Batch, sent: &[Sent], trace: Option<TraceId>) {
        if let Some(service) = batch.service.filter(|_| !sent.is_empty()) {
            let devices = sent.iter().map(|sent| sent.device);
            self.delivery.push_sent(subject(batch.work), service, devices, trace);
        }
    }

    async fn finish(&self, batch: &Batch, held: &Arc<Held>, finished: Finished, trace: Option<TraceId>) {
        let again: usize = finished.again.iter().map(|again| again.recipients.len()).sum();
        let done = batch.recipients.len().saturating_sub(again) as u64;
        let done = batch.campaign.map(|campaign| (campaign, done));
        // Only closed when the node ends: then the batch is sent again by the next.
        let (of, service) = (subject(batch.work), batch.service);
        let ready = Ready { finished, of, service, trace, lane: batch.lane, done, held: held.clone() };
        if self.ready.send(ready).await.is_err() {
            self.side.flight.end(batch.id);
        }
    }

    async fn source(&self, batch: &Batch, held: &Arc<Held>) -> Found {
        match batch.work {
            Work::Notification(id) => {
                let Some(found) = self.read(|| self.delivery.store.push_content(batch.app, id)).await else {
                    return Found::Nothing;
                };
                let Some(found) = found else {
                    self.finish_all(batch, held, Outcome::Cancelled, None).await;
                    return Found::Ended;
                };
                let fields = Fields {
                    notification_id: Some(id),
                    notification: found.notification,
                    data: found.data,
                    urgency: found.urgency,
                    collapse_key: found.collapse_key,
                    expires_at: found.expires_at,
                    apns: found.push.apns,
                    fcm: found.push.fcm,
                    webpush: found.push.webpush,
                };
                let once = found.expires_at <= found.sent_at;
                let content = Arc::new(Content::new(fields));
                Found::Source(Source::Notification { content, once, trace: found.trace })
            }
            Work::Campaign(id) => {
                let plan = self.plan(batch.app, id).await;
                plan.map_or(Found::Nothing, |plan| Found::Source(Source::Campaign(plan)))
            }
        }
    }

    /// None: there is no such campaign any more, this version cannot read it, or the store is closed.
    pub(crate) async fn plan(&self, app: AppId, id: CampaignId) -> Option<Arc<Plan>> {
        if let Some(plan) = self.side.book.plan(id) {
            return Some(plan);
        }
        let now = self.delivery.clock.now();
        let campaign = self.read(|| self.delivery.store.campaign(app, id, now)).await??;
        self.side.book.plan_of(&campaign, now)
    }

    async fn recipients(&self, batch: &Batch) -> Option<Vec<PushRecipient>> {
        let devices = || batch.recipients.clone();
        self.read(|| self.delivery.store.push_recipients(batch.app, batch.work, batch.campaign, devices()))
            .await
    }

    async fn finish_all(
        &self,
        batch: &Batch,
        held: &Arc<Held>,
        outcome: Outcome,
        reason: Option<&'static str>,
    ) {
        let mut settle = Settle::new(batch);
        batch.recipients.iter().for_each(|device| settle.part(outcome, reason, *device));
        self.finish(batch, held, settle.finish(Vec::new()), None).await;
    }

    /// Reads until the store answers. None: it is closed.
    pub(crate) async fn read<T, F>(&self, read: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, noroshi_store::Error>>,
    {
        let mut pause = PAUSE_MIN;
        loop {
            match read().await {
                Ok(read) => return Some(read),
                Err(noroshi_store::Error::Closed) => return None,
                Err(error) => {
                    self.delivery.metrics.push.store_errors.inc();
                    tracing::warn!(%error, "a batch could not be read; trying again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn tell(&self, realm: Realm, rate: Rate) {
        let (app, service, environment) = realm;
        let (service, environment) = (service.as_str(), environment.as_str());
        match rate {
            Rate::Alarm { suspects, answers } => tracing::warn!(
                app = app.0,
                service,
                environment,
                suspects,
                answers,
                "so many push tokens are doubted that the credential or its environment must be wrong: none is set aside"
            ),
            Rate::Over => {
                tracing::info!(app = app.0, service, environment, "few push tokens are doubted again")
            }
            Rate::Normal | Rate::Abnormal => return,
        }
        self.delivery.metrics.push.alarm(realm, !rate.is_normal());
    }
}

/// Those of the batch that the store did not find: deleted, or another user's now.
pub(crate) fn missing(settle: &mut Settle, batch: &Batch, found: &[PushRecipient]) {
    for device in &batch.recipients {
        if found.binary_search_by_key(device, |recipient| recipient.num).is_err() {
            settle.part(Outcome::Unknown, None, *device);
        }
    }
}

/// A push for the recipient, or what becomes of it without one.
fn sort_out(
    settle: &mut Settle,
    batch: &Batch,
    source: &Source,
    recipient: PushRecipient,
    now: Timestamp,
) -> Option<(Sent, Due)> {
    let device = recipient.num;
    if recipient.suspect {
        settle.part(Outcome::PushTokenSuspect, None, device);
        return None;
    }
    if recipient.token.is_none() {
        settle.part(Outcome::NoPushToken, Some(TOKEN_LOST), device);
        return None;
    }
    let mut variant = None;
    let mut quiet = false;
    if let Source::Campaign(plan) = source {
        // Before anybody is drawn for: an abort meanwhile counts as many of each variant as chance made them.
        if let Some(until) = plan.quiet_until(&recipient.attributes, now) {
            if until < plan.expires_at(&recipient.attributes) {
                settle.again(until, batch.attempt, device);
                return None;
            }
            quiet = true;
        }
        variant = settle.variant(device, || plan.draw(&recipient));
    }
    let (content, once) = match source {
        Source::Notification { content, once, .. } => (content.clone(), *once),
        Source::Campaign(plan) if plan.holds_out(variant) => {
            settle.part(Outcome::HeldOut, None, device);
            return None;
        }
        Source::Campaign(plan) => match plan.content(&recipient, variant) {
            Ok(content) => (content, plan.spec.message.ttl.duration().is_zero()),
            Err(reason) => {
                settle.part(Outcome::PushRefused, Some(reason), device);
                return None;
            }
        },
    };
    let expires_at = content.fields().expires_at;
    // A ttl of nothing means now or never: the first attempt is now.
    let first_of_once = once && batch.attempt == 0;
    if expires_at <= now && !first_of_once {
        settle.part(Outcome::PushExpired, None, device);
        return None;
    }
    if quiet {
        settle.part(Outcome::PushExpired, Some("quiet_hours"), device);
        return None;
    }
    let token = recipient.token?;
    let realm = (batch.app, token.service, token.environment);
    Some((
        Sent { device, token_at: recipient.token_at, realm, expires_at },
        Due { token, content, trace: None },
    ))
}

/// The same for every attempt at a device with this work: a UUIDv8 (RFC 9562 §5.8) of a hash of both.
fn push_id(work: &[u8; 16], device: DeviceNum) -> uuid::Uuid {
    let mut text = [0; 24];
    text[..16].copy_from_slice(work);
    text[16..].copy_from_slice(&device.0.to_be_bytes());
    let hash = digest::digest(&digest::SHA256, &text);
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_ref()[..16]);
    uuid::Builder::from_custom_bytes(id).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use noroshi_store::VariantNum;
    use noroshi_types::{BatchId, Lane, Ttl, Urgency, UserId};

    use super::*;
    use crate::campaign::plan::tests::{MIDNIGHT, plan, recipient};
    use crate::campaign::trial::tests::trial;
    use crate::campaign::{LocalTime, QuietHours, Treatment, Trial};
    use crate::definition::experiment::tests::{experiment, label};

    fn batch(attempt: u32) -> Batch {
        Batch {
            id: BatchId(1),
            app: AppId(1),
            service: Some(PushService::Fcm),
            lane: Lane::Campaign,
            due_at: MIDNIGHT,
            attempt,
            work: Work::Campaign(CampaignId::from_bytes([1; 16])),
            campaign: None,
            variant: None,
            leased_until: MIDNIGHT,
            recipients: vec![DeviceNum(1)],
        }
    }

    /// Sent, or what became of the one recipient.
    fn sorted(
        source: &Source,
        attempt: u32,
        recipient: PushRecipient,
        now: Timestamp,
    ) -> Result<Sent, Box<Finished>> {
        sorted_of(&batch(attempt), source, recipient, now)
    }

    fn sorted_of(
        batch: &Batch,
        source: &Source,
        recipient: PushRecipient,
        now: Timestamp,
    ) -> Result<Sent, Box<Finished>> {
        let mut settle = Settle::new(batch);
        let sent = sort_out(&mut settle, batch, source, recipient, now);
        sent.map(|(sent, _)| sent).ok_or_else(|| Box::new(settle.finish(Vec::new())))
    }

    #[test]
    fn a_recipient_is_sent_or_it_is_said_why_not() {
        let hours = |hours: u64| MIDNIGHT.saturating_add(std::time::Duration::from_secs(hours * 3_600));
        let source = |urgency| {
            Source::Campaign(Arc::new(plan(|spec| {
                let clock = |text| LocalTime::parse(text).expect("a time");
                spec.quiet_hours = QuietHours::new(clock("22:00"), clock("07:00")).ok();
                spec.message.urgency = urgency;
            })))
        };
        let calm = source(Urgency::Normal);
        let refused =
            |finished: Result<Sent, Box<Finished>>| finished.expect_err("not sent").parts[0].outcome;
        assert!(sorted(&calm, 0, recipient(None, None), hours(8)).is_ok());
        assert!(sorted(&source(Urgency::High), 0, recipient(None, None), hours(23)).is_ok());
        // Quiet now: the same attempt again when the quiet hours end.
        let again = sorted(&calm, 3, recipient(None, None), hours(23)).expect_err("quiet").again;
        assert_eq!((again[0].due_at, again[0].attempt), (hours(31), 3));
        // What the night changes nothing of does not wait for the morning.
        for hour in [8, 23] {
            let no_token = PushRecipient { token: None, ..recipient(None, None) };
            assert_eq!(refused(sorted(&calm, 0, no_token, hours(hour))), Outcome::NoPushToken);
            let suspect = PushRecipient { suspect: true, ..recipient(None, None) };
            assert_eq!(refused(sorted(&calm, 0, suspect, hours(hour))), Outcome::PushTokenSuspect);
        }
        assert_eq!(refused(sorted(&calm, 0, recipient(None, None), hours(24 * 30))), Outcome::PushExpired);
    }

    #[test]
    fn who_rests_is_not_drawn_for() {
        let hours = |hours: u64| MIDNIGHT.saturating_add(std::time::Duration::from_secs(hours * 3_600));
        let source = |ttl_hours: u64| {
            Source::Campaign(Arc::new(plan(|spec| {
                let clock = |text| LocalTime::parse(text).expect("a time");
                spec.quiet_hours = QuietHours::new(clock("22:00"), clock("07:00")).ok();
                spec.message.ttl =
                    Ttl::new(std::time::Duration::from_secs(ttl_hours * 3_600)).expect("a ttl");
                let treatments = BTreeMap::from([(label("control"), Treatment::HoldOut)]);
                let mut definition = experiment();
                definition.users.insert(UserId::parse("u0").expect("a user"), label("control"));
                spec.trial = Some(Trial { treatments, definition: Some(definition), ..trial() });
            })))
        };
        let (long, short) = (source(48), source(24));
        let one = PushRecipient { user: UserId::parse("u0").ok(), ..recipient(None, None) };
        let finished = sorted(&long, 0, one.clone(), hours(23)).expect_err("quiet");
        assert_eq!((finished.parts.len(), finished.again[0].variant), (0, None), "not held out yet");
        let fate = |batch: &Batch, source, one: &PushRecipient, hour| {
            let finished = sorted_of(batch, source, one.clone(), hours(hour)).expect_err("not sent");
            let part = &finished.parts[0];
            (part.outcome, part.reason, part.variant)
        };
        let held = Some(VariantNum(1));
        assert_eq!(fate(&batch(0), &long, &one, 8), (Outcome::HeldOut, None, held));
        assert_eq!(
            fate(&batch(0), &short, &one, 23),
            (Outcome::HeldOut, None, held),
            "the last that is known"
        );
        let without = PushRecipient { token: None, ..one.clone() };
        let suspect = PushRecipient { suspect: true, ..one };
        for hour in [8, 23] {
            let lost = (Outcome::NoPushToken, Some(TOKEN_LOST), None);
            assert_eq!(fate(&batch(0), &long, &without, hour), lost);
            assert_eq!(fate(&batch(0), &long, &suspect, hour), (Outcome::PushTokenSuspect, None, None));
            // It was drawn for before, and stays targeted.
            let again = Batch { variant: held, ..batch(1) };
            assert_eq!(fate(&again, &long, &without, hour), (Outcome::NoPushToken, Some(TOKEN_LOST), held));
        }
    }

    #[test]
    fn a_push_has_the_same_id_at_every_attempt() {
        let id = |work: u8, device| push_id(&[work; 16], DeviceNum(device));
        assert_eq!(id(1, 1), id(1, 1));
        assert_ne!(id(1, 1), id(1, 2));
        assert_ne!(id(1, 1), id(2, 1));
        assert_eq!(id(1, 1).get_version_num(), 8);
    }
}

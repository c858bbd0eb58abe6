//! Sends one batch: reads its recipients, renders a push for each, and collects the outcomes.
//!
//! Each batch is a task of its own, so a slow recipient delays the end of this batch and nothing else. Failed reads are
//! repeated, while the lease is kept.

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

use super::answers::AnswerCollector;
use super::finisher::{PAUSE_MAX, PAUSE_MIN, Ready};
use super::in_flight::{Held, PendingRecipients};
use super::pipeline::Pipeline;
use super::settlement::{Sent, Settlement};
use super::token_health::{Rate, Realm};
use super::{lease, publication};
use crate::campaign::done::TOKEN_LOST;
use crate::campaign::plan::Plan;
use crate::outcomes::subject;
use crate::spans;

/// Panics of a batch before it is set aside: a defect that further attempts would meet again.
const FAILURES_MAX: u32 = 5;

/// The pause until the next attempt, while an operator provides the right key or adds the credential again.
const UNREADABLE_WAIT: Duration = Duration::from_secs(60);

/// Runs the task of a batch.
#[derive(Clone)]
pub(crate) struct BatchRunner {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) ready: mpsc::Sender<Ready>,
    pub(crate) drain: watch::Receiver<bool>,
}

/// A batch with its lease.
pub(crate) struct LeasedBatch {
    pub(crate) batch: Batch,
    pub(crate) recipients: Arc<PendingRecipients>,
    pub(crate) held: Arc<Held>,
    pub(crate) taken: Instant,
    /// When the rate of its campaign allows it. Latencies count from then.
    pub(crate) turn: Option<Instant>,
}

/// The source of the content.
enum Source {
    Notification { content: Arc<Content>, once: bool, trace: Option<TraceContext> },
    Campaign(Arc<Plan>),
}

impl Source {
    /// The trace that the work belongs to.
    fn trace(&self) -> Option<TraceContext> {
        match self {
            Source::Notification { trace, .. } => *trace,
            Source::Campaign(plan) => plan.spec.trace,
        }
    }
}

/// The work of a batch in the store.
enum Found {
    Source(Source),
    /// The work was deleted, and the batch is finished.
    Ended,
    /// The store is closed, or this version cannot read the work.
    Nothing,
}

/// A push for one recipient.
struct Due {
    token: PushToken,
    content: Arc<Content>,
    /// The trace context for the push service.
    trace: Option<TraceContext>,
}

impl BatchRunner {
    /// Sends the batch to its end. Dropped at any moment, it is sent again after its lease. A batch that panics is also
    /// retried, and finally set aside.
    pub(crate) async fn run(self, leased: LeasedBatch) {
        let (runner, batch, held) = (self.clone(), leased.batch.clone(), leased.held.clone());
        // Nothing that it used is used again: the next attempt reads the batch anew.
        if AssertUnwindSafe(self.send(leased)).catch_unwind().await.is_ok() {
            return;
        }
        let failures = runner.pipeline.failures.count(batch.id);
        runner.pipeline.metrics.batches_failed.inc();
        tracing::error!(batch = batch.id.0, app = batch.app.0, failures, "sending a batch panicked");
        match failures < FAILURES_MAX {
            true => runner.end(&batch, &held),
            false => runner.set_aside(&batch, &held).await,
        }
    }

    /// Refuses all recipients of a batch that no sender can send.
    async fn set_aside(&self, batch: &Batch, held: &Arc<Held>) {
        let recipients = batch.recipients.len();
        tracing::error!(
            batch = batch.id.0,
            app = batch.app.0,
            recipients,
            "set aside a batch that no sender can send"
        );
        self.pipeline.metrics.batches_set_aside.inc();
        self.finish_all(batch, held, Outcome::PushRefused, Some("sender_failed")).await;
    }

    async fn send(mut self, leased: LeasedBatch) {
        let LeasedBatch { batch, recipients: pending, held, taken, turn } = leased;
        let since = turn.unwrap_or(taken).max(taken);
        if let Some(turn) = turn
            && !self.wait_for(turn).await
        {
            return self.give_up(&batch, &held);
        }
        let source = match self.source(&batch, &held).await {
            Found::Source(source) => source,
            Found::Ended => return,
            // A sender of another version may know the work. Freed at once, this node would take it again.
            Found::Nothing => {
                let lease = Lease { batch: batch.id, until: held.until() };
                lease::uncount(&self.pipeline, lease);
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
                let finished = publication::publish(&self.pipeline, &batch, plan, recipients).await;
                drop(pending);
                self.finish(&batch, &held, finished, None).await;
            }
            _ => self.push(batch, &source, recipients, (pending, held, since)).await,
        }
    }

    /// Returns false if the node stops first.
    async fn wait_for(&mut self, turn: Instant) -> bool {
        tokio::select! {
            () = tokio::time::sleep_until(turn.into()) => true,
            _ = self.drain.wait_for(|draining| *draining) => false,
        }
    }

    /// Whether no other node can be sending the batch. A node with a store of its own ignores the lease.
    fn may_send(&self, held: &Held) -> bool {
        !self.pipeline.config.shared || held.is_ours()
    }

    /// Frees the batch before anything was sent.
    fn give_up(&self, batch: &Batch, held: &Held) {
        self.end(batch, held);
        let lease = Lease { batch: batch.id, until: held.until() };
        lease::give_back(&self.pipeline, lease, Renewal::Returned);
    }

    /// Leaves the batch to the next take.
    fn end(&self, batch: &Batch, held: &Held) {
        if held.is_lost() {
            self.pipeline.metrics.batches_lost.inc();
        }
        lease::done(&self.pipeline, self.pipeline.in_flight.end(batch.id).into_iter().collect());
    }

    async fn push(
        &self,
        batch: Batch,
        source: &Source,
        recipients: Vec<PushRecipient>,
        (pending, held, since): (Arc<PendingRecipients>, Arc<Held>, Instant),
    ) {
        let now = self.pipeline.context.now();
        let mut settlement = Settlement::new(&batch);
        settlement.missing(&batch, &recipients);
        let (mut sent, mut due) = (Vec::new(), Vec::new());
        let mut slot = self.pipeline.compute.acquire().await;
        for recipient in recipients {
            slot.yield_if_used().await;
            if let Some((one, push)) = prepare(&mut settlement, &batch, source, recipient, now) {
                sent.push(one);
                due.push(push);
            }
        }
        drop(slot);
        let trace = source.trace().map(|context| context.trace);
        let span = spans::push(self.pipeline.context.spans(), source.trace(), &batch, due.len());
        let calls = spans::calls(self.pipeline.context.spans(), span.as_ref(), &batch, due.len());
        pending.remove(batch.recipients.len() - due.len());
        self.add_trace(&mut due, span.as_ref(), &calls, source.trace());
        let seconds = self.pipeline.metrics.answered_seconds.clone();
        let collector = Arc::new(AnswerCollector::new(pending, since, seconds, due.len(), calls));
        if !self.hand_over(&batch, &held, &sent, due, &collector, trace).await {
            return self.end(&batch, &held);
        }
        let (mut answers, latencies) = collector.complete().await;
        self.hold_unreadable(&sent, &mut answers);
        spans::pushed(span, &answers);
        let with = (&self.pipeline.token_health, self.pipeline.config.backoff, self.pipeline.context.now());
        for (realm, rate) in settlement.answers(&batch, &sent, answers, with) {
            self.report_rate(realm, rate);
        }
        self.finish(&batch, &held, settlement.finish(latencies), trace).await;
    }

    /// Adds trace contexts for push services, if configured.
    fn add_trace(
        &self,
        due: &mut [Due],
        span: Option<&Open>,
        calls: &[Option<Open>],
        kept: Option<TraceContext>,
    ) {
        if !self.pipeline.config.traceparent {
            return;
        }
        let whole = span.and_then(Open::context).or(kept);
        for (index, one) in due.iter_mut().enumerate() {
            let call = calls.get(index).and_then(|call| call.as_ref()?.context());
            one.trace = call.or(whole);
        }
    }

    /// Retries pushes whose credential exists but cannot be opened.
    fn hold_unreadable(&self, sent: &[Sent], answers: &mut [Answer]) {
        let unreadable = self.pipeline.credentials.unreadable.lock();
        for (sent, answer) in sent.iter().zip(answers) {
            if *answer == Answer::Unconfigured && unreadable.contains(&sent.realm) {
                *answer = Answer::Later { reason: "credential_unreadable", after: UNREADABLE_WAIT };
            }
        }
    }

    /// Returns false if the lease expired meanwhile: then another node sends the whole batch, and the pushes that were
    /// handed over are sent twice.
    async fn hand_over(
        &self,
        batch: &Batch,
        held: &Held,
        sent: &[Sent],
        due: Vec<Due>,
        collector: &Arc<AnswerCollector>,
        trace: Option<TraceId>,
    ) -> bool {
        let seed = match batch.work {
            Work::Notification(id) => *id.as_bytes(),
            Work::Campaign(id) => *id.as_bytes(),
        };
        // Web Push recipients have different origins: one without room delays none of the others.
        let spread = batch.service == Some(PushService::WebPush);
        let mut waiting = FuturesUnordered::new();
        let (all, mut count, mut slot) = (sent, 0, self.pipeline.compute.acquire().await);
        for (index, (sent, Due { token, content, trace: context })) in (0..).zip(sent.iter().zip(due)) {
            slot.yield_if_used().await;
            if !self.may_send(held) {
                self.report_sent(batch, &all[..count], trace);
                return false;
            }
            count += 1;
            let reply = Reply { to: collector.clone(), index };
            let id = push_id(&seed, sent.device);
            let push = Push {
                app: batch.app,
                lane: batch.lane,
                token,
                content,
                id,
                trace: context.map(Box::new),
                reply,
            };
            let mut send = self.pipeline.outlet.send(push);
            match spread {
                true if futures_util::poll!(&mut send).is_pending() => waiting.push(send),
                true => {}
                false => slot.release_while(send).await,
            }
        }
        drop(slot);
        while waiting.next().await.is_some() {}
        self.report_sent(batch, sent, trace);
        true
    }

    fn report_sent(&self, batch: &Batch, sent: &[Sent], trace: Option<TraceId>) {
        if let Some(service) = batch.service.filter(|_| !sent.is_empty()) {
            let devices = sent.iter().map(|sent| sent.device);
            self.pipeline.context.outcomes.push_sent(subject(batch.work), service, devices, trace);
        }
    }

    async fn finish(&self, batch: &Batch, held: &Arc<Held>, finished: Finished, trace: Option<TraceId>) {
        let again: usize = finished.again.iter().map(|again| again.recipients.len()).sum();
        let done = batch.recipients.len().saturating_sub(again) as u64;
        let done = batch.campaign.map(|campaign| (campaign, done));
        // Closed only when the node stops: the batch is sent again after its next start.
        let (of, service) = (subject(batch.work), batch.service);
        let ready = Ready { finished, of, service, trace, lane: batch.lane, done, held: held.clone() };
        if self.ready.send(ready).await.is_err() {
            self.pipeline.in_flight.end(batch.id);
        }
    }

    async fn source(&self, batch: &Batch, held: &Arc<Held>) -> Found {
        match batch.work {
            Work::Notification(id) => {
                let Some(found) = self.read(|| self.pipeline.context.store.push_content(batch.app, id)).await
                else {
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

    /// `None`: the campaign was deleted, this version cannot read it, or the store is closed.
    pub(crate) async fn plan(&self, app: AppId, id: CampaignId) -> Option<Arc<Plan>> {
        if let Some(plan) = self.pipeline.campaigns.tracker.plan(id) {
            return Some(plan);
        }
        let now = self.pipeline.context.now();
        let campaign = self.read(|| self.pipeline.context.store.campaign(app, id, now)).await??;
        self.pipeline.campaigns.tracker.plan_of(&campaign, now)
    }

    async fn recipients(&self, batch: &Batch) -> Option<Vec<PushRecipient>> {
        let devices = || batch.recipients.clone();
        self.read(|| {
            self.pipeline.context.store.push_recipients(batch.app, batch.work, batch.campaign, devices())
        })
        .await
    }

    async fn finish_all(
        &self,
        batch: &Batch,
        held: &Arc<Held>,
        outcome: Outcome,
        reason: Option<&'static str>,
    ) {
        let mut settlement = Settlement::new(batch);
        batch.recipients.iter().for_each(|device| settlement.part(outcome, reason, *device));
        self.finish(batch, held, settlement.finish(Vec::new()), None).await;
    }

    /// Repeats a read until the store answers. `None`: the store is closed.
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
                    self.pipeline.metrics.store_errors.inc();
                    tracing::warn!(%error, "could not read a batch; retrying");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn report_rate(&self, realm: Realm, rate: Rate) {
        let (app, service, environment) = realm;
        let (service, environment) = (service.as_str(), environment.as_str());
        match rate {
            Rate::Alarm { suspects, answers } => tracing::warn!(
                app = app.0,
                service,
                environment,
                suspects,
                answers,
                "too many push tokens are suspect: the credential or its environment must be wrong, so none is set aside"
            ),
            Rate::Over => {
                tracing::info!(
                    app = app.0,
                    service,
                    environment,
                    "the rate of suspect push tokens is normal again"
                )
            }
            Rate::Normal | Rate::Abnormal => return,
        }
        self.pipeline.metrics.alarm(realm, !rate.is_normal());
    }
}

/// The push for a recipient. Without one, adds the outcome to `settlement`.
fn prepare(
    settlement: &mut Settlement,
    batch: &Batch,
    source: &Source,
    recipient: PushRecipient,
    now: Timestamp,
) -> Option<(Sent, Due)> {
    let device = recipient.num;
    if recipient.suspect {
        settlement.part(Outcome::PushTokenSuspect, None, device);
        return None;
    }
    if recipient.token.is_none() {
        settlement.part(Outcome::NoPushToken, Some(TOKEN_LOST), device);
        return None;
    }
    let mut variant = None;
    let mut quiet = false;
    if let Source::Campaign(plan) = source {
        // Before the draw: an abort during quiet hours must not change the proportions of the variants.
        if let Some(until) = plan.quiet_until(&recipient.attributes, now) {
            if until < plan.expires_at(&recipient.attributes) {
                settlement.again(until, batch.attempt, device);
                return None;
            }
            quiet = true;
        }
        variant = settlement.variant(device, || plan.draw(&recipient));
    }
    let (content, once) = match source {
        Source::Notification { content, once, .. } => (content.clone(), *once),
        Source::Campaign(plan) if plan.holds_out(variant) => {
            settlement.part(Outcome::HeldOut, None, device);
            return None;
        }
        Source::Campaign(plan) => match plan.content(&recipient, variant) {
            Ok(content) => (content, plan.spec.message.ttl.duration().is_zero()),
            Err(reason) => {
                settlement.part(Outcome::PushRefused, Some(reason), device);
                return None;
            }
        },
    };
    let expires_at = content.fields().expires_at;
    // A ttl of zero means now or never, and the first attempt is now.
    let first_of_once = once && batch.attempt == 0;
    if expires_at <= now && !first_of_once {
        settlement.part(Outcome::PushExpired, None, device);
        return None;
    }
    if quiet {
        settlement.part(Outcome::PushExpired, Some("quiet_hours"), device);
        return None;
    }
    let token = recipient.token?;
    let realm = (batch.app, token.service, token.environment);
    Some((
        Sent { device, token_at: recipient.token_at, realm, expires_at },
        Due { token, content, trace: None },
    ))
}

/// The same id for every attempt: a UUIDv8 (RFC 9562 §5.8) of a hash of the work and the device.
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

    /// The push, or the outcome of the one recipient.
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
        let mut settlement = Settlement::new(batch);
        let sent = prepare(&mut settlement, batch, source, recipient, now);
        sent.map(|(sent, _)| sent).ok_or_else(|| Box::new(settlement.finish(Vec::new())))
    }

    #[test]
    fn a_recipient_gets_a_push_or_an_outcome() {
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
        // Outcomes that do not depend on the time do not wait for the morning.
        for hour in [8, 23] {
            let no_token = PushRecipient { token: None, ..recipient(None, None) };
            assert_eq!(refused(sorted(&calm, 0, no_token, hours(hour))), Outcome::NoPushToken);
            let suspect = PushRecipient { suspect: true, ..recipient(None, None) };
            assert_eq!(refused(sorted(&calm, 0, suspect, hours(hour))), Outcome::PushTokenSuspect);
        }
        assert_eq!(refused(sorted(&calm, 0, recipient(None, None), hours(24 * 30))), Outcome::PushExpired);
    }

    #[test]
    fn no_variant_is_drawn_during_quiet_hours() {
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
            "decided at the last possible time"
        );
        let without = PushRecipient { token: None, ..one.clone() };
        let suspect = PushRecipient { suspect: true, ..one };
        for hour in [8, 23] {
            let lost = (Outcome::NoPushToken, Some(TOKEN_LOST), None);
            assert_eq!(fate(&batch(0), &long, &without, hour), lost);
            assert_eq!(fate(&batch(0), &long, &suspect, hour), (Outcome::PushTokenSuspect, None, None));
            // An earlier attempt drew a variant, so the device stays targeted.
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

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
use noroshi_types::{AppId, CampaignId, Outcome, PushService, TraceContext};
use tokio::sync::{mpsc, watch};

use super::answers::AnswerCollector;
use super::finisher::{BatchResult, PAUSE_MAX, PAUSE_MIN};
use super::in_flight::{BatchLease, PendingRecipients};
use super::pipeline::Pipeline;
use super::recipient::{DuePush, Source, prepare, push_id};
use super::settlement::{Sent, Settlement};
use super::token_health::{Rate, Realm};
use super::{lease, publication};
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
    pub(crate) ready: mpsc::Sender<BatchResult>,
    pub(crate) drain: watch::Receiver<bool>,
}

/// A batch with its lease.
pub(crate) struct LeasedBatch {
    pub(crate) batch: Batch,
    pub(crate) recipients: Arc<PendingRecipients>,
    pub(crate) held: Arc<BatchLease>,
    pub(crate) taken: Instant,
    /// When the rate of its campaign allows it. Latencies count from then.
    pub(crate) turn: Option<Instant>,
}

/// The work of a batch in the store.
enum FoundWork {
    Source(Source),
    /// The work was deleted, and the batch is finished.
    Ended,
    /// The store is closed, or this version cannot read the work.
    Nothing,
}

impl BatchRunner {
    /// Sends the batch to its end. Dropped at any moment, it is sent again after its lease. A batch that panics is also
    /// retried, and finally set aside.
    pub(crate) async fn run(self, leased: LeasedBatch) {
        let (runner, batch, held) = (self.clone(), leased.batch.clone(), leased.held.clone());
        // The next attempt reads the batch again and reuses nothing of this one.
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
    async fn set_aside(&self, batch: &Batch, held: &Arc<BatchLease>) {
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
            FoundWork::Source(source) => source,
            FoundWork::Ended => return,
            // A sender of another version may know the work. Freed at once, this node would take it again.
            FoundWork::Nothing => {
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
    fn may_send(&self, held: &BatchLease) -> bool {
        !self.pipeline.config.shared || held.is_ours()
    }

    /// Frees the batch before anything was sent.
    fn give_up(&self, batch: &Batch, held: &BatchLease) {
        self.end(batch, held);
        let lease = Lease { batch: batch.id, until: held.until() };
        lease::give_back(&self.pipeline, lease, Renewal::Returned);
    }

    /// Leaves the batch to the next take.
    fn end(&self, batch: &Batch, held: &BatchLease) {
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
        (pending, held, since): (Arc<PendingRecipients>, Arc<BatchLease>, Instant),
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
        due: &mut [DuePush],
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
        held: &BatchLease,
        sent: &[Sent],
        due: Vec<DuePush>,
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
        for (index, (sent, DuePush { token, content, trace: context })) in (0..).zip(sent.iter().zip(due)) {
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

    async fn finish(
        &self,
        batch: &Batch,
        held: &Arc<BatchLease>,
        finished: Finished,
        trace: Option<TraceId>,
    ) {
        let again: usize = finished.again.iter().map(|again| again.recipients.len()).sum();
        let done = batch.recipients.len().saturating_sub(again) as u64;
        let done = batch.campaign.map(|campaign| (campaign, done));
        // Closed only when the node stops: the batch is sent again after its next start.
        let (of, service) = (subject(batch.work), batch.service);
        let ready = BatchResult { finished, of, service, trace, lane: batch.lane, done, held: held.clone() };
        if self.ready.send(ready).await.is_err() {
            self.pipeline.in_flight.end(batch.id);
        }
    }

    async fn source(&self, batch: &Batch, held: &Arc<BatchLease>) -> FoundWork {
        match batch.work {
            Work::Notification(id) => {
                let Some(found) = self.read(|| self.pipeline.context.store.push_content(batch.app, id)).await
                else {
                    return FoundWork::Nothing;
                };
                let Some(found) = found else {
                    self.finish_all(batch, held, Outcome::Cancelled, None).await;
                    return FoundWork::Ended;
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
                FoundWork::Source(Source::Notification { content, once, trace: found.trace })
            }
            Work::Campaign(id) => {
                let plan = self.plan(batch.app, id).await;
                plan.map_or(FoundWork::Nothing, |plan| FoundWork::Source(Source::Campaign(plan)))
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
        held: &Arc<BatchLease>,
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
                "too many push tokens are suspect: the credential or its environment must be wrong, so none is suspended"
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

//! Sends one batch: reads its recipients, renders a push for each, and collects the outcomes.
//!
//! Each batch is a task of its own, so a slow recipient delays the end of this batch and nothing else. Failed reads are
//! repeated, while the lease is kept.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use noroshi_push::{Answer, Attempt, Content, Details, Fields, Push, Reply};
use noroshi_store::{Batch, Counted, Finished, Lease, PushRecipient, PushRecord, Renewal, Rest, Work};
use noroshi_telemetry::span::Open;
use noroshi_types::trace::TraceId;
use noroshi_types::{AppId, CampaignId, DeviceNum, Outcome, TokenKey, TraceContext};
use tokio::sync::{mpsc, oneshot, watch};

use super::answers::AnswerCollector;
use super::finisher::{BatchResult, PAUSE_MAX, PAUSE_MIN};
use super::in_flight::{BatchLease, PendingRecipients};
use super::pipeline::Pipeline;
use super::recipient::{DuePush, NotificationSource, Source, prepare, push_id};
use super::settlement::{Sent, Settlement};
use super::{badge, lease, publication};
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
        let recipients = held.unwritten(batch).len();
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
            (Source::Campaign(plan, _), None) => {
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
        let counted = self.count_for_caps(&mut settlement, &mut sent, &mut due).await;
        if counted.is_none() || self.count_unread(batch.app, &mut due).await.is_none() {
            return self.give_up(&batch, &held);
        }
        let trace = source.trace().map(|context| context.trace);
        let span = spans::push(self.pipeline.context.spans(), source.trace(), &batch, due.len());
        let calls = spans::calls(self.pipeline.context.spans(), span.as_ref(), &batch, due.len());
        pending.remove(batch.recipients.len() - due.len());
        self.add_trace(&mut due, span.as_ref(), &calls, source.trace());
        let seconds = self.pipeline.metrics.answered_seconds.clone();
        let unwritten = self.pipeline.unwritten.clone();
        let collector =
            Arc::new(AnswerCollector::new(pending, (since, seconds), unwritten, due.len(), calls));
        let hand_over = async {
            let all = self.hand_over((&batch, source), &held, &sent, due, &collector).await;
            if !all {
                collector.give_up();
            }
            all
        };
        let parts = self.write_parts((&batch, &held), &sent, &settlement, &collector, trace);
        let (all, written) = tokio::join!(hand_over, parts);
        if !all {
            return self.end(&batch, &held);
        }
        let (mut answers, latencies) = collector.take();
        self.hold_unreadable(&sent, &mut answers);
        spans::pushed(span, &answers);
        let with = (&self.pipeline.token_health, self.pipeline.config.backoff, self.pipeline.context.now());
        for (realm, rate) in settlement.answers(&batch, &sent, (answers, &written), with) {
            self.pipeline.report_rate(realm, rate);
        }
        let mut finished = settlement.finish(latencies);
        finished.record = self.record(&sent, &collector).await;
        self.finish(&batch, &held, finished, trace).await;
    }

    /// The row of the attempts that no part has.
    async fn record(&self, sent: &[Sent], collector: &AnswerCollector) -> Option<Box<PushRecord>> {
        let attempts = collector.take_attempts();
        if attempts.is_empty() {
            return None;
        }
        let of = |(index, attempt): (u32, Attempt)| Some((sent.get(index as usize)?.device, attempt));
        let attempts: Vec<_> = attempts.into_iter().filter_map(of).collect();
        let _slot = self.pipeline.compute.acquire().await;
        self.pipeline.config.recording.row(&attempts, self.pipeline.context.now())
    }

    /// Writes accepted pushes while others have no answer yet, so that a killed process repeats few. Returns which of
    /// `sent` are written, after the last answer. Parts have accepted pushes only: suspect tokens are judged together,
    /// and recipients to retry stay one row.
    async fn write_parts(
        &self,
        (batch, held): (&Batch, &Arc<BatchLease>),
        sent: &[Sent],
        settlement: &Settlement,
        collector: &AnswerCollector,
        trace: Option<TraceId>,
    ) -> Vec<bool> {
        let mut written = vec![false; sent.len()];
        let mut recipients = batch.recipients.clone();
        while let Some(part) = collector.part().await {
            let of = |index: &u32| sent.get(*index as usize).map(|sent| sent.device);
            let mut devices: Vec<DeviceNum> = part.iter().filter_map(of).collect();
            devices.sort_unstable();
            let mut left = recipients.clone();
            left.retain(|device| devices.binary_search(device).is_err());
            held.wrote(&devices);
            let rest = Rest { leased_until: held.until(), recipients: left.clone() };
            let (done, was_written) = oneshot::channel();
            let count = batch.campaign.map(|campaign| (campaign, devices.len() as u64));
            let mut finished = settlement.accepted(&devices, rest);
            finished.record = self.record(sent, collector).await;
            self.ready(batch, held, finished, trace, count, Some(done)).await;
            if was_written.await.is_err() {
                // The lease is lost, or the node stops.
                collector.complete().await;
                break;
            }
            recipients = left;
            part.iter().for_each(|index| written[*index as usize] = true);
        }
        written
    }

    /// Drops pushes that exceed a daily cap. A later attempt counts as the first one. `None`: the store is closed.
    async fn count_for_caps(
        &self,
        settlement: &mut Settlement,
        sent: &mut Vec<Sent>,
        due: &mut Vec<DuePush>,
    ) -> Option<()> {
        let counted: Vec<Counted> = due.iter().filter_map(|push| push.cap.clone()).collect();
        if counted.is_empty() {
            return Some(());
        }
        let store = &self.pipeline.context.store;
        let mut fits = self.read(|| store.count_for_caps(counted.clone())).await?.into_iter();
        let all = std::mem::take(sent).into_iter().zip(std::mem::take(due));
        for (one, push) in all {
            // An answer for each that was asked.
            if push.cap.is_some() && !fits.next().unwrap_or(true) {
                settlement.part(Outcome::PushCapped, None, one.device);
                continue;
            }
            sent.push(one);
            due.push(push);
        }
        Some(())
    }

    /// Sets the badges that count unread items, with one read for all users. `None`: the store is closed.
    async fn count_unread(&self, app: AppId, due: &mut [DuePush]) -> Option<()> {
        let users = badge::users(due);
        if !users.is_empty() {
            let (store, now) = (&self.pipeline.context.store, self.pipeline.context.now());
            let counts = self.read(|| store.item_counts(app, users.clone(), now)).await?;
            badge::render(due, &users.iter().zip(counts.iter().map(|counts| counts.total)).collect());
        }
        Some(())
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
        (batch, source): (&Batch, &Source),
        held: &BatchLease,
        sent: &[Sent],
        due: Vec<DuePush>,
        collector: &Arc<AnswerCollector>,
    ) -> bool {
        let trace = source.trace().map(|context| context.trace);
        let names_recipients = source.names_recipients();
        let seed = match batch.work {
            Work::Notification(id) => *id.as_bytes(),
            Work::Campaign(id) => *id.as_bytes(),
        };
        // Such recipients have different servers or providers: one without room delays none of the others.
        let spread = batch.service.is_some_and(noroshi_push::has_many_pools);
        let mut waiting = FuturesUnordered::new();
        let (all, mut count, mut slot) = (sent, 0, self.pipeline.compute.acquire().await);
        for (index, (sent, DuePush { token, recipient, content, trace: context, .. })) in
            (0..).zip(sent.iter().zip(due))
        {
            slot.yield_if_used().await;
            if !self.may_send(held) {
                self.report_sent(batch, &all[..count], trace);
                return false;
            }
            count += 1;
            let reply = Reply { to: collector.clone(), index };
            let id = push_id(&seed, sent.device);
            let details = (context.is_some() || recipient.is_some())
                .then(|| Box::new(Details { trace: context, recipient }));
            let record = self.pipeline.config.recording.of(names_recipients, &id);
            let push = Push { app: batch.app, lane: batch.lane, token, content, id, details, record, reply };
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
            let of = (batch.app, subject(batch.work));
            self.pipeline.context.outcomes.push_sent(of, service, devices, trace);
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
        let done = batch.recipients.len().saturating_sub(again + held.written_count()) as u64;
        let done = batch.campaign.map(|campaign| (campaign, done));
        if !self.ready(batch, held, finished, trace, done, None).await {
            self.pipeline.in_flight.end(batch.id);
        }
    }

    /// Hands results to the finisher. Returns false only when the node stops: the batch is sent again after its next
    /// start.
    async fn ready(
        &self,
        batch: &Batch,
        held: &Arc<BatchLease>,
        finished: Finished,
        trace: Option<TraceId>,
        done: Option<(CampaignId, u64)>,
        written: Option<oneshot::Sender<()>>,
    ) -> bool {
        let (of, service, lane, held) = (subject(batch.work), batch.service, batch.lane, held.clone());
        let ready = BatchResult { finished, app: batch.app, written, of, service, trace, lane, done, held };
        self.ready.send(ready).await.is_ok()
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
                let kind = found.push.token.as_ref().map(TokenKey::kind);
                let fields = Fields {
                    notification_id: Some(id),
                    notification: found.notification,
                    data: found.data,
                    urgency: found.urgency,
                    collapse_key: found.collapse_key,
                    expires_at: found.expires_at,
                    unread: None,
                    kind,
                    own: found.push.own,
                };
                let once = found.expires_at <= found.sent_at;
                let content = Arc::new(Content::new(fields));
                FoundWork::Source(Source::Notification(NotificationSource {
                    content,
                    once,
                    sent_at: found.sent_at,
                    trace: found.trace,
                    names_recipients: found.names_recipients,
                    fallback: found.fallback,
                    topic: found.topic,
                    category: found.category,
                }))
            }
            Work::Campaign(id) => {
                let Some(plan) = self.plan(batch.app, id).await else { return FoundWork::Nothing };
                let category = plan.spec.message.category.clone();
                let category = category.map(|name| self.pipeline.context.category(batch.app, name));
                FoundWork::Source(Source::Campaign(plan, category))
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
            let token = batch.token.clone();
            let store = &self.pipeline.context.store;
            store.push_recipients(batch.app, batch.work, batch.campaign, token, devices())
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
        // A part has results of the others.
        held.unwritten(batch).into_iter().for_each(|device| settlement.part(outcome, reason, device));
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
}

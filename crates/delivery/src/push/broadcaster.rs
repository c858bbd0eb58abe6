//! Sends broadcasts to channels: takes the first of each channel, hands it to the pools, and writes the result.
//!
//! A queue and a task of their own: a broadcast has no device, and older programs that share the store must not take it. It
//! shares connections, breaker and provider tokens with pushes, because it goes through the same pools.
//!
//! Each attempt carries the same `apns-request-id`. A broadcast whose result was not written is sent again: after a crash
//! that concerns at most [`IN_FLIGHT_MAX`].

use std::sync::Arc;
use std::time::Duration;

use noroshi_push::{Answer, Answered, Attempt, Content, Push, Reply, ToChannel};
use noroshi_store::{DueBroadcast, FinishedBroadcast, PushRecord, Then};
use noroshi_types::{BroadcastState, JsonText, Lane, PushService, PushToken, StoragePolicy, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::finisher::{PAUSE_MAX, PAUSE_MIN};
use super::pipeline::Pipeline;

/// Broadcasts without a written result: APNs answers within some 100 ms, so these are hundreds per second.
const IN_FLIGHT_MAX: usize = 128;
/// Channels that one commit leases: some statements each.
const TAKE_MAX: usize = 32;
/// Results in one commit.
const COMMIT_MAX: usize = 32;
/// Results of answers that arrive this close together share a commit.
const GATHER: Duration = Duration::from_millis(5);
/// How often the leader counts channels for the gauges.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// The pause until the next attempt, while an operator provides the right key or adds the credential again.
const UNREADABLE_WAIT: Duration = Duration::from_secs(60);

/// Runs until `drain` is true, then gives broadcasts in flight time until the deadline. The rest is sent again.
pub(crate) async fn run(pipeline: Arc<Pipeline>, mut drain: watch::Receiver<bool>) {
    let mut draining = drain.clone();
    let (results, ready) = mpsc::channel(IN_FLIGHT_MAX);
    let mut broadcaster = Broadcaster { pipeline: pipeline.clone(), results, tasks: JoinSet::new() };
    let take = async {
        tokio::select! {
            _ = drain.wait_for(|draining| *draining) => {}
            () = broadcaster.take_forever() => {}
        }
        while broadcaster.tasks.join_next().await.is_some() {}
        drop(broadcaster);
    };
    let both = async { tokio::join!(take, write_forever(&pipeline, ready)) };
    let deadline = async {
        let _ = draining.wait_for(|draining| *draining).await;
        tokio::time::sleep(pipeline.config.drain).await;
    };
    tokio::select! {
        _ = both => {}
        () = deadline => {}
    }
}

struct Broadcaster {
    pipeline: Arc<Pipeline>,
    results: mpsc::Sender<FinishedBroadcast>,
    /// One for each broadcast in flight.
    tasks: JoinSet<()>,
}

impl Broadcaster {
    async fn take_forever(&mut self) {
        let (mut pause, mut count_at) = (PAUSE_MIN, Instant::now());
        let pipeline = self.pipeline.clone();
        loop {
            while self.tasks.try_join_next().is_some() {}
            if count_at <= Instant::now() && pipeline.leadership.is_ours() {
                count_at = Instant::now() + COUNT_EVERY;
                self.count().await;
            }
            let room = IN_FLIGHT_MAX.saturating_sub(self.tasks.len()).min(TAKE_MAX);
            if room == 0 {
                self.tasks.join_next().await;
                continue;
            }
            let woken = pipeline.work.broadcaster.notified();
            let now = pipeline.context.now();
            match pipeline.context.store.take_broadcasts(now, pipeline.config.lease, room).await {
                Ok(taken) => {
                    pause = PAUSE_MIN;
                    let metrics = &pipeline.metrics;
                    metrics.broadcasts(BroadcastState::Expired, None, taken.expired);
                    metrics.broadcasts(BroadcastState::Replaced, None, taken.replaced);
                    let reason = Some(noroshi_store::SENDER_ENDED);
                    metrics.broadcasts(BroadcastState::Refused, reason, taken.set_aside);
                    let full = taken.due.len() == room;
                    for due in taken.due {
                        pipeline.quotas.pushed(due.app, 1);
                        self.tasks.spawn(send(pipeline.clone(), due, self.results.clone()));
                    }
                    if !full {
                        let wait = taken.next_due.map(|due| due.saturating_since(now));
                        let wait = wait.unwrap_or(Duration::MAX).min(pipeline.config.sleep_max());
                        let _ = tokio::time::timeout(wait, woken).await;
                    }
                }
                Err(noroshi_store::Error::Closed) => return std::future::pending().await,
                Err(error) => {
                    pipeline.metrics.store_errors.inc();
                    tracing::warn!(%error, "could not take broadcasts; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn count(&self) {
        match self.pipeline.context.store.channel_counts().await {
            Ok(counts) => self.pipeline.metrics.channels(counts),
            Err(error) => tracing::debug!(%error, "could not count channels"),
        }
    }
}

/// Sends one broadcast and hands over its result. If the node stops first, there is none.
async fn send(pipeline: Arc<Pipeline>, due: DueBroadcast, results: mpsc::Sender<FinishedBroadcast>) {
    let (reply, answer) = oneshot::channel();
    let push = Push {
        app: due.app,
        lane: Lane::Direct,
        // The address is in the content.
        token: PushToken {
            service: PushService::Apns,
            environment: due.environment,
            json: JsonText::from_valid("{}"),
        },
        content: Arc::new(Content::broadcast(ToChannel {
            bundle: due.bundle.clone(),
            channel: due.apple.clone(),
            payload: due.payload.as_str().to_owned().into(),
            priority: due.priority,
            is_stored: due.policy == StoragePolicy::Latest,
            expires_at: due.expires_at,
        })),
        id: due.id.0,
        details: None,
        record: pipeline.config.recording.of(true, &due.id.0),
        reply: Reply { to: Arc::new(OneReply(Mutex::new((Vec::new(), Some(reply))))), index: 0 },
    };
    pipeline.outlet.send(push).await;
    let Ok((attempts, answer)) = answer.await else { return };
    let realm = (due.app, PushService::Apns, due.environment);
    let unreadable = pipeline.credentials.unreadable.lock().contains(&realm);
    let answer = match answer {
        Answer::Unconfigured if unreadable => {
            Answer::Later { reason: "credential_unreadable", after: UNREADABLE_WAIT }
        }
        answer => answer,
    };
    let (reason, then) = settled(&pipeline, &due, answer);
    match then {
        Then::End(state) => pipeline.metrics.broadcasts(state, reason, 1),
        Then::Again(_) => drop(pipeline.metrics.broadcast_retries.inc()),
    }
    let attempts: Vec<_> = attempts.into_iter().map(|attempt| (PushRecord::NO_DEVICE, attempt)).collect();
    let record = pipeline.config.recording.row(&attempts, pipeline.context.now());
    let DueBroadcast { channel, leased_until, num, .. } = due;
    // The writer is gone only when the node stops.
    let _ = results.send(FinishedBroadcast { channel, leased_until, num, reason, then, record }).await;
}

/// What an answer means for the broadcast.
fn settled(pipeline: &Pipeline, due: &DueBroadcast, answer: Answer) -> (Option<&'static str>, Then) {
    let now = pipeline.context.now();
    match answer {
        Answer::Accepted => (None, Then::End(BroadcastState::Sent)),
        Answer::Refused { reason } | Answer::Suspect { reason } | Answer::Gone { reason, .. } => {
            (Some(reason), Then::End(BroadcastState::Refused))
        }
        Answer::Unconfigured => (Some("not_configured"), Then::End(BroadcastState::Refused)),
        Answer::Expired => (None, Then::End(BroadcastState::Expired)),
        Answer::Later { reason, after } => {
            let seed = due.num.wrapping_mul(31).wrapping_add(u64::from(due.attempt));
            let again: Option<Timestamp> =
                pipeline.config.backoff.due_at(now, after, due.attempt, seed, due.expires_at);
            (Some(reason), again.map_or(Then::End(BroadcastState::Expired), Then::Again))
        }
    }
}

/// Writes results until no sender is left. While the store fails, the write is repeated.
async fn write_forever(pipeline: &Pipeline, mut ready: mpsc::Receiver<FinishedBroadcast>) {
    let mut together = Vec::new();
    while ready.recv_many(&mut together, COMMIT_MAX).await > 0 {
        if together.len() < COMMIT_MAX {
            tokio::time::sleep(GATHER).await;
            while together.len() < COMMIT_MAX
                && let Ok(more) = ready.try_recv()
            {
                together.push(more);
            }
        }
        let mut pause = PAUSE_MIN;
        loop {
            let now = pipeline.context.now();
            match pipeline.context.store.finish_broadcasts(together.clone(), now).await {
                Ok(()) => break,
                // The node ends; they are sent again after its next start.
                Err(noroshi_store::Error::Closed) => return,
                Err(error) => {
                    pipeline.metrics.store_errors.inc();
                    tracing::warn!(%error, "could not write the results of broadcasts; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        together.clear();
        // The next broadcasts of these channels are due.
        pipeline.work.broadcaster.notify_one();
    }
}

/// Passes the answer on, with the attempts before it.
struct OneReply(Mutex<(Vec<Attempt>, Option<Answers>)>);

type Answers = oneshot::Sender<(Vec<Attempt>, Answer)>;

impl Answered for OneReply {
    fn attempted(&self, _: u32, attempt: Attempt) {
        self.0.lock().0.push(attempt);
    }

    fn answered(&self, _: u32, answer: Answer) {
        let (attempts, reply) = &mut *self.0.lock();
        if let Some(reply) = reply.take() {
            // The node may be stopping.
            let _ = reply.send((std::mem::take(attempts), answer));
        }
    }
}

//! Notifications from a queue: the body of each message is a body of `POST /v1/notifications`.
//!
//! ```text
//!   receivers ─ long poll ─► in progress ─► Accept ─► Accepted ──► deleted, ten at a time
//!       ▲                      │                  Retry ─────► retried here, then by the next receiver
//!       └── pause while nothing│                  Poison ────► dead-letter queue, with the error
//!           is accepted        └─ extended meanwhile
//! ```
//!
//! A message is deleted only after it was accepted. A message that is received twice is published once, by its
//! idempotency key: the attribute `idempotency_key`, or SQS' id of the message. A node that is overloaded, or whose
//! store is down, receives nothing more until something is accepted again; its messages are not to blame and do not go
//! to the dead-letter queue.

mod work;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use noroshi_cluster::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::call::ENTRIES_MAX;
use crate::client;
use crate::config::IntakeConfig;
use crate::metrics::Metrics;
use work::{Gate, InWork, Work};

/// How long a deletion waits for others.
const TOGETHER: Duration = Duration::from_millis(20);

/// Between two attempts at a queue that does not answer.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// A message to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    pub app: String,
    pub body: String,
    pub idempotency_key: String,
}

/// The result of publishing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The durable part is on stable storage, as for a 202.
    Accepted,
    /// Not now: overload, or the store does not answer.
    Retry,
    /// Never; the text is for readers of the dead-letter queue.
    Poison(String),
}

/// Publishes one message.
pub type Accept = Arc<dyn Fn(Incoming) -> Pin<Box<dyn Future<Output = Verdict> + Send>> + Send + Sync>;

/// Runs until `drain` resolves, then waits for messages in progress. An error only if the configuration is invalid.
pub async fn run(
    config: IntakeConfig,
    metrics: Metrics,
    accept: Accept,
    drain: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    config.check().map_err(Error::Refused)?;
    let client = client::open(&config.connection).await;
    let (drained, draining) = watch::channel(false);
    // Capacity for all messages in progress: a deletion never blocks.
    let (done, to_delete) = mpsc::channel(config.in_work_max);
    let work = Arc::new(Work {
        permits: Arc::new(Semaphore::new(config.in_work_max)),
        config,
        client,
        metrics,
        accept,
        gate: Gate::default(),
        in_work: InWork::default(),
        done,
        draining: draining.clone(),
    });
    let deleter = tokio::spawn(delete_forever(
        work.client.clone(),
        work.config.queue_url.clone(),
        work.metrics.clone(),
        to_delete,
    ));
    let extender = tokio::spawn(extend_forever(work.clone()));
    let mut receivers = JoinSet::new();
    for _ in 0..work.config.receivers {
        receivers.spawn(receive_forever(work.clone(), draining.clone()));
    }
    tracing::info!(queue = work.config.queue_url, "receiving notifications from a queue");
    drain.await;
    let _ = drained.send(true);
    let polled = async { while receivers.join_next().await.is_some() {} };
    if tokio::time::timeout(work.config.drain, polled).await.is_err() {
        tracing::debug!("messages of cancelled polls become visible after the visibility timeout");
    }
    receivers.abort_all();
    let in_work_max = u32::try_from(work.config.in_work_max).unwrap_or(u32::MAX);
    let ended = work.permits.acquire_many(in_work_max);
    if tokio::time::timeout(work.config.drain, ended).await.is_err() {
        tracing::info!("stopping with messages in progress; other nodes receive them");
    }
    extender.abort();
    let left = work.in_work.receipts(Duration::ZERO);
    if let Err(error) = client::extend(&work.client, &work.config.queue_url, left, Duration::ZERO).await {
        tracing::debug!(%error, "failed to release messages; they become visible after the visibility timeout");
    }
    // The deleter ends when no sender is left; messages still in progress do not delay it.
    drop(work);
    let _ = tokio::time::timeout(PAUSE_MAX, deleter).await;
    Ok(())
}

async fn receive_forever(work: Arc<Work>, mut draining: watch::Receiver<bool>) {
    let mut pause = PAUSE_MIN;
    while !*draining.borrow() {
        let permits = tokio::select! {
            _ = draining.wait_for(|draining| *draining) => return,
            permits = room(&work) => permits,
        };
        match receive(&work, permits).await {
            Ok(()) => pause = PAUSE_MIN,
            Err(error) => {
                work.metrics.errors.inc();
                tracing::warn!(%error, "failed to receive from the intake queue; retrying");
                let drained = draining.wait_for(|draining| *draining);
                let _ = tokio::time::timeout(pause, drained).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits until receiving is allowed; one permit for each message of a call.
async fn room(work: &Work) -> Vec<OwnedSemaphorePermit> {
    work.gate.open().await;
    // Closed only with the work itself.
    let Ok(first) = work.permits.clone().acquire_owned().await else { return std::future::pending().await };
    let mut permits = vec![first];
    while permits.len() < ENTRIES_MAX
        && let Ok(permit) = work.permits.clone().try_acquire_owned()
    {
        permits.push(permit);
    }
    permits
}

/// Starts a task for each message of a call. Messages that arrive during the drain are released.
async fn receive(work: &Arc<Work>, mut permits: Vec<OwnedSemaphorePermit>) -> Result<(), Error> {
    let Work { client, config, .. } = &**work;
    let output =
        client::receive(client, &config.queue_url, permits.len(), config.poll, config.visibility).await?;
    if *work.draining.borrow() {
        let messages = output.messages.unwrap_or_default();
        let receipts = messages.into_iter().filter_map(|message| message.receipt_handle).collect();
        return client::extend(client, &config.queue_url, receipts, Duration::ZERO).await;
    }
    for message in output.messages.unwrap_or_default() {
        let Some(permit) = permits.pop() else { break };
        let work = work.clone();
        tokio::spawn(async move {
            work.one(message).await;
            drop(permit);
        });
    }
    Ok(())
}

async fn delete_forever(client: Client, url: String, metrics: Metrics, mut done: mpsc::Receiver<String>) {
    let mut receipts = Vec::new();
    while done.recv_many(&mut receipts, ENTRIES_MAX).await > 0 {
        if receipts.len() < ENTRIES_MAX {
            tokio::time::sleep(TOGETHER).await;
            while receipts.len() < ENTRIES_MAX
                && let Ok(receipt) = done.try_recv()
            {
                receipts.push(receipt);
            }
        }
        if let Err(error) = client::delete(&client, &url, std::mem::take(&mut receipts)).await {
            // If received again, their idempotency keys identify them.
            metrics.errors.inc();
            tracing::warn!(%error, "failed to delete accepted messages; they will be received again");
        }
    }
}

async fn extend_forever(work: Arc<Work>) {
    let third = work.config.visibility / 3;
    loop {
        tokio::time::sleep(third).await;
        let receipts = work.in_work.receipts(third);
        if receipts.is_empty() {
            continue;
        }
        let Work { client, config, .. } = &*work;
        if let Err(error) = client::extend(client, &config.queue_url, receipts, config.visibility).await {
            work.metrics.errors.inc();
            tracing::warn!(%error, "failed to extend messages in progress; other nodes may receive them too");
        }
    }
}

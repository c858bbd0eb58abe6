//! The queue of push batches on SQS: one standard queue per lane.
//!
//! ```text
//!   put  ─ SendMessageBatch ─► queue of the lane ─ ReceiveMessage (long poll, in a task) ─► arrived ─ pull ─► sender
//!                                      ▲                                                        │
//!                                      └──── visibility timeout: received again ◄───────────────┘ DeleteMessageBatch
//! ```
//!
//! A cancelled long poll hides the messages it received for a visibility timeout. So polls run as separate tasks, and
//! their messages wait here for less than that time. SQS orders messages on a best-effort basis. A body is base64,
//! because SQS accepts text only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::operation::get_queue_url::GetQueueUrlError;
use aws_sdk_sqs::types::{
    Message, MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use futures_util::future::try_join_all;
use noroshi_cluster::Error;
use noroshi_cluster::batches::{BatchQueue, LaneDepth, QueuedBatch, Receipt, Received};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::call::{BYTES_MAX, ENTRIES_MAX, calls};
use crate::client::{self, POLL, failed, seconds};
use crate::config::QueueConfig;

/// The attribute that carries a queued batch's key.
const KEY: &str = "batch";

/// The lanes in the names of their queues; the numbers are those of `types::Lane`.
const LANES: [(u8, &str); 3] = [(1, "extra"), (2, "direct"), (3, "campaign")];

/// Concurrent polls of a lane while they return full: some hundred queued batches in flight, ten each.
const POLLS_MAX: usize = 4;

/// Without a puller for this long, messages that a poll returns are released at once.
const ABANDONED: Duration = Duration::from_secs(3);

/// Concurrent calls of one `put`.
const PUTS_MAX: usize = 8;

/// How often entries that failed for the service's own reasons are sent.
const ATTEMPTS: usize = 3;

pub struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    lanes: Vec<LaneQueue>,
    claim_after: Duration,
    /// Notified when a poll returns.
    arrived: Notify,
    /// The time of the last pull. The lock guards only this field.
    pulled_at: Mutex<Instant>,
}

struct LaneQueue {
    lane: u8,
    url: String,
    /// The lock guards only this field.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    polls: usize,
    /// Whether the last poll returned as many as one can.
    full: bool,
    /// Received messages, each with its time.
    arrived: VecDeque<(Received, Instant)>,
    /// The first error of a poll that was not reported yet.
    error: Option<Error>,
}

impl Queue {
    /// Finds the queues, or creates them. [`Error::Refused`]: they are missing, or the credentials do not allow it.
    pub async fn open(config: &QueueConfig) -> Result<Self, Error> {
        config.check().map_err(Error::Refused)?;
        let client = client::open(&config.connection).await;
        let mut lanes = Vec::with_capacity(LANES.len());
        for (lane, name) in LANES {
            let name = format!("{}-{name}", config.queue_prefix);
            let url = url(&client, &name, config).await?;
            lanes.push(LaneQueue { lane, url, state: Mutex::default() });
        }
        let claim_after = config.claim_after;
        Ok(Self {
            shared: Arc::new(Shared {
                client,
                lanes,
                claim_after,
                arrived: Notify::new(),
                pulled_at: Mutex::new(Instant::now()),
            }),
        })
    }
}

async fn url(client: &Client, name: &str, config: &QueueConfig) -> Result<String, Error> {
    let found = client.get_queue_url().queue_name(name).send().await;
    let missing = match found {
        Ok(found) => {
            return found.queue_url.ok_or_else(|| Error::Refused(format!("the queue {name} has no URL")));
        }
        Err(error) => error,
    };
    // Another implementation of SQS may use the older name.
    let is_missing = missing.as_service_error().is_some_and(GetQueueUrlError::is_queue_does_not_exist)
        || missing.code() == Some("QueueDoesNotExist");
    if !is_missing || !config.create {
        return Err(failed(missing));
    }
    tracing::info!(queue = name, "creating a queue for push batches");
    let made = client
        .create_queue()
        .queue_name(name)
        .attributes(QueueAttributeName::VisibilityTimeout, seconds(config.claim_after).to_string())
        .attributes(QueueAttributeName::ReceiveMessageWaitTimeSeconds, seconds(POLL).to_string())
        // A message that outlives the store's lease is worthless.
        .attributes(QueueAttributeName::MessageRetentionPeriod, "86400")
        .send()
        .await
        .map_err(failed)?;
    made.queue_url.ok_or_else(|| Error::Refused(format!("the queue {name} has no URL")))
}

impl Shared {
    fn lane(&self, lane: u8) -> Result<&LaneQueue, Error> {
        let found = self.lanes.iter().find(|queue| queue.lane == lane);
        found.ok_or_else(|| Error::Refused(format!("unknown lane {lane}")))
    }

    async fn poll(self: Arc<Self>, index: usize) {
        let queue = &self.lanes[index];
        let received = client::receive(&self.client, &queue.url, ENTRIES_MAX, POLL, self.claim_after).await;
        let at = Instant::now();
        let received = match received {
            Ok(output) if self.pulled_at.lock().elapsed() > ABANDONED => {
                let messages = output.messages.unwrap_or_default();
                let receipts = messages.into_iter().filter_map(|message| message.receipt_handle).collect();
                client::extend(&self.client, &queue.url, receipts, Duration::ZERO).await.map(|()| Vec::new())
            }
            received => received.map(|output| output.messages.unwrap_or_default()),
        };
        let mut state = queue.state.lock();
        state.polls -= 1;
        match received {
            Ok(messages) => {
                state.full = messages.len() >= ENTRIES_MAX;
                state
                    .arrived
                    .extend(messages.into_iter().map(|message| (received_of(queue.lane, message), at)));
            }
            Err(error) => {
                state.full = false;
                state.error.get_or_insert(error);
            }
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Takes received messages, and polls for more if there are none.
    fn look(self: &Arc<Self>, lanes: &[u8], max: usize) -> (Vec<Received>, Option<Error>) {
        *self.pulled_at.lock() = Instant::now();
        let (mut received, mut error) = (Vec::new(), None);
        for lane in lanes {
            let Some(index) = self.lanes.iter().position(|queue| queue.lane == *lane) else { continue };
            let mut state = self.lanes[index].state.lock();
            while received.len() < max
                && let Some((one, at)) = state.arrived.pop_front()
            {
                // Messages that others may have received by now are skipped.
                if at.elapsed() < self.claim_after / 2 {
                    received.push(one);
                }
            }
            if let Some(failed) = state.error.take() {
                error = Some(failed);
                continue;
            }
            let wanted = if state.full { POLLS_MAX } else { 1 };
            while state.arrived.is_empty() && state.polls < wanted {
                state.polls += 1;
                tokio::spawn(self.clone().poll(index));
            }
        }
        (received, error)
    }

    async fn send(&self, url: &str, parcels: Vec<(QueuedBatch, String)>) -> Result<(), Error> {
        let mut left = parcels;
        for _ in 0..ATTEMPTS {
            let entries = left.iter().enumerate().map(|(index, (parcel, body))| {
                let key =
                    MessageAttributeValue::builder().data_type("String").string_value(parcel.key.to_string());
                SendMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .message_body(body)
                    .message_attributes(KEY, key.build()?)
                    .build()
            });
            let entries: Result<Vec<_>, _> = entries.collect();
            let request = self.client.send_message_batch().queue_url(url);
            let request = request.set_entries(Some(entries.map_err(client::built)?));
            let answer = request.send().await.map_err(failed)?;
            if let Some(refused) = answer.failed().iter().find(|entry| entry.sender_fault()) {
                return Err(client::entry_failed(refused));
            }
            let again: Vec<usize> =
                answer.failed().iter().filter_map(|entry| entry.id().parse().ok()).collect();
            if again.is_empty() {
                return Ok(());
            }
            left =
                left.into_iter().enumerate().filter(|(i, _)| again.contains(i)).map(|(_, one)| one).collect();
        }
        Err(Error::Unavailable("SQS rejected some batches".into()))
    }
}

fn received_of(lane: u8, message: Message) -> Received {
    let count =
        message.attributes().and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
    let deliveries = count.and_then(|count| count.parse().ok()).unwrap_or(1);
    let key = message.message_attributes().and_then(|all| all.get(KEY)?.string_value()?.parse().ok());
    // A message that is not ours becomes an unreadable queued batch, which its puller removes.
    let body = message.body().and_then(|body| STANDARD_NO_PAD.decode(body).ok()).unwrap_or_default();
    let parcel = QueuedBatch { key: key.unwrap_or(0), lane, body: Bytes::from(body) };
    let handle = message.receipt_handle.unwrap_or_default().into();
    Received { parcel, receipt: Receipt { lane, handle }, deliveries }
}

fn of_lane(receipts: &[Receipt], lane: u8) -> Vec<String> {
    receipts.iter().filter(|one| one.lane == lane).map(|one| one.handle.to_string()).collect()
}

#[async_trait]
impl BatchQueue for Queue {
    async fn put(&self, parcels: Vec<QueuedBatch>) -> Result<(), Error> {
        let mut sends = Vec::new();
        let mut by_lane: Vec<Vec<(QueuedBatch, String)>> = LANES.iter().map(|_| Vec::new()).collect();
        for parcel in parcels {
            let body = STANDARD_NO_PAD.encode(&parcel.body);
            if body.len() + 256 > BYTES_MAX {
                return Err(Error::TooLarge { bytes: body.len(), bytes_max: BYTES_MAX - 256 });
            }
            let index = LANES.iter().position(|(lane, _)| *lane == parcel.lane);
            let index = index.ok_or_else(|| Error::Refused(format!("unknown lane {}", parcel.lane)))?;
            by_lane[index].push((parcel, body));
        }
        for ((lane, _), parcels) in LANES.iter().zip(by_lane) {
            let url = &self.shared.lane(*lane)?.url;
            // The name, type and value of the attribute count too.
            for call in calls(parcels, |(_, body)| body.len() + 64) {
                sends.push((url, call));
            }
        }
        while !sends.is_empty() {
            let some = sends.split_off(sends.len().saturating_sub(PUTS_MAX));
            try_join_all(some.into_iter().map(|(url, call)| self.shared.send(url, call))).await?;
        }
        Ok(())
    }

    async fn pull(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error> {
        let end = Instant::now() + wait;
        loop {
            let arrived = self.shared.arrived.notified();
            let (received, error) = self.shared.look(lanes, max);
            if !received.is_empty() || max == 0 {
                return Ok(received);
            }
            if let Some(error) = error {
                return Err(error);
            }
            if tokio::time::timeout_at(end, arrived).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt], time: Duration) -> Result<(), Error> {
        for queue in &self.shared.lanes {
            let of = of_lane(receipts, queue.lane);
            client::extend(&self.shared.client, &queue.url, of, time).await?;
        }
        Ok(())
    }

    async fn done(&self, receipts: Vec<Receipt>) -> Result<(), Error> {
        for queue in &self.shared.lanes {
            client::delete(&self.shared.client, &queue.url, of_lane(&receipts, queue.lane)).await?;
        }
        Ok(())
    }

    /// As SQS reports it: approximate, and some seconds old.
    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let ask = async |queue: &LaneQueue| {
            let answer = self
                .shared
                .client
                .get_queue_attributes()
                .queue_url(&queue.url)
                .attribute_names(QueueAttributeName::ApproximateNumberOfMessages)
                .attribute_names(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
                .send()
                .await
                .map_err(failed)?;
            let number = |name| -> u64 {
                let value = answer.attributes().and_then(|all| all.get(&name));
                value.and_then(|value| value.parse().ok()).unwrap_or(0)
            };
            let waiting = number(QueueAttributeName::ApproximateNumberOfMessages);
            let pulled = number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible);
            Ok::<_, Error>(LaneDepth { lane: queue.lane, parcels: waiting + pulled, pulled })
        };
        try_join_all(self.shared.lanes.iter().map(ask)).await
    }
}

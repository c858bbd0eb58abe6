//! One message in progress: publishes it, retries it, or moves it to the dead-letter queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use noroshi_cluster::Error;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{Accept, Incoming, PAUSE_MAX, PAUSE_MIN, Verdict};
use crate::client::{self, failed};
use crate::config::IntakeConfig;
use crate::metrics::{Fate, Metrics};

/// Attempts here before another node may try; counted only if other messages were accepted meanwhile.
const ATTEMPTS: u32 = 5;

/// The longest pause of a message between two receives.
const RETURN_MAX: Duration = Duration::from_secs(300);

/// SQS allows ten attributes; two are ours.
const ATTRIBUTES_MAX: usize = 8;

/// Bytes of the error text: the attribute must stay far below the limit of a message.
const ERROR_BYTES_MAX: usize = 1_024;

pub(super) struct Work {
    pub(super) config: IntakeConfig,
    pub(super) client: Client,
    pub(super) metrics: Metrics,
    pub(super) accept: Accept,
    pub(super) permits: Arc<Semaphore>,
    pub(super) gate: Gate,
    pub(super) in_work: InWork,
    /// Receipts of messages to delete.
    pub(super) done: mpsc::Sender<String>,
    pub(super) draining: watch::Receiver<bool>,
}

/// Closed while this node accepts nothing.
#[derive(Default)]
pub(super) struct Gate {
    accepted: AtomicU64,
    /// No receives before this time, and the length of the last pause. The lock guards only this field.
    pause: Mutex<Option<(Instant, Duration)>>,
}

impl Gate {
    /// Waits until receiving is allowed.
    pub(super) async fn open(&self) {
        loop {
            let Some((until, _)) = *self.pause.lock() else { return };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        *self.pause.lock() = None;
    }

    /// Pauses receiving, longer each time.
    fn overloaded(&self) {
        let mut pause = self.pause.lock();
        let now = Instant::now();
        match *pause {
            Some((until, _)) if until > now => {}
            Some((_, last)) => {
                let next = (last * 2).min(PAUSE_MAX);
                *pause = Some((now + next, next));
            }
            None => *pause = Some((now + PAUSE_MIN, PAUSE_MIN)),
        }
    }

    fn count(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Receipts of messages in progress, with their start.
#[derive(Default)]
pub(super) struct InWork {
    next: AtomicU64,
    /// The lock guards only this field.
    receipts: Mutex<HashMap<u64, (String, Instant)>>,
}

impl InWork {
    fn begin(&self, receipt: &str) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.receipts.lock().insert(id, (receipt.to_owned(), Instant::now()));
        id
    }

    fn end(&self, id: u64) {
        self.receipts.lock().remove(&id);
    }

    /// The messages in progress for at least this long.
    pub(super) fn receipts(&self, age: Duration) -> Vec<String> {
        let receipts = self.receipts.lock();
        receipts
            .values()
            .filter(|(_, since)| since.elapsed() >= age)
            .map(|(receipt, _)| receipt.clone())
            .collect()
    }
}

impl Work {
    pub(super) async fn one(&self, message: Message) {
        let receipt = message.receipt_handle().unwrap_or_default().to_owned();
        let id = self.in_work.begin(&receipt);
        self.metrics.in_work.inc();
        self.handle(&message, receipt).await;
        self.metrics.in_work.dec();
        self.in_work.end(id);
    }

    async fn handle(&self, message: &Message, receipt: String) {
        let received = receive_count(message);
        if received > self.config.receives_max {
            let error = format!("received {received} times without being accepted");
            return self.move_to_dead_letter_queue(message, receipt, error, Fate::Exhausted).await;
        }
        let incoming = match self.incoming(message) {
            Ok(incoming) => incoming,
            Err(error) => {
                return self
                    .move_to_dead_letter_queue(message, receipt, error.to_owned(), Fate::Poison)
                    .await;
            }
        };
        match self.publish(incoming).await {
            Some(Verdict::Accepted) => {
                self.metrics.count(Fate::Accepted);
                // Closed only when the node stops: then the message is received again.
                let _ = self.done.send(receipt).await;
            }
            Some(Verdict::Poison(error)) => {
                self.move_to_dead_letter_queue(message, receipt, error, Fate::Poison).await
            }
            Some(Verdict::Retry) if received >= self.config.receives_max => {
                let error = format!("received {received} times without being accepted");
                self.move_to_dead_letter_queue(message, receipt, error, Fate::Exhausted).await;
            }
            Some(Verdict::Retry) => {
                let doubled = PAUSE_MIN * (1 << received.min(10));
                self.give_back(receipt, doubled.clamp(Duration::from_secs(1), RETURN_MAX)).await;
            }
            // The node drains.
            None => self.give_back(receipt, Duration::ZERO).await,
        }
    }

    fn incoming(&self, message: &Message) -> Result<Incoming, &'static str> {
        let attribute = |name: &str| {
            let value = message.message_attributes()?.get(name)?.string_value()?;
            Some(value.to_owned())
        };
        let app = attribute("app").or_else(|| self.config.app.clone());
        let key = attribute("idempotency_key").or_else(|| message.message_id().map(str::to_owned));
        Ok(Incoming {
            app: app.ok_or("the message has no attribute `app`, and the intake has no default app")?,
            body: message.body().unwrap_or_default().to_owned(),
            idempotency_key: key.ok_or("the message has no id")?,
        })
    }

    /// Publishes until it is decided. [`Verdict::Retry`]: it fails while others succeed. None: the node drains.
    async fn publish(&self, incoming: Incoming) -> Option<Verdict> {
        let (mut pause, mut failures) = (PAUSE_MIN, 0);
        let accepted_before = self.gate.count();
        let mut draining = self.draining.clone();
        loop {
            match (self.accept)(incoming.clone()).await {
                Verdict::Retry => {}
                Verdict::Accepted => {
                    self.gate.accepted();
                    return Some(Verdict::Accepted);
                }
                // A rejection proves that the node is not overloaded.
                poison => return Some(poison),
            }
            self.metrics.retries.inc();
            self.gate.overloaded();
            failures += 1;
            if failures >= ATTEMPTS && self.gate.count() > accepted_before {
                return Some(Verdict::Retry);
            }
            let drained = draining.wait_for(|draining| *draining);
            if tokio::time::timeout(pause, drained).await.is_ok() {
                return None;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Makes the message visible to other nodes after this time.
    async fn give_back(&self, receipt: String, after: Duration) {
        self.metrics.count(Fate::Returned);
        if let Err(error) = client::extend(&self.client, &self.config.queue_url, vec![receipt], after).await {
            tracing::debug!(%error, "failed to release a message; it becomes visible after the visibility timeout");
        }
    }

    /// Sends the message with its error to the dead-letter queue, and deletes it here. If that fails, it is received
    /// again.
    async fn move_to_dead_letter_queue(&self, message: &Message, receipt: String, error: String, fate: Fate) {
        let id = message.message_id().unwrap_or_default();
        tracing::warn!(message = id, error, "moving a message of the intake queue to the dead-letter queue");
        self.metrics.count(fate);
        let Some(url) = &self.config.dead_letter_url else { return };
        match self.dead_letter(url, message, error).await {
            Ok(()) => {
                let _ = self.done.send(receipt).await;
            }
            Err(error) => {
                self.metrics.errors.inc();
                tracing::warn!(message = id, %error, "failed to move a message to the dead-letter queue; it will be received again");
            }
        }
    }

    async fn dead_letter(&self, url: &str, message: &Message, error: String) -> Result<(), Error> {
        let text =
            |value: &str| MessageAttributeValue::builder().data_type("String").string_value(value).build();
        let mut send =
            self.client.send_message().queue_url(url).message_body(message.body().unwrap_or_default());
        let theirs = message.message_attributes().into_iter().flatten();
        for (name, value) in theirs.filter(|(name, _)| !is_ours(name)).take(ATTRIBUTES_MAX) {
            send = send.message_attributes(name, value.clone());
        }
        send = send.message_attributes("error", text(&sendable(&error)).map_err(client::built)?);
        if let Some(id) = message.message_id() {
            send = send.message_attributes("message_id", text(id).map_err(client::built)?);
        }
        send.send().await.map_err(failed)?;
        Ok(())
    }
}

fn is_ours(attribute: &str) -> bool {
    matches!(attribute, "error" | "message_id")
}

/// Only characters that SQS accepts, those of XML 1.0, and never an empty text.
fn sendable(text: &str) -> String {
    let mut kept = String::new();
    for character in text.chars() {
        if kept.len() + character.len_utf8() > ERROR_BYTES_MAX {
            break;
        }
        let fits = matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        kept.push(if fits { character } else { '\u{fffd}' });
    }
    if kept.is_empty() { "no reason".to_owned() } else { kept }
}

fn receive_count(message: &Message) -> u32 {
    let count =
        message.attributes().and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
    count.and_then(|count| count.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_have_only_characters_that_sqs_accepts() {
        assert_eq!(sendable("line 1\ncolumn\u{0}2"), "line 1\ncolumn\u{fffd}2");
        assert_eq!(sendable(""), "no reason");
        assert!(sendable(&"ü".repeat(2_000)).len() <= ERROR_BYTES_MAX);
    }

    #[tokio::test]
    async fn an_overloaded_node_pauses_longer_each_time_until_something_is_accepted() {
        let gate = Gate::default();
        gate.open().await;
        gate.overloaded();
        gate.overloaded();
        assert_eq!(gate.pause.lock().expect("it pauses").1, PAUSE_MIN, "one pause at a time");
        *gate.pause.lock() = Some((Instant::now(), PAUSE_MIN));
        gate.overloaded();
        assert_eq!(gate.pause.lock().expect("it pauses").1, PAUSE_MIN * 2);
        gate.accepted();
        assert!(gate.pause.lock().is_none());
        assert_eq!(gate.count(), 1);
    }
}

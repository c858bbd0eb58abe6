//! SQS for a test: queues and their content, through the SDK only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use noroshi_sqs::Connection;

/// Generous: only a failure waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Sqs {
    pub(crate) client: Client,
    pub(crate) connection: Connection,
}

/// None: the test is skipped.
pub(crate) async fn sqs() -> Option<Sqs> {
    let Ok(endpoint) = std::env::var("NOROSHI_SQS_ENDPOINT") else {
        eprintln!("skipped: NOROSHI_SQS_ENDPOINT names no SQS; e2e/sqs/run starts one");
        return None;
    };
    let connection = Connection { endpoint: Some(endpoint), region: Some("elasticmq".to_owned()) };
    let config = noroshi_egress::aws::sdk::load(&connection, DEADLINE, 3).await;
    Some(Sqs { client: Client::new(&config), connection })
}

/// A name that no other test or earlier run uses.
pub(crate) fn name(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Sqs {
    pub(crate) async fn queue(&self, what: &str) -> String {
        let made = self.client.create_queue().queue_name(name(what)).send().await.expect("made");
        made.queue_url.expect("a URL")
    }

    pub(crate) async fn send(&self, url: &str, bodies: &[String], attributes: &[(&str, &str)]) {
        for (part, bodies) in bodies.chunks(10).enumerate() {
            let entry = |(index, body): (usize, &String)| {
                let mut entry =
                    SendMessageBatchRequestEntry::builder().id(index.to_string()).message_body(body);
                for (name, value) in attributes {
                    entry = entry.message_attributes(*name, text(value));
                }
                entry.build().expect("an entry")
            };
            let entries = bodies.iter().enumerate().map(entry).collect();
            let request = self.client.send_message_batch().queue_url(url).set_entries(Some(entries));
            let sent = request.send().await.expect("sent");
            assert!(sent.failed().is_empty(), "part {part}: {:?}", sent.failed());
        }
    }

    /// Receives until there are `count`; they stay invisible.
    pub(crate) async fn receive(&self, url: &str, count: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        let end = tokio::time::Instant::now() + DEADLINE;
        while messages.len() < count {
            assert!(tokio::time::Instant::now() < end, "{} of {count} messages came", messages.len());
            let receive = self.client.receive_message().queue_url(url).max_number_of_messages(10);
            let receive = receive.wait_time_seconds(1).visibility_timeout(300).message_attribute_names("All");
            messages.extend(receive.send().await.expect("received").messages.unwrap_or_default());
        }
        messages
    }

    /// Waits until the queue is empty, counting invisible messages too.
    pub(crate) async fn empty(&self, url: &str) {
        let end = tokio::time::Instant::now() + DEADLINE;
        loop {
            let depth = self.depth(url).await;
            if depth == (0, 0) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{depth:?} are left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Visible messages, and those in flight.
    pub(crate) async fn depth(&self, url: &str) -> (u64, u64) {
        use QueueAttributeName::{ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible};
        let ask = self.client.get_queue_attributes().queue_url(url);
        let ask = ask.attribute_names(ApproximateNumberOfMessages);
        let ask = ask.attribute_names(ApproximateNumberOfMessagesNotVisible);
        let answer: HashMap<_, _> = ask.send().await.expect("asked").attributes.unwrap_or_default();
        let number = |name| answer.get(&name).and_then(|value| value.parse().ok()).expect("a number");
        (number(ApproximateNumberOfMessages), number(ApproximateNumberOfMessagesNotVisible))
    }
}

fn text(value: &str) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type("String").string_value(value).build().expect("a value")
}

pub(crate) fn attribute<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.message_attributes()?.get(name)?.string_value()
}

//! The configuration of SQS, validated here. Credentials are not part of it.

use std::time::Duration;

pub use noroshi_egress::aws::Connection;

/// The queue of push batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    pub connection: Connection,
    /// The queues' names: `<prefix>-extra`, `<prefix>-direct`, `<prefix>-campaign`.
    pub queue_prefix: String,
    /// Whether to create missing queues. Needs `sqs:CreateQueue`.
    pub create: bool,
    /// How long a pulled batch belongs to its puller without an extension: its visibility timeout.
    pub claim_after: Duration,
}

impl QueueConfig {
    pub fn new(connection: Connection, queue_prefix: impl Into<String>) -> Self {
        let claim_after = noroshi_cluster::batches::CLAIM_AFTER;
        Self { connection, queue_prefix: queue_prefix.into(), create: false, claim_after }
    }

    /// The first problem, as a text for the operator.
    pub fn check(&self) -> Result<(), String> {
        // A queue name has at most 80 characters; ours add up to 9.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let prefix = &self.queue_prefix;
        if prefix.is_empty() || prefix.len() > 71 || !prefix.bytes().all(plain) {
            return Err(
                "the prefix of queue names must have 1 to 71 of a-z, A-Z, 0-9, '-' and '_'".to_owned()
            );
        }
        check_visibility(self.claim_after)
    }
}

/// Notifications from a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeConfig {
    pub connection: Connection,
    pub queue_url: String,
    /// The app of messages without the attribute `app`. None: such a message is rejected.
    pub app: Option<String>,
    /// For messages that can never be accepted, and those that failed too often. None: they stay in the queue, whose
    /// own redrive policy moves them.
    pub dead_letter_url: Option<String>,
    /// How often a message is received before it moves to the dead-letter queue.
    pub receives_max: u32,
    /// Messages received and not decided; at most 1 MiB each, most far below 10 KiB.
    pub in_work_max: usize,
    /// The visibility timeout of a received message; extended while it is in progress.
    pub visibility: Duration,
    /// How long a call waits for messages. Up to 20 s; a node that stops waits for it within `drain`, because messages
    /// of a cancelled poll stay invisible for `visibility`.
    pub poll: Duration,
    /// Concurrent receivers. Each handles at most ten messages at a time.
    pub receivers: usize,
    /// How long messages may stay in progress when the node stops. Then other nodes get them.
    pub drain: Duration,
}

impl IntakeConfig {
    pub fn new(connection: Connection, queue_url: impl Into<String>) -> Self {
        Self {
            connection,
            queue_url: queue_url.into(),
            app: None,
            dead_letter_url: None,
            receives_max: 5,
            in_work_max: 256,
            visibility: Duration::from_secs(30),
            poll: Duration::from_secs(20),
            receivers: 4,
            drain: Duration::from_secs(10),
        }
    }

    /// The first problem, as a text for the operator.
    pub fn check(&self) -> Result<(), String> {
        let urls = std::iter::once(&self.queue_url).chain(&self.dead_letter_url);
        if urls.into_iter().any(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
            return Err(
                "a queue must be given as a URL: https://sqs.<region>.amazonaws.com/<account>/<name>"
                    .to_owned(),
            );
        }
        if self.dead_letter_url.as_ref() == Some(&self.queue_url) {
            return Err("the dead-letter queue must not be the intake queue".to_owned());
        }
        if !(1..=1_000).contains(&self.receives_max) {
            return Err("the maximum number of receives must be 1 to 1,000".to_owned());
        }
        if !(1..=10_000).contains(&self.in_work_max) || !(1..=64).contains(&self.receivers) {
            return Err("there must be 1 to 10,000 messages in progress, and 1 to 64 receivers".to_owned());
        }
        if self.poll > Duration::from_secs(20) || self.poll.subsec_nanos() > 0 {
            return Err("the wait for messages must be at most 20 s, in whole seconds".to_owned());
        }
        check_visibility(self.visibility)
    }
}

fn check_visibility(visibility: Duration) -> Result<(), String> {
    // SQS allows up to 12 hours, in whole seconds.
    match (1..=43_200).contains(&visibility.as_secs()) && visibility.subsec_nanos() == 0 {
        true => Ok(()),
        false => Err("a visibility timeout must be 1 s to 12 h, in whole seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_rejected() {
        let queue = QueueConfig::new(Connection::default(), "noroshi-push");
        assert_eq!(queue.check(), Ok(()));
        for prefix in ["", "with space", &"x".repeat(72)] {
            assert!(
                QueueConfig { queue_prefix: prefix.to_owned(), ..queue.clone() }.check().is_err(),
                "{prefix}"
            );
        }
        let half = Duration::from_millis(1_500);
        assert!(QueueConfig { claim_after: half, ..queue }.check().is_err());
        let intake = IntakeConfig::new(Connection::default(), "https://sqs.eu-west-1.amazonaws.com/1/in");
        assert_eq!(intake.check(), Ok(()));
        let same = IntakeConfig { dead_letter_url: Some(intake.queue_url.clone()), ..intake.clone() };
        assert!(same.check().is_err());
        assert!(IntakeConfig { receives_max: 0, ..intake.clone() }.check().is_err());
        assert!(IntakeConfig { queue_url: "in".to_owned(), ..intake }.check().is_err());
    }
}

//! How SQS is reached and used. The values are checked here; credentials are none of the configuration's business.

use std::time::Duration;

pub use noroshi_aws::Connection;

/// The queue of push batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    pub connection: Connection,
    /// The queues' names: `<prefix>-extra`, `<prefix>-direct`, `<prefix>-campaign`.
    pub queue_prefix: String,
    /// Makes queues that are not there. Needs `sqs:CreateQueue`.
    pub create: bool,
    /// How long a pulled parcel is the puller's without a word: the visibility timeout it is received with.
    pub claim_after: Duration,
}

impl QueueConfig {
    pub fn new(connection: Connection, queue_prefix: impl Into<String>) -> Self {
        let claim_after = noroshi_cluster::batches::CLAIM_AFTER;
        Self { connection, queue_prefix: queue_prefix.into(), create: false, claim_after }
    }

    /// What is wrong, in an operator's words.
    pub fn check(&self) -> Result<(), String> {
        // A queue's name has at most 80 characters; ours adds up to 9.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let prefix = &self.queue_prefix;
        if prefix.is_empty() || prefix.len() > 71 || !prefix.bytes().all(plain) {
            return Err("a prefix of queue names is 1 to 71 of a-z, A-Z, 0-9, '-' and '_'".to_owned());
        }
        check_visibility(self.claim_after)
    }
}

/// Notifications from a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeConfig {
    pub connection: Connection,
    pub queue_url: String,
    /// Of messages without the attribute `app`. None: such a message is refused.
    pub app: Option<String>,
    /// For what can never be accepted, and for what was tried in vain. None: it is left in the queue, whose own redrive
    /// policy moves it.
    pub dead_letter_url: Option<String>,
    /// A message that could not be accepted is set aside when it was received so often.
    pub receives_max: u32,
    /// Messages received and not answered; of at most 1 MiB each, most are far below 10 KiB.
    pub in_work_max: usize,
    /// How long a received message is invisible to others; extended while it is in work.
    pub visibility: Duration,
    /// How long SQS may wait for messages to come. Up to 20 s; a node that stops waits for it within `drain`, since what a
    /// poll that is broken off received is invisible for `visibility`.
    pub poll: Duration,
    /// Receiving at once. Each waits for its answer of at most ten messages.
    pub receivers: usize,
    /// How long messages in work may take when the node stops. Then others have them.
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

    /// What is wrong, in an operator's words.
    pub fn check(&self) -> Result<(), String> {
        let urls = std::iter::once(&self.queue_url).chain(&self.dead_letter_url);
        if urls.into_iter().any(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
            return Err(
                "a queue is named by its URL: https://sqs.<region>.amazonaws.com/<account>/<name>".to_owned()
            );
        }
        if self.dead_letter_url.as_ref() == Some(&self.queue_url) {
            return Err("what is set aside must not go to the queue it came from".to_owned());
        }
        if !(1..=1_000).contains(&self.receives_max) {
            return Err("a message is received 1 to 1,000 times".to_owned());
        }
        if !(1..=10_000).contains(&self.in_work_max) || !(1..=64).contains(&self.receivers) {
            return Err("1 to 10,000 messages are in work, and 1 to 64 receivers".to_owned());
        }
        if self.poll > Duration::from_secs(20) || self.poll.subsec_nanos() > 0 {
            return Err("SQS waits for messages up to 20 s, in whole seconds".to_owned());
        }
        check_visibility(self.visibility)
    }
}

fn check_visibility(visibility: Duration) -> Result<(), String> {
    // SQS takes up to 12 hours; whole seconds.
    match (1..=43_200).contains(&visibility.as_secs()) && visibility.subsec_nanos() == 0 {
        true => Ok(()),
        false => Err("a visibility timeout is 1 s to 12 h, in whole seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sqs_does_not_take_is_refused_before() {
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

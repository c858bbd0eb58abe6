//! The configuration of the event log. The caller validates it with [`Config::check`].

use std::path::PathBuf;
use std::time::Duration;

/// Everything except where metrics are registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name of this node: `node` of each line.
    pub node: String,
    /// `version` of the first line.
    pub version: &'static str,
    /// The longest time an event waits in a batch, and the most that a killed process loses.
    pub flush_interval: Duration,
    /// A batch is closed at this many events …
    pub batch_events: u64,
    /// … or this many bytes.
    pub batch_bytes: usize,
    /// The capacity of a thread's ring: events between two passes of the collector.
    pub ring_places: usize,
    /// The queue of one sink in memory.
    pub memory_bytes: usize,
    /// The queue of one sink on disk, in its own folder below this one.
    pub spool: PathBuf,
    pub spool_bytes: u64,
    /// The timeout of the shutdown.
    pub drain: Duration,
    pub sinks: Vec<Sink>,
}

/// A destination of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    File(File),
    Stdout,
    Webhook(Webhook),
    Firehose(Firehose),
    Kafka(Kafka),
}

/// Rotated and compressed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub folder: PathBuf,
    /// A file is closed at this size …
    pub bytes: u64,
    /// … or at this age.
    pub age: Duration,
    /// The size of all closed files; the oldest are removed.
    pub keep_bytes: u64,
}

/// POSTs each batch, signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    /// The key of the signature; at least 24 bytes.
    pub secret: Vec<u8>,
    pub timeout: Duration,
}

/// Amazon Kinesis Data Firehose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firehose {
    pub connection: noroshi_egress::aws::Connection,
    pub stream: String,
    /// Lines of one thread share a record of up to this many bytes; 0: each line is a record.
    pub record_bytes: usize,
    /// Calls in flight. With one, all lines of the node share records, in the order of `n`.
    pub calls: usize,
    pub timeout: Duration,
}

/// A topic of Apache Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kafka {
    /// Host and port of some brokers, from which the others are discovered.
    pub brokers: Vec<(String, u16)>,
    pub topic: String,
    /// Uses all partitions of the topic in turn, instead of one per node.
    pub spread: bool,
    pub compression: Compression,
    /// The size of one call before compression; at most the topic's `max.message.bytes`.
    pub request_bytes: usize,
    pub tls: bool,
    pub login: Option<Login>,
    pub timeout: Duration,
}

/// The codec. Others that Kafka supports would need C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
}

/// SASL.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 4616: the brokers see the password, so it needs TLS.
    Plain,
    /// RFC 7677.
    ScramSha256,
    ScramSha512,
}

impl Config {
    /// A log without a sink.
    pub fn new(node: impl Into<String>, spool: impl Into<PathBuf>) -> Self {
        Self {
            node: node.into(),
            version: env!("CARGO_PKG_VERSION"),
            flush_interval: Duration::from_millis(200),
            batch_events: 20_000,
            batch_bytes: 1 << 20,
            // 640 KiB per thread.
            ring_places: 8_192,
            memory_bytes: 32 << 20,
            spool: spool.into(),
            spool_bytes: 1 << 30,
            drain: Duration::from_secs(5),
            sinks: Vec::new(),
        }
    }

    /// The first problem, as a text for the operator.
    pub fn check(&self) -> Result<(), String> {
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.flush_interval) {
            return Err("the flush interval of events must be 10 ms to 60 s".to_owned());
        }
        if !(1..=100_000).contains(&self.batch_events) || !(1 << 10..=4 << 20).contains(&self.batch_bytes) {
            return Err("a batch must have 1 to 100,000 events and 1 KiB to 4 MiB".to_owned());
        }
        if !(64..=1 << 20).contains(&self.ring_places) {
            return Err("a ring must have room for 64 to 1,048,576 events".to_owned());
        }
        // A batch ends with the line that fills it.
        if self.memory_bytes < 2 * self.batch_bytes || self.spool_bytes < 8 * self.batch_bytes as u64 {
            return Err("the memory must hold at least two batches, and the spool eight".to_owned());
        }
        let mut names: Vec<_> = self.sinks.iter().map(Sink::name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("there must be at most one sink of each kind".to_owned());
        }
        self.sinks.iter().try_for_each(Sink::check)
    }
}

impl Sink {
    /// The name in metrics, the log and the spool's folder.
    pub fn name(&self) -> &'static str {
        match self {
            Sink::File(_) => "file",
            Sink::Stdout => "stdout",
            Sink::Webhook(_) => "webhook",
            Sink::Firehose(_) => "firehose",
            Sink::Kafka(_) => "kafka",
        }
    }

    /// Whether batches that it does not accept are spooled: if a local file cannot be written, a spool file cannot
    /// either.
    pub(crate) fn spools(&self) -> bool {
        matches!(self, Sink::Webhook(_) | Sink::Firehose(_) | Sink::Kafka(_))
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Sink::File(file) => file.check(),
            Sink::Stdout => Ok(()),
            Sink::Webhook(webhook) => webhook.check(),
            Sink::Firehose(firehose) => firehose.check(),
            Sink::Kafka(kafka) => kafka.check(),
        }
    }
}

impl File {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            bytes: 256 << 20,
            age: Duration::from_secs(3_600),
            keep_bytes: 10 << 30,
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.bytes < 64 << 10 || self.age < Duration::from_secs(1) {
            return Err("an event file must have at least 64 KiB and a second".to_owned());
        }
        Ok(())
    }
}

impl Webhook {
    pub fn new(url: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        Self { url: url.into(), secret: secret.into(), timeout: Duration::from_secs(10) }
    }

    fn check(&self) -> Result<(), String> {
        if !self.url.starts_with("https://") && !self.url.starts_with("http://") {
            return Err("a webhook must be an https:// URL".to_owned());
        }
        // Standard Webhooks: 24 to 64 bytes.
        if !(24..=64).contains(&self.secret.len()) {
            return Err("a webhook's secret must have 24 to 64 bytes".to_owned());
        }
        check_timeout(self.timeout)
    }
}

impl Firehose {
    pub fn new(connection: noroshi_egress::aws::Connection, stream: impl Into<String>) -> Self {
        // A thread has one record in flight, so its record is as large as it may be.
        let (record_bytes, calls, timeout) = (1_000 << 10, 4, Duration::from_secs(10));
        Self { connection, stream: stream.into(), record_bytes, calls, timeout }
    }

    fn check(&self) -> Result<(), String> {
        // PutRecordBatch, DeliveryStreamName: [a-zA-Z0-9_.-]+, at most 64.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if self.stream.is_empty() || self.stream.len() > 64 || !self.stream.bytes().all(plain) {
            return Err("a stream's name must have 1 to 64 of a-z, A-Z, 0-9, '_', '.' and '-'".to_owned());
        }
        if self.record_bytes > 1_000 << 10 {
            return Err("a record of Firehose must have at most 1,000 KiB".to_owned());
        }
        if !(1..=64).contains(&self.calls) {
            return Err("there must be 1 to 64 calls of Firehose in flight".to_owned());
        }
        check_timeout(self.timeout)
    }
}

impl Kafka {
    pub fn new(brokers: Vec<(String, u16)>, topic: impl Into<String>) -> Self {
        Self {
            brokers,
            topic: topic.into(),
            spread: false,
            compression: Compression::Gzip,
            // `max.message.bytes` is 1,048,588 by default.
            request_bytes: 1 << 20,
            tls: false,
            login: None,
            timeout: Duration::from_secs(10),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.brokers.is_empty() || self.brokers.len() > 64 {
            return Err("there must be 1 to 64 brokers of Kafka".to_owned());
        }
        // org.apache.kafka.common.internals.Topic: [a-zA-Z0-9._-]+, at most 249, neither "." nor "..".
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let dots = matches!(self.topic.as_str(), "." | "..");
        if !(1..=249).contains(&self.topic.len()) || !self.topic.bytes().all(plain) || dots {
            return Err("a topic's name must have 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'".to_owned());
        }
        if !(16 << 10..=16 << 20).contains(&self.request_bytes) {
            return Err("the limit of a call to Kafka must be 16 KiB to 16 MiB".to_owned());
        }
        if let Some(login) = &self.login {
            if login.mechanism == Mechanism::Plain && !self.tls {
                return Err("the mechanism plain reveals the password and needs tls".to_owned());
            }
            if login.user.is_empty() || login.password.is_empty() {
                return Err("a log-in to Kafka needs a user and a password".to_owned());
            }
        }
        check_timeout(self.timeout)
    }
}

fn check_timeout(timeout: Duration) -> Result<(), String> {
    match (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&timeout) {
        true => Ok(()),
        false => Err("the timeout of a sink must be 100 ms to 60 s".to_owned()),
    }
}

/// Never shows the secret.
impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_configurations_of_sinks_are_rejected() {
        let webhook = |url: &str, secret| Sink::Webhook(Webhook::new(url, vec![7; secret]));
        let firehose = |stream: &str, record_bytes| {
            let connection = noroshi_egress::aws::Connection::default();
            Sink::Firehose(Firehose { record_bytes, ..Firehose::new(connection, stream) })
        };
        let check = |sinks| Config { sinks, ..Config::new("n", "spool") }.check();
        assert_eq!(check(vec![webhook("https://x", 32), firehose("events", 0), Sink::Stdout]), Ok(()));
        let kafka = |topic: &str, login: Option<Mechanism>| {
            let login =
                login.map(|mechanism| Login { mechanism, user: "u".to_owned(), password: "p".to_owned() });
            Sink::Kafka(Kafka { login, ..Kafka::new(vec![("b".to_owned(), 9092)], topic) })
        };
        assert_eq!(check(vec![kafka("a.b", Some(Mechanism::ScramSha512))]), Ok(()));
        for wrong in [
            kafka("..", None),
            kafka("a/b", None),
            kafka("a", Some(Mechanism::Plain)),
            Sink::Kafka(Kafka::new(Vec::new(), "a")),
            webhook("ftp://x", 32),
            webhook("https://x", 8),
            firehose("", 0),
            firehose("a b", 0),
            firehose("events", 2 << 20),
            Sink::Firehose(Firehose {
                calls: 65,
                ..Firehose::new(noroshi_egress::aws::Connection::default(), "events")
            }),
        ] {
            assert!(check(vec![wrong.clone()]).is_err(), "{wrong:?}");
        }
        assert!(check(vec![Sink::Stdout, Sink::Stdout]).is_err());
        let small = Config { spool_bytes: 1 << 20, ..Config::new("n", "spool") };
        assert!(small.check().is_err());
    }

    #[test]
    fn a_secret_is_not_shown() {
        let shown = format!("{:?}", Webhook::new("https://x", *b"do not show this to anyone"));
        assert!(!shown.contains("do not") && !shown.contains("100, 111"), "{shown}");
        let password = "do not show".to_owned();
        let login = Login { mechanism: Mechanism::Plain, user: "u".to_owned(), password };
        assert!(!format!("{login:?}").contains("do not"));
    }
}

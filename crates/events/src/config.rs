//! What the event log is told at its start. The values were checked by whoever read them; [`Config::check`] says the rules.

use std::path::PathBuf;
use std::time::Duration;

/// Everything but where metrics are registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Who tells: `node` of each line.
    pub node: String,
    /// `version` of the first line.
    pub version: &'static str,
    /// So long an event waits for others at most; also what a killed process loses at most.
    pub flush_interval: Duration,
    /// A batch is closed at so many events …
    pub batch_events: u64,
    /// … or bytes.
    pub batch_bytes: usize,
    /// Places of a thread's ring: events between two looks of the collector.
    pub ring_places: usize,
    /// What waits for one sink in memory.
    pub memory_bytes: usize,
    /// What waits for one sink on disk, in a folder of its own below this.
    pub spool: PathBuf,
    pub spool_bytes: u64,
    /// How long the end of the log may take.
    pub drain: Duration,
    pub sinks: Vec<Sink>,
}

/// Where events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    File(File),
    Stdout,
    Webhook(Webhook),
    Firehose(Firehose),
    Kafka(Kafka),
}

/// Files that are rotated and compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub folder: PathBuf,
    /// A file is closed at so many bytes …
    pub bytes: u64,
    /// … or when it is so old.
    pub age: Duration,
    /// All closed files together; the oldest go.
    pub keep_bytes: u64,
}

/// Each batch is posted, signed.
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
    pub connection: noroshi_aws::Connection,
    pub stream: String,
    /// Lines share a record of up to so many bytes; 0: each is a record of its own.
    pub record_bytes: usize,
    pub timeout: Duration,
}

/// A topic of Apache Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kafka {
    /// Host and port of some brokers, which know the others.
    pub brokers: Vec<(String, u16)>,
    pub topic: String,
    /// Over all partitions of the topic in turn, instead of one for each node.
    pub spread: bool,
    pub compression: Compression,
    /// One call's, before it is compressed; at most the topic's `max.message.bytes`.
    pub request_bytes: usize,
    pub tls: bool,
    pub login: Option<Login>,
    pub timeout: Duration,
}

/// Of what is sent at once. The others that Kafka knows would need C.
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
    /// RFC 4616: the brokers read the password, so it needs TLS.
    Plain,
    /// RFC 7677.
    ScramSha256,
    ScramSha512,
}

impl Config {
    /// A log that goes nowhere yet.
    pub fn new(node: impl Into<String>, spool: impl Into<PathBuf>) -> Self {
        Self {
            node: node.into(),
            version: env!("CARGO_PKG_VERSION"),
            flush_interval: Duration::from_millis(200),
            batch_events: 20_000,
            batch_bytes: 1 << 20,
            // 640 KiB a thread.
            ring_places: 8_192,
            memory_bytes: 32 << 20,
            spool: spool.into(),
            spool_bytes: 1 << 30,
            drain: Duration::from_secs(5),
            sinks: Vec::new(),
        }
    }

    /// What is wrong, in an operator's words.
    pub fn check(&self) -> Result<(), String> {
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.flush_interval) {
            return Err("events are flushed every 10 ms to 60 s".to_owned());
        }
        if !(1..=100_000).contains(&self.batch_events) || !(1 << 10..=4 << 20).contains(&self.batch_bytes) {
            return Err("a batch has 1 to 100,000 events and 1 KiB to 4 MiB".to_owned());
        }
        if !(64..=1 << 20).contains(&self.ring_places) {
            return Err("a ring has 64 to 1,048,576 places".to_owned());
        }
        // A batch ends with the line that fills it.
        if self.memory_bytes < 2 * self.batch_bytes || self.spool_bytes < 8 * self.batch_bytes as u64 {
            return Err("memory has room for two batches at least, and the spool for eight".to_owned());
        }
        let mut names: Vec<_> = self.sinks.iter().map(Sink::name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("there is one sink of each kind".to_owned());
        }
        self.sinks.iter().try_for_each(Sink::check)
    }
}

impl Sink {
    /// As metrics, the log and the spool's folder call it.
    pub fn name(&self) -> &'static str {
        match self {
            Sink::File(_) => "file",
            Sink::Stdout => "stdout",
            Sink::Webhook(_) => "webhook",
            Sink::Firehose(_) => "firehose",
            Sink::Kafka(_) => "kafka",
        }
    }

    /// Whether what it does not take waits on disk: a local file that cannot be written is no better than another.
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
            return Err("an event file has 64 KiB at least and a second".to_owned());
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
            return Err("a webhook is an https:// URL".to_owned());
        }
        // Standard Webhooks: 24 to 64 bytes.
        if !(24..=64).contains(&self.secret.len()) {
            return Err("a webhook's secret has 24 to 64 bytes".to_owned());
        }
        check_timeout(self.timeout)
    }
}

impl Firehose {
    pub fn new(connection: noroshi_aws::Connection, stream: impl Into<String>) -> Self {
        // 500 records of 8,000 bytes are just under 4 MiB: one call takes as much as it may.
        let (record_bytes, timeout) = (8_000, Duration::from_secs(10));
        Self { connection, stream: stream.into(), record_bytes, timeout }
    }

    fn check(&self) -> Result<(), String> {
        // PutRecordBatch, DeliveryStreamName: [a-zA-Z0-9_.-]+, at most 64.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if self.stream.is_empty() || self.stream.len() > 64 || !self.stream.bytes().all(plain) {
            return Err("a stream's name is 1 to 64 of a-z, A-Z, 0-9, '_', '.' and '-'".to_owned());
        }
        if self.record_bytes > 1_000 << 10 {
            return Err("a record of Firehose has at most 1,000 KiB".to_owned());
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
            // `max.message.bytes` is 1,048,588 unless somebody changed it.
            request_bytes: 1 << 20,
            tls: false,
            login: None,
            timeout: Duration::from_secs(10),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.brokers.is_empty() || self.brokers.len() > 64 {
            return Err("Kafka has 1 to 64 brokers to begin with".to_owned());
        }
        // org.apache.kafka.common.internals.Topic: [a-zA-Z0-9._-]+, at most 249, neither "." nor "..".
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let dots = matches!(self.topic.as_str(), "." | "..");
        if !(1..=249).contains(&self.topic.len()) || !self.topic.bytes().all(plain) || dots {
            return Err("a topic's name is 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'".to_owned());
        }
        if !(16 << 10..=16 << 20).contains(&self.request_bytes) {
            return Err("a call to Kafka has 16 KiB to 16 MiB".to_owned());
        }
        if let Some(login) = &self.login {
            if login.mechanism == Mechanism::Plain && !self.tls {
                return Err("the mechanism plain shows the password: it needs tls".to_owned());
            }
            if login.user.is_empty() || login.password.is_empty() {
                return Err("a log-in to Kafka has a user and a password".to_owned());
            }
        }
        check_timeout(self.timeout)
    }
}

fn check_timeout(timeout: Duration) -> Result<(), String> {
    match (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&timeout) {
        true => Ok(()),
        false => Err("a sink has 100 ms to 60 s for its answer".to_owned()),
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
    fn what_a_sink_does_not_take_is_refused_before() {
        let webhook = |url: &str, secret| Sink::Webhook(Webhook::new(url, vec![7; secret]));
        let firehose = |stream: &str, record_bytes| {
            let connection = noroshi_aws::Connection::default();
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

//! Keys of the event log, the rules between them, and the secrets of its sinks. Without a sink there is no event log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use noroshi_egress::aws::Connection;
use noroshi_events::config::{
    Compression, Config as Log, File, Firehose, Kafka, Login, Mechanism, Sink, Webhook,
};

use super::{DAY, KIB, MIB, MINUTE, SECOND, Server};
use crate::config::reader::{Reader, any};
use crate::small_file;

const GIB: usize = 1 << 30;
const MS: Duration = Duration::from_millis(1);
const URL: (&str, &str) = ("url", "https:// or http://");

/// Longer than any form of the secret. A larger file is a different one.
const FILE_BYTES_MAX: u64 = 4 << 10;

const EXPECTED: &str = "must contain `whsec_` and 24 to 64 bytes in base64, as created by `echo whsec_$(openssl rand -base64 32)`";

/// The event log. Without a sink there is none.
#[derive(Debug, Clone)]
pub struct Events {
    /// Without the node's name, which is added when the log starts.
    pub log: Log,
    webhook_key_file: Option<PathBuf>,
    kafka_password_file: Option<PathBuf>,
}

impl Events {
    pub(in crate::config) fn read(reader: &mut Reader, server: &Server) -> Events {
        let defaults = Log::new("", server.data.join("events"));
        let mut log = keys!(reader, Log {
            spool = value(spool(reader).unwrap_or_else(|| defaults.spool.clone())),
            /// Maximum time that an event waits for its batch. A killed process loses these events.
            flush_interval = duration("events.flush_interval", defaults.flush_interval, 10 * MS..=MINUTE),
            /// Number of events that completes a batch.
            batch_events = count("events.batch_events", defaults.batch_events, 1..=100_000, "events"),
            /// Size that completes a batch.
            batch_bytes = size("events.batch_bytes", defaults.batch_bytes, KIB..=4 * MIB),
            /// Memory for pending events of one sink; more are written to disk. At least two batches.
            memory_bytes = size("events.memory", defaults.memory_bytes, 2 * KIB..=4 * GIB),
            /// Disk space for pending events of one sink. Beyond it, the newest events are dropped and counted. At
            /// least eight batches.
            spool_bytes = size("events.spool_bytes", 1 << 30, 8 * KIB..=1_024 * GIB) as u64,
            /// Timeout for sending pending events when the node stops; the rest stays on disk.
            drain = duration("events.drain", defaults.drain, Duration::ZERO..=5 * MINUTE),
            ..defaults
        });
        let (file, stdout) = (file(reader), stdout(reader));
        let (webhook_key_file, webhook) = webhook(reader);
        let firehose = firehose(reader);
        let (kafka_password_file, kafka) = kafka(reader);
        log.sinks = [file, stdout, webhook, firehose, kafka].into_iter().flatten().collect();
        Events { log, webhook_key_file, kafka_password_file }
    }

    pub(in crate::config) fn complete(&mut self, reader: &mut Reader) {
        for sink in &mut self.log.sinks {
            match sink {
                Sink::Webhook(webhook) => match self.webhook_key_file.as_deref().map(read) {
                    Some(Ok(secret)) => webhook.secret = secret,
                    Some(Err(problem)) => return reader.problem("events.webhook.key_file", problem),
                    None => return reader.problem("events.webhook.key_file", EXPECTED),
                },
                Sink::Firehose(_) if !noroshi_events::sink::FIREHOSE => {
                    let text = "this build does not include Amazon Kinesis Data Firehose (feature `firehose`); `make dist` builds one that does";
                    return reader.problem("events.firehose.stream", text);
                }
                Sink::Kafka(_) if !noroshi_events::sink::KAFKA => {
                    let text = "this build does not include Apache Kafka (feature `kafka`); `make dist` builds one that does";
                    return reader.problem("events.kafka.topic", text);
                }
                Sink::Kafka(kafka) if !(1..=64).contains(&kafka.brokers.len()) => {
                    return reader.problem(
                        "events.kafka.brokers",
                        "must name 1 to 64 brokers, because events.kafka.topic is set",
                    );
                }
                Sink::Kafka(kafka) => {
                    let Some(login) = &mut kafka.login else { continue };
                    match self.kafka_password_file.as_deref().map(password) {
                        Some(Ok(password)) => login.password = password,
                        Some(Err(problem)) => return reader.problem("events.kafka.password_file", problem),
                        None => {
                            let text = "must name the file with the password of events.kafka.user";
                            return reader.problem("events.kafka.password_file", text);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Err(problem) = self.log.check() {
            reader.problem("events.flush_interval", problem);
        }
    }
}

fn spool(reader: &mut Reader) -> Option<PathBuf> {
    let help = "Folder for events that network sinks cannot accept yet. Unset: `events` in `server.data`.";
    reader.optional_path("events.spool", "a folder", help)
}

fn file(reader: &mut Reader) -> Option<Sink> {
    let help = "Folder for event files: events.ndjson, and closed ones compressed. Unset: none.";
    let folder = reader.optional_path("events.file.folder", "a folder", help);
    let defaults = File::new(folder.clone().unwrap_or_default());
    let file = keys!(reader, File {
        /// Size at which a file is closed …
        bytes = size("events.file.size", 256 * MIB, 64 * KIB..=64 * GIB) as u64,
        /// … or so old.
        age = duration("events.file.age", defaults.age, SECOND..=30 * DAY),
        /// Total size of closed files. The oldest are deleted.
        keep_bytes = size("events.file.keep", 10 * GIB, 0..=64 * 1_024 * GIB) as u64,
        ..defaults
    });
    folder.map(|_| Sink::File(file))
}

fn stdout(reader: &mut Reader) -> Option<Sink> {
    let on = reader.switch("events.stdout", false, "Writes events to standard output.");
    on.then_some(Sink::Stdout)
}

/// The sink, and the file with its secret.
fn webhook(reader: &mut Reader) -> (Option<PathBuf>, Option<Sink>) {
    let help = "URL to which events are posted, signed according to Standard Webhooks. Unset: none.";
    let url = reader.optional("events.webhook.url", URL, any, help);
    let form = "a file with whsec_ and 24 to 64 bytes in base64";
    let key_file = reader.optional_path("events.webhook.key_file", form, "File with the signing key.");
    let timeout = timeout(reader, "events.webhook.timeout");
    // The secret is read after all keys.
    let webhook = Webhook { timeout, ..Webhook::new(url.clone().unwrap_or_default(), []) };
    (key_file, url.map(|_| Sink::Webhook(webhook)))
}

fn firehose(reader: &mut Reader) -> Option<Sink> {
    let form = ("text", "a-z, A-Z, 0-9, `_`, `.` and `-`, at most 64");
    let help = "Amazon Kinesis Data Firehose stream for events. Unset: none.";
    let stream = reader.optional("events.firehose.stream", form, any, help);
    let connection = keys!(reader, Connection {
        /// Endpoint of a compatible service. Unset: Amazon's.
        endpoint = optional("events.firehose.endpoint", URL, any),
        /// AWS region. Unset: from the environment or the profile.
        region = optional("events.firehose.region", ("text", "such as eu-west-1"), any),
    });
    let firehose = keys!(reader, Firehose {
        /// Maximum size of a record, which has lines of one thread. 0B: one record per line.
        record_bytes = size("events.firehose.record", 1_000 * KIB, 0..=1_000 * KIB),
        /// Calls in flight. With 1, all lines of a node are in the order of `n`.
        calls = count("events.firehose.calls", 4, 1..=64, "calls") as usize,
        timeout = value(timeout(reader, "events.firehose.timeout")),
        ..Firehose::new(connection, stream.clone().unwrap_or_default())
    });
    stream.map(|_| Sink::Firehose(firehose))
}

/// The sink, and the file with its password.
fn kafka(reader: &mut Reader) -> (Option<PathBuf>, Option<Sink>) {
    let form = ("text", "a-z, A-Z, 0-9, `.`, `_` and `-`, at most 249");
    let help = "Apache Kafka topic for events, which must exist. Unset: none.";
    let topic = reader.optional("events.kafka.topic", form, any, help);
    let brokers = brokers(reader);
    let mut kafka = keys!(reader, Kafka {
        /// Distributes events over all partitions. Otherwise all events of a node go to one partition, in order.
        spread = switch("events.kafka.spread", false),
        /// Compression of a request.
        compression = one_of("events.kafka.compression", &[
            ("gzip", Compression::Gzip),
            ("snappy", Compression::Snappy),
            ("none", Compression::None),
        ]),
        /// Size of a request before compression. At most the topic's max.message.bytes.
        request_bytes = size("events.kafka.request", MIB, 16 * KIB..=16 * MIB),
        /// TLS to the brokers, with the certificate authorities of `egress.ca_file`.
        tls = switch("events.kafka.tls", false),
        login = value(login(reader)),
        ..Kafka::new(brokers, topic.clone().unwrap_or_default())
    });
    let help = "File with the password of `events.kafka.user`.";
    let password_file = reader.optional_path("events.kafka.password_file", "a file with the password", help);
    kafka.timeout = timeout(reader, "events.kafka.timeout");
    (password_file, topic.map(|_| Sink::Kafka(kafka)))
}

fn brokers(reader: &mut Reader) -> Vec<(String, u16)> {
    let form = ("list", "HOST:PORT, separated by commas");
    let check = |text: &str| text.split(',').map(str::trim).try_for_each(super::host_and_port);
    let text = reader.optional("events.kafka.brokers", form, check, "Bootstrap brokers.");
    let address = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    };
    text.iter().flat_map(|text| text.split(',')).map(str::trim).filter_map(address).collect()
}

/// Without the password, which is read after all keys.
fn login(reader: &mut Reader) -> Option<Login> {
    let help = "User name for SASL. Unset: no authentication.";
    let user = reader.optional("events.kafka.user", ("text", "a name"), any, help);
    let mechanisms = [
        ("scram-sha-512", Mechanism::ScramSha512),
        ("scram-sha-256", Mechanism::ScramSha256),
        ("plain", Mechanism::Plain),
    ];
    let help = "SASL mechanism. `plain` requires `events.kafka.tls`.";
    let mechanism = reader.one_of("events.kafka.mechanism", &mechanisms, help);
    user.map(|user| Login { mechanism, user, password: String::new() })
}

fn timeout(reader: &mut Reader, key: &'static str) -> Duration {
    let default = Duration::from_secs(10);
    reader.duration(key, default, 100 * MS..=MINUTE, "Timeout of a request.")
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let text = small_file::read(path, FILE_BYTES_MAX)?.ok_or(EXPECTED)?;
    noroshi_egress::webhook::secret(text.trim()).map_err(|_| EXPECTED.to_owned())
}

/// One line.
fn password(path: &Path) -> Result<String, String> {
    let text = small_file::read(path, FILE_BYTES_MAX)?.unwrap_or_default();
    let password = text.trim_end_matches(['\r', '\n']);
    match password.is_empty() || password.contains(char::is_control) {
        true => Err("must contain a password, on one line".to_owned()),
        false => Ok(password.to_owned()),
    }
}

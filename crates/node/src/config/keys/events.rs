//! Keys of the event log. Without a sink there is no event log.

use std::path::PathBuf;
use std::time::Duration;

use noroshi_events::config::{
    Compression, Config as Log, File, Firehose, Kafka, Login, Mechanism, Sink, Webhook,
};

use super::{DAY, KIB, MIB, MINUTE, Reader, SECOND};
use crate::config::{Events, Server};

const GIB: usize = 1 << 30;
const MS: Duration = Duration::from_millis(1);

impl Events {
    pub(super) fn read(reader: &mut Reader, server: &Server) -> Events {
        let defaults = Log::new("", server.data.join("events"));
        let spool = reader
            .optional(
                "events.spool",
                ("path", "a folder"),
                |_| Ok(()),
                "Folder for events that network sinks cannot accept yet. Unset: `events` in `server.data`.",
            )
            .map_or(defaults.spool.clone(), Into::into);
        let mut log = Log {
            spool,
            flush_interval: reader.duration(
                "events.flush_interval",
                defaults.flush_interval,
                10 * MS..=MINUTE,
                "Maximum time that an event waits for its batch. A killed process loses these events.",
            ),
            batch_events: reader.count(
                "events.batch_events",
                defaults.batch_events,
                1..=100_000,
                "events",
                "Number of events that completes a batch.",
            ),
            batch_bytes: reader.size(
                "events.batch_bytes",
                defaults.batch_bytes,
                KIB..=4 * MIB,
                "Size that completes a batch.",
            ),
            memory_bytes: reader.size(
                "events.memory",
                defaults.memory_bytes,
                2 * KIB..=4 * GIB,
                "Memory for pending events of one sink; more are written to disk. At least two batches.",
            ),
            spool_bytes: reader.size(
                "events.spool_bytes",
                1 << 30,
                8 * KIB..=1_024 * GIB,
                "Disk space for pending events of one sink. Beyond it, the newest events are dropped and counted. At least eight batches.",
            ) as u64,
            drain: reader.duration(
                "events.drain",
                defaults.drain,
                Duration::ZERO..=5 * MINUTE,
                "Timeout for sending pending events when the node stops; the rest stays on disk.",
            ),
            ..defaults
        };
        let (file, stdout) = (file(reader), stdout(reader));
        let (webhook_key_file, webhook) = webhook(reader);
        let firehose = firehose(reader);
        let (kafka_password_file, kafka) = kafka(reader);
        log.sinks = [file, stdout, webhook, firehose, kafka].into_iter().flatten().collect();
        Events { log, webhook_key_file, kafka_password_file }
    }
}

fn file(reader: &mut Reader) -> Option<Sink> {
    let folder = reader.optional(
        "events.file.folder",
        ("path", "a folder"),
        |_| Ok(()),
        "Folder for event files: events.ndjson, and closed ones compressed. Unset: none.",
    );
    let defaults = File::new(folder.clone().unwrap_or_default());
    let file = File {
        bytes: reader.size(
            "events.file.size",
            256 * MIB,
            64 * KIB..=64 * GIB,
            "Size at which a file is closed …",
        ) as u64,
        age: reader.duration("events.file.age", defaults.age, SECOND..=30 * DAY, "… or so old."),
        keep_bytes: reader.size(
            "events.file.keep",
            10 * GIB,
            0..=64 * 1_024 * GIB,
            "Total size of closed files. The oldest are deleted.",
        ) as u64,
        ..defaults
    };
    folder.map(|_| Sink::File(file))
}

fn stdout(reader: &mut Reader) -> Option<Sink> {
    let on = reader.switch("events.stdout", false, "Writes events to standard output.");
    on.then_some(Sink::Stdout)
}

/// The sink, and the file with its secret.
fn webhook(reader: &mut Reader) -> (Option<PathBuf>, Option<Sink>) {
    let url = reader.optional(
        "events.webhook.url",
        ("url", "https:// or http://"),
        |_| Ok(()),
        "URL to which events are posted, signed according to Standard Webhooks. Unset: none.",
    );
    let key_file = reader.optional(
        "events.webhook.key_file",
        ("path", "a file with whsec_ and 24 to 64 bytes in base64"),
        |_| Ok(()),
        "File with the signing key.",
    );
    let timeout = timeout(reader, "events.webhook.timeout");
    // The secret is read after all keys.
    let webhook = Webhook { timeout, ..Webhook::new(url.clone().unwrap_or_default(), []) };
    (key_file.map(Into::into), url.map(|_| Sink::Webhook(webhook)))
}

fn firehose(reader: &mut Reader) -> Option<Sink> {
    let any = |_: &str| Ok(());
    let stream = reader.optional(
        "events.firehose.stream",
        ("text", "a-z, A-Z, 0-9, `_`, `.` and `-`, at most 64"),
        any,
        "Amazon Kinesis Data Firehose stream for events. Unset: none.",
    );
    let connection = noroshi_egress::aws::Connection {
        endpoint: reader.optional(
            "events.firehose.endpoint",
            ("url", "https:// or http://"),
            any,
            "Endpoint of a compatible service. Unset: Amazon's.",
        ),
        region: reader.optional(
            "events.firehose.region",
            ("text", "such as eu-west-1"),
            any,
            "AWS region. Unset: from the environment or the profile.",
        ),
    };
    let firehose = Firehose {
        record_bytes: reader.size(
            "events.firehose.record",
            8_000,
            0..=1_000 * KIB,
            "Maximum size of a record of several lines. 0B: one record per line.",
        ),
        timeout: timeout(reader, "events.firehose.timeout"),
        ..Firehose::new(connection, stream.clone().unwrap_or_default())
    };
    stream.map(|_| Sink::Firehose(firehose))
}

/// The sink, and the file with its password.
fn kafka(reader: &mut Reader) -> (Option<PathBuf>, Option<Sink>) {
    let any = |_: &str| Ok(());
    let topic = reader.optional(
        "events.kafka.topic",
        ("text", "a-z, A-Z, 0-9, `.`, `_` and `-`, at most 249"),
        any,
        "Apache Kafka topic for events, which must exist. Unset: none.",
    );
    let brokers = reader.optional(
        "events.kafka.brokers",
        ("list", "HOST:PORT, separated by commas"),
        |text| text.split(',').map(str::trim).try_for_each(super::host_and_port),
        "Bootstrap brokers.",
    );
    let address = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    };
    let brokers =
        brokers.iter().flat_map(|text| text.split(',')).map(str::trim).filter_map(address).collect();
    let spread = reader.switch(
        "events.kafka.spread",
        false,
        "Distributes events over all partitions. Otherwise all events of a node go to one partition, in order.",
    );
    let compression = match reader.one_of(
        "events.kafka.compression",
        &["gzip", "snappy", "none"],
        "Compression of a request.",
    ) {
        0 => Compression::Gzip,
        1 => Compression::Snappy,
        _ => Compression::None,
    };
    let request_bytes = reader.size(
        "events.kafka.request",
        MIB,
        16 * KIB..=16 * MIB,
        "Size of a request before compression. At most the topic's max.message.bytes.",
    );
    let tls = reader.switch(
        "events.kafka.tls",
        false,
        "TLS to the brokers, with the certificate authorities of `egress.ca_file`.",
    );
    let user = reader.optional(
        "events.kafka.user",
        ("text", "a name"),
        any,
        "User name for SASL. Unset: no authentication.",
    );
    let mechanism = match reader.one_of(
        "events.kafka.mechanism",
        &["scram-sha-512", "scram-sha-256", "plain"],
        "SASL mechanism. `plain` requires `events.kafka.tls`.",
    ) {
        0 => Mechanism::ScramSha512,
        1 => Mechanism::ScramSha256,
        _ => Mechanism::Plain,
    };
    let password_file = reader.optional(
        "events.kafka.password_file",
        ("path", "a file with the password"),
        any,
        "File with the password of `events.kafka.user`.",
    );
    let timeout = timeout(reader, "events.kafka.timeout");
    // The password is read after all keys.
    let login = user.map(|user| Login { mechanism, user, password: String::new() });
    let kafka = Kafka {
        spread,
        compression,
        request_bytes,
        tls,
        login,
        timeout,
        ..Kafka::new(brokers, topic.clone().unwrap_or_default())
    };
    (password_file.map(Into::into), topic.map(|_| Sink::Kafka(kafka)))
}

fn timeout(reader: &mut Reader, key: &'static str) -> Duration {
    let default = Duration::from_secs(10);
    reader.duration(key, default, 100 * MS..=MINUTE, "Timeout of a request.")
}

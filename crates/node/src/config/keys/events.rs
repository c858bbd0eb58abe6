//! The keys of the event log. Where no sink is named there is no log.

use std::time::Duration;

use noroshi_events::config::{Config as Log, File, Firehose, Sink, Webhook};

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
                "What sinks on the network cannot take now waits here. Unset: `events` in `server.data`.",
            )
            .map_or(defaults.spool.clone(), Into::into);
        let mut log = Log {
            spool,
            flush_interval: reader.duration(
                "events.flush_interval",
                defaults.flush_interval,
                10 * MS..=MINUTE,
                "How long an event waits for others; what a killed process loses.",
            ),
            batch_events: reader.count(
                "events.batch_events",
                defaults.batch_events,
                1..=100_000,
                "events",
                "A batch goes to the sinks when it has so many.",
            ),
            batch_bytes: reader.size(
                "events.batch_bytes",
                defaults.batch_bytes,
                KIB..=4 * MIB,
                "A batch goes to the sinks when it is so large.",
            ),
            memory_bytes: reader.size(
                "events.memory",
                defaults.memory_bytes,
                2 * KIB..=4 * GIB,
                "What waits in memory for one sink; then it waits on disk. Two batches at least.",
            ),
            spool_bytes: reader.size(
                "events.spool_bytes",
                1 << 30,
                8 * KIB..=1_024 * GIB,
                "What waits on disk for one sink; then the newest events are lost and counted. Eight batches at least.",
            ) as u64,
            drain: reader.duration(
                "events.drain",
                defaults.drain,
                Duration::ZERO..=5 * MINUTE,
                "How long sinks have to take what is left when the node ends; then it waits on disk.",
            ),
            ..defaults
        };
        let sinks = [file(reader), stdout(reader), webhook(reader), firehose(reader)];
        let (webhook_key_file, sinks): (Vec<_>, Vec<_>) = sinks.into_iter().flatten().unzip();
        log.sinks = sinks;
        Events { log, webhook_key_file: webhook_key_file.into_iter().flatten().next() }
    }
}

/// A sink, and the file with its secret.
type Named = Option<(Option<std::path::PathBuf>, Sink)>;

fn file(reader: &mut Reader) -> Named {
    let folder = reader.optional(
        "events.file.folder",
        ("path", "a folder"),
        |_| Ok(()),
        "Writes events to files here: events.ndjson, and closed ones compressed. Unset: none.",
    );
    let defaults = File::new(folder.clone().unwrap_or_default());
    let file = File {
        bytes: reader.size(
            "events.file.size",
            256 * MIB,
            64 * KIB..=64 * GIB,
            "A file is closed when it is so large …",
        ) as u64,
        age: reader.duration("events.file.age", defaults.age, SECOND..=30 * DAY, "… or so old."),
        keep_bytes: reader.size(
            "events.file.keep",
            10 * GIB,
            0..=64 * 1_024 * GIB,
            "All closed files together; the oldest are removed.",
        ) as u64,
        ..defaults
    };
    folder.map(|_| (None, Sink::File(file)))
}

fn stdout(reader: &mut Reader) -> Named {
    let on = reader.switch("events.stdout", false, "Writes events to standard output.");
    on.then_some((None, Sink::Stdout))
}

fn webhook(reader: &mut Reader) -> Named {
    let url = reader.optional(
        "events.webhook.url",
        ("url", "https:// or http://"),
        |_| Ok(()),
        "Posts events here, signed as Standard Webhooks says. Unset: none.",
    );
    let key_file = reader.optional(
        "events.webhook.key_file",
        ("path", "a file with whsec_ and 24 to 64 bytes in base64"),
        |_| Ok(()),
        "The key of the signatures.",
    );
    let timeout = timeout(reader, "events.webhook.timeout");
    // The secret is read when everything else was.
    let webhook = Webhook { timeout, ..Webhook::new(url.clone().unwrap_or_default(), []) };
    url.map(|_| (Some(key_file.unwrap_or_default().into()), Sink::Webhook(webhook)))
}

fn firehose(reader: &mut Reader) -> Named {
    let any = |_: &str| Ok(());
    let stream = reader.optional(
        "events.firehose.stream",
        ("text", "a-z, A-Z, 0-9, `_`, `.` and `-`, at most 64"),
        any,
        "Sends events to this stream of Amazon Kinesis Data Firehose. Unset: none.",
    );
    let connection = noroshi_aws::Connection {
        endpoint: reader.optional(
            "events.firehose.endpoint",
            ("url", "https:// or http://"),
            any,
            "Of another service that speaks its protocol. Unset: Amazon's.",
        ),
        region: reader.optional(
            "events.firehose.region",
            ("text", "such as eu-west-1"),
            any,
            "Unset: as the environment or the profile says.",
        ),
    };
    let firehose = Firehose {
        record_bytes: reader.size(
            "events.firehose.record",
            8_000,
            0..=1_000 * KIB,
            "Lines share a record of up to this size; 0B: each is a record of its own.",
        ),
        timeout: timeout(reader, "events.firehose.timeout"),
        ..Firehose::new(connection, stream.clone().unwrap_or_default())
    };
    stream.map(|_| (None, Sink::Firehose(firehose)))
}

fn timeout(reader: &mut Reader, key: &'static str) -> Duration {
    let default = Duration::from_secs(10);
    reader.duration(key, default, 100 * MS..=MINUTE, "How long an answer may take.")
}

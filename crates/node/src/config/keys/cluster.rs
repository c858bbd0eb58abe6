//! Keys of what nodes share: the name and the roles of this one, the store, the cluster.

use noroshi_sqs::{Connection, IntakeConfig, QueueConfig};
use noroshi_types::limits;

use super::{DAY, HOUR, MINUTE, SECOND, public_url};
use crate::config::reader::Reader;
use crate::config::{Cluster, Front, Node, Sqs, Store};

impl Node {
    pub(in crate::config) fn read(reader: &mut Reader) -> Node {
        Node {
            name: reader.optional(
                "node.name",
                ("text", "letters, digits, `-`, `_` and `.`, at most 64"),
                node_name,
                "What this node is called in lists and logs. Unset: the host's name and the port of `server.http`.",
            ),
            roles: reader.roles(
                "node.roles",
                "What this node does: `api` serves the HTTP API, `gateway` holds devices, `sender` asks push services; `front` alone stands before several cells.",
            ),
            advertise: reader.optional(
                "node.advertise",
                ("url", "http:// or https://, without a path"),
                public_url,
                "How devices reach this very node, told to them by API nodes without `server.public_url`. Unset: `server.public_url`, else the host's name.",
            ),
        }
    }
}

impl Store {
    pub(in crate::config) fn read(reader: &mut Reader) -> Store {
        Store {
            url: reader.engine_url(
                "store.url",
                &["postgres://", "postgresql://"],
                "PostgreSQL database that all nodes of a cluster share: `postgres://USER:PASSWORD@HOST[,HOST2]/DATABASE?sslmode=require`. Unset: SQLite in `server.data`.",
            ),
            connections: reader.count(
                "store.connections",
                16,
                2..=1_000,
                "connections",
                "To PostgreSQL, at most, by this node.",
            ) as usize,
            statement_timeout: reader.duration(
                "store.statement_timeout",
                30 * SECOND,
                SECOND..=HOUR,
                "A statement that PostgreSQL works on for longer is cancelled.",
            ),
            inbox_rows: reader.count(
                "store.inbox_rows",
                u64::from(limits::INBOX_ROWS),
                1..=100_000,
                "notifications",
                "Newest notifications kept for one device. An inbox may exceed this by a sixteenth before the store evicts the oldest.",
            ) as u32,
            topic_log_rows: reader.count(
                "store.topic_log_rows",
                limits::TOPIC_LOG_ROWS,
                1..=10_000_000,
                "messages",
                "Stored messages kept of one topic; the oldest make room.",
            ),
            trace_retention: reader.duration(
                "store.trace_retention",
                limits::TRACE_RETENTION,
                HOUR..=90 * DAY,
                "How long the trace of a notification is kept.",
            ),
            database_bytes_max: match reader.size(
                "store.database_max",
                0,
                0..=1 << 50,
                "Size of the database above which nothing more is accepted; 0 is as far as the disk goes.",
            ) {
                0 => None,
                bytes => Some(bytes as u64),
            },
        }
    }
}

impl Cluster {
    pub(in crate::config) fn read(reader: &mut Reader) -> Cluster {
        let any = |_: &str| Ok(());
        Cluster {
            redis: reader.engine_url(
                "cluster.redis",
                &["redis://", "rediss://", "redis-", "rediss-", "valkey"],
                "Redis or Valkey by which the nodes of a cluster know of each other: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `redis-cluster://HOST,HOST2`, `redis-sentinel://HOST,HOST2/MASTER`. Needs `store.url`. Unset: this node is alone.",
            ),
            redis_ca_file: reader
                .optional(
                    "cluster.redis_ca_file",
                    ("path", "a PEM file"),
                    any,
                    "Certificate authorities that `rediss://` servers are checked by, instead of those of the web.",
                )
                .map(Into::into),
            prefix: reader.text(
                "cluster.prefix",
                "noroshi",
                ("text", "letters, digits, `-`, `_` and `.`, at most 64"),
                node_name,
                "Begins the name of everything kept in Redis: clusters that share a Redis need different ones.",
            ),
            lease: reader.duration(
                "cluster.lease",
                10 * SECOND,
                SECOND..=5 * MINUTE,
                "A node that Redis has not heard of for so long is gone, and its sessions are void.",
            ),
            sweep_interval: reader.duration(
                "cluster.sweep_interval",
                MINUTE,
                SECOND..=HOUR,
                "How often connected devices are compared with the store, for what a lost message between nodes left behind.",
            ),
            rejoin_rate: super::count_u32(
                reader,
                "cluster.rejoin_rate",
                20_000,
                "sessions a second",
                "Put into Redis again after it was emptied or nodes were away, by all gateways together; each costs it about 7 µs.",
            ),
        }
    }
}

impl Front {
    pub(in crate::config) fn read(reader: &mut Reader) -> Front {
        let defaults = noroshi_cells::Config::default();
        Front {
            cells_file: reader
                .optional(
                    "front.cells_file",
                    ("path", "a TOML file with a [[cell]] for each"),
                    |_| Ok(()),
                    "The cells that this front stands before: name, urls, admin_url, operator_token, public_url, weight.",
                )
                .map(Into::into),
            cells: Vec::new(),
            outbox_parts_max: reader.count(
                "front.outbox",
                defaults.outbox_parts_max,
                1_000..=1_000_000_000,
                "messages",
                "That may wait for one cell; more for it are refused.",
            ),
            request_timeout: reader.duration(
                "front.request_timeout",
                defaults.request_timeout,
                SECOND..=5 * MINUTE,
                "How long a cell may take to answer.",
            ),
        }
    }
}

impl Sqs {
    pub(in crate::config) fn read(reader: &mut Reader) -> Sqs {
        let any = |_: &str| Ok(());
        let url = ("url", "https:// or http://");
        let connection = Connection {
            endpoint: reader.optional(
                "sqs.endpoint",
                url,
                any,
                "Of an SQS of one's own, such as ElasticMQ. Unset: Amazon's.",
            ),
            region: reader.optional(
                "sqs.region",
                ("text", "such as eu-west-1"),
                any,
                "Unset: as the environment or the profile says.",
            ),
        };
        let prefix = reader.text(
            "sqs.queue_prefix",
            "noroshi-push",
            ("text", "a-z, A-Z, 0-9, `-` and `_`, at most 71"),
            any,
            "Begins the names of the queues of `push.queue` = \"sqs\": `…-extra`, `…-direct`, `…-campaign`.",
        );
        let create = reader.switch(
            "sqs.create_queues",
            false,
            "Makes the queues of `push.queue` = \"sqs\" where they are missing.",
        );
        let queue = QueueConfig { create, ..QueueConfig::new(connection.clone(), prefix) };
        Sqs { queue, intake: intake(reader, connection) }
    }
}

fn intake(reader: &mut Reader, connection: Connection) -> Option<IntakeConfig> {
    let any = |_: &str| Ok(());
    let url = ("url", "https:// or http://");
    let queue_url = reader.optional(
        "intake.sqs.queue_url",
        url,
        any,
        "A queue of notifications, each as in `POST /v1/notifications`.",
    );
    let defaults = IntakeConfig::new(connection, queue_url.clone().unwrap_or_default());
    let intake = IntakeConfig {
        app: reader.optional(
            "intake.sqs.app",
            ("text", "the name of an app"),
            any,
            "Whose messages are that have no attribute `app`. Unset: such a message is refused.",
        ),
        dead_letter_url: reader.optional(
            "intake.sqs.dead_letter_url",
            url,
            any,
            "The queue for what can never be accepted. Unset: it is left to the queue's own redrive policy.",
        ),
        receives_max: super::count_u32(
            reader,
            "intake.sqs.receives_max",
            defaults.receives_max,
            "times",
            "A message is received that could not be accepted, before it is set aside.",
        ),
        ..defaults
    };
    queue_url.map(|_| intake)
}

fn node_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match (1..=64).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(()),
        false => Err("letters, digits, `-`, `_` and `.`, at most 64".to_owned()),
    }
}

//! Keys of the node in its cluster: name, roles, store, cluster, front and SQS.

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
                "Name of this node in lists and logs. Unset: the host name and the port of `server.http`.",
            ),
            roles: reader.roles(
                "node.roles",
                "Roles of this node: `api` serves the HTTP API, `gateway` holds device connections, `sender` sends to push services. `front`, as the only role, forwards requests to several cells.",
            ),
            advertise: reader.optional(
                "node.advertise",
                ("url", "http:// or https://, without a path"),
                public_url,
                "Public URL of this particular node, which API nodes without `server.public_url` return to devices. Unset: `server.public_url`, otherwise the host name.",
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
                "PostgreSQL database, shared by all nodes of a cluster: `postgres://USER:PASSWORD@HOST[,HOST2]/DATABASE?sslmode=require`. Unset: SQLite in `server.data`.",
            ),
            connections: reader.count(
                "store.connections",
                16,
                2..=1_000,
                "connections",
                "Maximum connections of this node to PostgreSQL.",
            ) as usize,
            statement_timeout: reader.duration(
                "store.statement_timeout",
                30 * SECOND,
                SECOND..=HOUR,
                "Timeout of a PostgreSQL statement.",
            ),
            inbox_rows: reader.count(
                "store.inbox_rows",
                u64::from(limits::INBOX_ROWS),
                1..=100_000,
                "notifications",
                "Maximum messages in a device's inbox. An inbox may exceed this by a sixteenth before the store evicts the oldest.",
            ) as u32,
            topic_log_rows: reader.count(
                "store.topic_log_rows",
                limits::TOPIC_LOG_ROWS,
                1..=10_000_000,
                "messages",
                "Maximum messages in a topic's log. The oldest are evicted.",
            ),
            trace_retention: reader.duration(
                "store.trace_retention",
                limits::TRACE_RETENTION,
                HOUR..=90 * DAY,
                "Retention of notification traces.",
            ),
            database_bytes_max: match reader.size(
                "store.database_max",
                0,
                0..=1 << 50,
                "Size of the database above which requests that store data are rejected. 0: no limit but the disk.",
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
                "Redis or Valkey that connects the nodes of a cluster: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `redis-cluster://HOST,HOST2`, `redis-sentinel://HOST,HOST2/MASTER`. Requires `store.url`. Unset: a single node.",
            ),
            redis_ca_file: reader
                .optional(
                    "cluster.redis_ca_file",
                    ("path", "a PEM file"),
                    any,
                    "Certificate authorities for `rediss://` servers, instead of the public ones.",
                )
                .map(Into::into),
            prefix: reader.text(
                "cluster.prefix",
                "noroshi",
                ("text", "letters, digits, `-`, `_` and `.`, at most 64"),
                node_name,
                "Prefix of all Redis keys. Clusters that share a Redis need different prefixes.",
            ),
            lease: reader.duration(
                "cluster.lease",
                10 * SECOND,
                SECOND..=5 * MINUTE,
                "Lease of a node in Redis. A node that does not renew it is considered gone, and its sessions are invalid.",
            ),
            sweep_interval: reader.duration(
                "cluster.sweep_interval",
                MINUTE,
                SECOND..=HOUR,
                "Interval for comparing connected devices with the store, which recovers messages lost between nodes.",
            ),
            rejoin_rate: super::count_u32(
                reader,
                "cluster.rejoin_rate",
                20_000,
                "sessions a second",
                "Sessions per second, over all gateways, that are registered again after Redis lost its data or nodes were disconnected. Each takes Redis about 7 µs.",
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
                    "The cells of this front: name, urls, admin_url, operator_token, public_url, weight.",
                )
                .map(Into::into),
            cells: Vec::new(),
            outbox_parts_max: reader.count(
                "front.outbox",
                defaults.outbox_parts_max,
                1_000..=1_000_000_000,
                "messages",
                "Pending parts of notifications for one cell. Further ones are rejected.",
            ),
            request_timeout: reader.duration(
                "front.request_timeout",
                defaults.request_timeout,
                SECOND..=5 * MINUTE,
                "Timeout of a request to a cell.",
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
                "Endpoint of an SQS-compatible service, such as ElasticMQ. Unset: Amazon's.",
            ),
            region: reader.optional(
                "sqs.region",
                ("text", "such as eu-west-1"),
                any,
                "AWS region. Unset: from the environment or the profile.",
            ),
        };
        let prefix = reader.text(
            "sqs.queue_prefix",
            "noroshi-push",
            ("text", "a-z, A-Z, 0-9, `-` and `_`, at most 71"),
            any,
            "Prefix of the queues of `push.queue` = \"sqs\": `…-extra`, `…-direct`, `…-campaign`.",
        );
        let create =
            reader.switch("sqs.create_queues", false, "Creates missing queues of `push.queue` = \"sqs\".");
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
        "URL of a queue of notifications in the format of `POST /v1/notifications`.",
    );
    let defaults = IntakeConfig::new(connection, queue_url.clone().unwrap_or_default());
    let intake = IntakeConfig {
        app: reader.optional(
            "intake.sqs.app",
            ("text", "the name of an app"),
            any,
            "App of messages without the attribute `app`. Unset: such messages are rejected.",
        ),
        dead_letter_url: reader.optional(
            "intake.sqs.dead_letter_url",
            url,
            any,
            "Queue for messages that can never be accepted. Unset: the queue's own redrive policy applies.",
        ),
        receives_max: super::count_u32(
            reader,
            "intake.sqs.receives_max",
            defaults.receives_max,
            "times",
            "Attempts to accept a message before it moves to the dead letter queue.",
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

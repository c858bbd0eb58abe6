//! Every configuration key: a flat table of calls, in the order of the reference in `docs/configuration.md`, each with its
//! default, range and description. `types::limits` has the defaults of limits, with their reasons.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use noroshi_auth::{FailureLimits, ForwardingHeader, TrustedProxies};
use noroshi_types::limits;

use super::reader::Reader;
use super::{
    Auth, Cluster, Config, Drain, Egress, Events, Front, Gateway, Limits, Log, Mqtt, Node, Profiling, Push,
    Queue, Server, Sqs, Store, TlsFiles, Tracing, WebPush, Xmpp,
};

mod cluster;
mod events;
mod profiling;
mod quota;
mod tracing;
mod xmpp;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl Config {
    /// All keys.
    pub(super) fn read(reader: &mut Reader) -> Config {
        let server = Server::read(reader);
        Config {
            limits: Limits::read(reader),
            gateway: Gateway::read(reader),
            mqtt: Mqtt::read(reader),
            xmpp: Xmpp::read(reader, &server),
            node: Node::read(reader),
            store: Store::read(reader),
            cluster: Cluster::read(reader),
            front: Front::read(reader),
            sqs: Sqs::read(reader),
            auth: Auth::read(reader),
            egress: Egress::read(reader, server.dev),
            push: Push::read(reader),
            web_push: WebPush::read(reader),
            quotas: quota::read(reader),
            events: Events::read(reader, &server),
            tracing: Tracing::read(reader),
            profiling: Profiling::read(reader),
            server,
            log: Log::read(reader),
            entries: Vec::new(),
        }
    }
}

impl Server {
    fn read(reader: &mut Reader) -> Server {
        let dev =
            reader.switch("server.dev", false, "Creates the app `dev` with a key, even if other apps exist.");
        // A development node prints its key on the terminal, so it must not be reachable from the network.
        let public = if dev { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let public = SocketAddr::new(IpAddr::V4(public), 8080);
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
        Server {
            dev,
            http: reader.address(
                "server.http",
                public,
                "Public address: the API, WebSocket and SSE. With `server.dev` the default is 127.0.0.1:8080.",
            ),
            http2: reader.switch(
                "server.http2",
                true,
                "HTTP/2 on the public and the admin address, in addition to HTTP/1.1: with TLS by ALPN (h2), in cleartext by prior knowledge.",
            ),
            public_url: reader.optional(
                "server.public_url",
                ("url", "http:// or https://, without a path"),
                public_url,
                "Public URL of this node, or of the load balancer in front of all gateways, returned to devices at registration. Unset: `node.advertise` of a live gateway; without a cluster, the request's Host header.",
            ),
            app_domain: reader.optional(
                "server.app_domain",
                ("domain", "a host name"),
                app_domain,
                "A request to NAME.DOMAIN selects the app NAME for its JWT, like `?app=NAME`. Unset: host names select no app.",
            ),
            admin: reader.address("server.admin", loopback, "Address of the admin API, /metrics, /livez and /readyz."),
            data: reader.path("server.data", "./noroshi-data", "Folder of the database and generated keys."),
            shards: reader.count("server.shards", 0, 0..=1_024, "threads", "Threads that hold connections. 0: one per core.")
                as usize,
            workers: reader.count("server.workers", 0, 0..=1_024, "threads", "Threads that serve the API. 0: one per core.")
                as usize,
            stall_timeout: reader.duration(
                "server.stall_timeout",
                limits::STALL_TIMEOUT,
                Duration::ZERO..=HOUR,
                "A thread that makes no progress for this long ends the node (exit code 70). Must exceed the longest disk write. 0s: never.",
            ),
            proxies: TrustedProxies {
                networks: reader.networks(
                    "server.trusted_proxies",
                    &[],
                    "Networks of trusted proxies and load balancers. For connections from them, the client is the rightmost address in server.forwarding_header that is outside these networks. Headers of other connections are ignored.",
                ),
                header: match reader.one_of(
                    "server.forwarding_header",
                    &["x-forwarded-for", "forwarded"],
                    "The header that every trusted proxy sets (Forwarded: RFC 7239). Only this one is trusted, since a proxy may pass on the other one from the client.",
                ) {
                    0 => ForwardingHeader::XForwardedFor,
                    _ => ForwardingHeader::Forwarded,
                },
            },
            conformance: reader.switch("server.conformance", false, "For conformance suites only: echoes at /v1/echo, /engine.io/ and /socket.io/ (no devices there), MQTT without a token."),
            tls: tls(
                reader,
                ("tls.cert", "tls.key"),
                "Certificate chain of the public address, PEM. Reloaded on SIGHUP.",
                "Private key of tls.cert, PEM.",
            ),
            admin_tls: tls(
                reader,
                ("admin.tls.cert", "admin.tls.key"),
                "Certificate chain of the admin address, PEM. Reloaded on SIGHUP.",
                "Private key of admin.tls.cert, PEM.",
            ),
        }
    }
}

impl Limits {
    fn read(reader: &mut Reader) -> Limits {
        Limits {
            data_bytes: reader.size(
                "limits.data",
                limits::DATA_BYTES,
                0..=MIB,
                "Size of `data` in a notification.",
            ),
            body_bytes: reader.size(
                "limits.body",
                limits::BODY_BYTES,
                4 * KIB..=256 * MIB,
                "Size of a request body.",
            ),
            topic_bytes: reader.size(
                "limits.topic",
                limits::TOPIC_BYTES_MAX,
                limits::TOPIC_BYTES_MAX..=limits::TOPIC_BYTES_CEILING,
                "Length of a topic, topic filter or pattern of a rule. Up to 65535 B, as in MQTT; with PostgreSQL up to 2600 B, the limit of its index. Longer names use more memory for each subscribed topic, and in a path they require a larger limits.head.",
            ),
            head_bytes: reader.size(
                "limits.head",
                limits::HEAD_BYTES,
                KIB..=limits::HEAD_BYTES,
                "Size of the request line and headers.",
            ),
            headers: reader.count(
                "limits.headers",
                limits::HEADERS as u64,
                16..=limits::HEADERS as u64,
                "headers",
                "Number of headers in a request.",
            ) as usize,
            client_message_bytes: reader.size(
                "limits.client_message",
                limits::CLIENT_MESSAGE_BYTES,
                KIB..=16 * MIB,
                "Size of a message from a device.",
            ),
            requests_in_flight: reader.count(
                "limits.requests_in_flight",
                4_096,
                1..=1_000_000,
                "requests",
                "Concurrent API requests; further ones get 503 with Retry-After.",
            ) as usize,
            connections_per_client: reader.count(
                "limits.connections_per_client",
                limits::API_CONNECTIONS_PER_CLIENT as u64,
                0..=1_000_000,
                "connections",
                "HTTP connections of one client (an IPv4 address or IPv6 /64), without those that used an API key. A further one evicts an idle one, or gets 503. 0: no limit. Connections from server.trusted_proxies do not count.",
            ) as usize,
            http2_streams: reader.count(
                "limits.http2_streams",
                u64::from(limits::HTTP2_STREAMS),
                1..=10_000,
                "streams",
                "Concurrent requests of one HTTP/2 connection. Every stream except one counts toward limits.connections_per_client.",
            ) as u32,
            timing: noroshi_api::Timing {
                body_first_byte: reader.duration(
                    "limits.body_first_byte_timeout",
                    limits::BODY_FIRST_BYTE_TIMEOUT,
                    SECOND..=5 * MINUTE,
                    "Timeout for the first byte of a request body; then 408.",
                ),
                body: reader.duration(
                    "limits.body_timeout",
                    limits::BODY_TIMEOUT,
                    SECOND..=HOUR,
                    "Timeout for a whole request body; then 408.",
                ),
                body_rate_min: reader.count(
                    "limits.body_rate_min",
                    u64::from(limits::BODY_RATE_MIN),
                    1..=u64::from(u32::MAX),
                    "bytes per second",
                    "Minimum rate of a body: each time this many bytes arrive, the deadline moves from limits.body_first_byte_timeout by one second, up to limits.body_timeout. Reading this many bytes of a response offsets one second of limits.send_timeout.",
                ) as u32,
                send: reader.duration(
                    "limits.send_timeout",
                    limits::SEND_TIMEOUT,
                    SECOND..=HOUR,
                    "A client that blocks the sending of a response for this long is disconnected.",
                ),
            },
        }
    }
}

impl Mqtt {
    fn read(reader: &mut Reader) -> Mqtt {
        Mqtt {
            listen: reader.optional_address(
                "mqtt.listen",
                1883,
                "Address for MQTT without TLS, such as 0.0.0.0:1883. Unset: none. MQTT over WebSocket is always available at /mqtt of the public address.",
            ),
            tls_listen: reader.optional_address(
                "mqtt.tls_listen",
                8883,
                "Address for MQTT over TLS, such as 0.0.0.0:8883, with the certificate of tls.cert. Unset: none.",
            ),
            public_url: reader.optional(
                "mqtt.public_url",
                ("url", "mqtts:// or mqtt:// and HOST:PORT"),
                |text| tcp_url(text, ["mqtts", "mqtt"]),
                "Public URL of MQTT over TCP (mqtts:// with TLS), which nodes with the role api return as mqtt_tcp. One name for all nodes, such as that of a TCP load balancer. Unset: not returned.",
            ),
            redirect: reader.optional(
                "mqtt.redirect",
                ("text", "HOST:PORT, separated by spaces"),
                servers,
                "Servers to which a draining or full node redirects MQTT 5 clients over TCP and TLS (Server Reference). Unset: the node asks clients to use another server, and they reconnect to the same name.",
            ),
            moved: reader.switch(
                "mqtt.moved",
                false,
                "The redirect to mqtt.redirect is permanent: 0x9D instead of 0x9C.",
            ),
        }
    }
}

fn servers(text: &str) -> Result<(), String> {
    match text.split(' ').try_for_each(host_and_port) {
        Ok(()) if text.len() <= 1_024 => Ok(()),
        _ => Err("HOST:PORT, or several separated by a space, such as \"push2.example.com:1883\"".to_owned()),
    }
}

impl Gateway {
    fn read(reader: &mut Reader) -> Gateway {
        Gateway {
            connections_max: reader.count(
                "gateway.connections_max",
                0,
                0..=100_000_000,
                "connections",
                "Connections of this node. 0: as many as the file descriptor limit allows.",
            ) as usize,
            unauthenticated_max: reader.count(
                "gateway.unauthenticated_max",
                0,
                0..=100_000_000,
                "connections",
                "Connections that have not authenticated yet, including handshakes. Above it, the oldest is closed. 0: a quarter of all, at most 16,384.",
            ) as usize,
            connections_per_client: reader.count(
                "gateway.connections_per_client",
                u64::from(limits::CONNECTIONS_PER_CLIENT),
                0..=u64::from(u32::MAX),
                "connections",
                "Connections of devices from one client (an IPv4 address or IPv6 /64; behind server.trusted_proxies the forwarded one, or no limit over TCP without HTTP). Mobile carriers put thousands of phones behind one address. 0: no limit.",
            ) as u32,
            connects_per_second: count_u32(
                reader,
                "gateway.connects_per_second",
                limits::CONNECTS_PER_SECOND,
                "connections per second",
                "New connections per second. Above it, devices are asked to retry later, or wait with TLS.",
            ),
            frames_per_second: count_u32(
                reader,
                "gateway.frames_per_second",
                limits::FRAMES_PER_SECOND,
                "frames per second",
                "Frames per second that one device may send, averaged over the burst.",
            ),
            frames_burst: count_u32(
                reader,
                "gateway.frames_burst",
                limits::FRAMES_BURST,
                "frames",
                "Frames that one device may send in a burst.",
            ),
            auth_timeout: reader.duration(
                "gateway.auth_timeout",
                limits::AUTH_TIMEOUT,
                SECOND..=5 * MINUTE,
                "Timeout for the token of a new connection.",
            ),
            head_timeout: reader.duration(
                "gateway.head_timeout",
                limits::HEAD_TIMEOUT,
                SECOND..=5 * MINUTE,
                "Timeout for a complete request head.",
            ),
            ping_interval: reader.duration(
                "gateway.ping_interval",
                limits::PING_INTERVAL,
                SECOND..=HOUR,
                "Interval between pings of an idle connection.",
            ),
            ping_timeout: reader.duration(
                "gateway.ping_timeout",
                limits::PING_TIMEOUT,
                SECOND..=HOUR,
                "Timeout for any bytes from the device after a ping.",
            ),
            send_queue_soft_bytes: reader.size(
                "gateway.send_queue_soft",
                limits::SEND_QUEUE_SOFT_BYTES,
                KIB..=64 * MIB,
                "Unsent bytes of a connection above which `active` and `connected` messages are dropped.",
            ),
            send_queue_bytes: reader.size(
                "gateway.send_queue",
                limits::SEND_QUEUE_BYTES,
                KIB..=256 * MIB,
                "Unsent bytes of a connection above which it is closed.",
            ),
            send_stall: reader.duration(
                "gateway.send_stall",
                limits::SEND_STALL,
                SECOND..=HOUR,
                "A connection that reads none of its unsent bytes for this long is closed.",
            ),
            parked_sessions_bytes: reader.size(
                "gateway.parked_sessions",
                limits::PARKED_SESSIONS_BYTES,
                64 * KIB..=64 * 1024 * MIB,
                "Memory for sessions without a connection (in-flight messages, wills), for MQTT and for XMPP each. When full, the oldest session of the app that uses most of it is evicted.",
            ),
            tcp_keepalive: reader.duration(
                "gateway.tcp_keepalive",
                limits::TCP_KEEPALIVE,
                SECOND..=2 * HOUR,
                "Idle time before TCP keepalive probes the peer. Without an answer, the connection closes a minute later.",
            ),
            io_uring: reader.switch(
                "gateway.io_uring",
                true,
                "Passes messages for many connections to the kernel in one call, if the kernel and the build support it (Linux io_uring).",
            ),
            websocket_deflate: reader.switch(
                "gateway.websocket_deflate",
                false,
                "Compresses messages of WebSockets whose clients offer permessage-deflate (RFC 7692).",
            ),
            drain: Drain {
                rate: count_u32(
                    reader,
                    "gateway.drain.rate",
                    1_000,
                    "connections per second",
                    "Connections moved per second when the node stops.",
                ),
                spread: reader.duration(
                    "gateway.drain.spread",
                    5 * SECOND,
                    Duration::ZERO..=HOUR,
                    "Moved devices reconnect after a random delay of up to this time.",
                ),
                deadline: reader.duration(
                    "gateway.drain.deadline",
                    30 * SECOND,
                    Duration::ZERO..=HOUR,
                    "Connections that are still open after this time are closed.",
                ),
            },
        }
    }
}

impl Auth {
    fn read(reader: &mut Reader) -> Auth {
        Auth {
            device_token_ttl: reader.duration(
                "auth.device_token_ttl",
                limits::DEVICE_TOKEN_TTL,
                MINUTE..=3_650 * DAY,
                "Lifetime of a device token.",
            ),
            failures: FailureLimits {
                per_client_per_minute: count_u32(
                    reader,
                    "auth.failures_per_client",
                    limits::FAILED_LOG_INS_PER_CLIENT,
                    "failures per minute",
                    "Failed log-ins per minute from one IPv4 address or IPv6 /64. Beyond it, the node answers failures with a retry delay, delays its HTTP responses to JWTs by one second, and verifies at most 20 new RS256 or ES256 tokens per second.",
                ),
                per_app_per_minute: count_u32(
                    reader,
                    "auth.failures_per_app",
                    limits::FAILED_LOG_INS_PER_APP,
                    "failures per minute",
                    "Failed log-ins per minute of one app, from all clients. Failures of a client beyond its own limit do not count. Beyond it, 100 such tokens of the app are verified per second.",
                ),
            },
        }
    }
}

impl Egress {
    fn read(reader: &mut Reader, dev: bool) -> Egress {
        // A development node may use servers on the same machine.
        let loopback = [
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
        ];
        let any = |_: &str| Ok(());
        Egress {
            allow: reader.networks(
                "egress.allow",
                if dev { &loopback } else { &[] },
                "Non-public networks that outgoing connections may reach. With `server.dev` the default is [\"127.0.0.0/8\", \"::1/128\"].",
            ),
            proxy: reader.proxy(
                "egress.proxy",
                "HTTP proxy for all outgoing connections. Unset: the environment variables `https_proxy`, `http_proxy`, `all_proxy`.",
            ),
            no_proxy: reader.optional(
                "egress.no_proxy",
                ("list", "comma-separated names, addresses and networks"),
                any,
                "Hosts to reach without the proxy. Unset: the environment variable `no_proxy`.",
            ),
            ca_file: reader
                .optional(
                    "egress.ca_file",
                    ("path", "a PEM file"),
                    any,
                    "Certificate authorities to trust in addition to the public ones.",
                )
                .map(Into::into),
            proxies: Default::default(),
        }
    }
}

impl Push {
    fn read(reader: &mut Reader) -> Push {
        Push {
            key_file: reader
                .optional(
                    "push.key_file",
                    ("path", "a file of 32 bytes in base64 or hexadecimal"),
                    |_| Ok(()),
                    "Key that encrypts push credentials at rest. Unset: with `server.dev` generated as `push.key` in the data folder, otherwise no credentials can be added.",
                )
                .map(Into::into),
            queue: match reader.one_of(
                "push.queue",
                &["store", "redis", "sqs"],
                "Queue of push batches: the store, or Redis Streams or SQS, into which one sender distributes them. Must be the same on all nodes.",
            ) {
                0 => Queue::Store,
                1 => Queue::Redis,
                _ => Queue::Sqs,
            },
            connections: reader.count(
                "push.connections",
                limits::PUSH_CONNECTIONS as u64,
                1..=256,
                "connections",
                "Maximum connections to one push service for one credential.",
            ) as usize,
            request_timeout: reader.duration(
                "push.request_timeout",
                limits::PUSH_REQUEST_TIMEOUT,
                SECOND..=5 * MINUTE,
                "Timeout for a push service's answer to one push.",
            ),
            batch: reader.count(
                "push.batch",
                limits::CAMPAIGN_BATCH.into(),
                1..=limits::CAMPAIGN_BATCH_MAX.into(),
                "recipients",
                "Default number of recipients in one batch of a campaign.",
            ) as u32,
            in_flight: reader.count(
                "push.in_flight",
                limits::PUSH_IN_FLIGHT as u64,
                1..=1_000_000,
                "recipients",
                "Total recipients taken from the queue and not answered yet.",
            ) as usize,
        }
    }
}

impl WebPush {
    fn read(reader: &mut Reader) -> WebPush {
        WebPush {
            endpoint_per_minute: count_u32(
                reader,
                "web_push.endpoint_rate",
                limits::ENDPOINT_MESSAGES_PER_MINUTE,
                "messages per minute",
                "Messages to one Web Push endpoint at this node, as average and burst. Further ones get 429 with Retry-After.",
            ),
            app_per_second: count_u32(
                reader,
                "web_push.app_rate",
                limits::APP_ENDPOINT_MESSAGES_PER_SECOND,
                "messages per second",
                "Messages to all Web Push endpoints of one app at this node, as average; the burst is ten times as high.",
            ),
        }
    }
}

impl Log {
    fn read(reader: &mut Reader) -> Log {
        use noroshi_telemetry::log;
        let level = |text: &str| log::check(text).map_err(|error| error.to_string());
        Log {
            level: reader.text(
                "log.level",
                "info",
                ("level", "off, error, warn, info, debug, trace, or a list with target=level"),
                level,
                "Log level, on standard error.",
            ),
            format: match reader.one_of("log.format", &["text", "json"], "Log format.") {
                0 => log::Format::Text,
                _ => log::Format::Json,
            },
        }
    }
}

/// Both or none.
fn tls(
    reader: &mut Reader,
    keys: (&'static str, &'static str),
    cert_help: &'static str,
    key_help: &'static str,
) -> Option<TlsFiles> {
    let form = ("path", "a PEM file");
    let any = |_: &str| Ok(());
    let cert = reader.optional(keys.0, form, any, cert_help);
    let key = reader.optional(keys.1, form, any, key_help);
    match (cert, key) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert: cert.into(), key: key.into() }),
        (None, None) => None,
        (Some(_), None) => {
            reader.problem(keys.0, format!("requires {}", keys.1));
            None
        }
        (None, Some(_)) => {
            reader.problem(keys.1, format!("requires {}", keys.0));
            None
        }
    }
}

fn count_u32(
    reader: &mut Reader,
    key: &'static str,
    default: u32,
    unit: &'static str,
    help: &'static str,
) -> u32 {
    // The range fits in 32 bits.
    reader.count(key, u64::from(default), 1..=10_000_000, unit, help) as u32
}

fn public_url(text: &str) -> Result<(), String> {
    let expected = || "a URL without a path, such as \"https://push.example.com\"".to_owned();
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or_else(expected)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    match !rest.is_empty() && rest.chars().all(plain) {
        true => Ok(()),
        false => Err(expected()),
    }
}

fn app_domain(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    match !text.is_empty() && text.chars().all(plain) && !text.starts_with('.') && !text.ends_with('.') {
        true => Ok(()),
        false => Err("a host name without a port, such as \"push.example.com\"".to_owned()),
    }
}

/// The first scheme is the one with TLS.
fn tcp_url(text: &str, schemes: [&str; 2]) -> Result<(), String> {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)?.strip_prefix("://"));
    let parts = rest.and_then(|rest| rest.rsplit_once(':'));
    let is_port = |port: &str| {
        let plain = port.bytes().all(|byte| byte.is_ascii_digit());
        plain && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match parts {
        Some((host, port)) if is_host(host) && is_port(port) => Ok(()),
        _ => {
            let [tls, plain] = schemes;
            Err(format!("{tls}://HOST:PORT or {plain}://HOST:PORT, such as \"{tls}://push.example.com:443\""))
        }
    }
}

/// A name, or an address in the form of URLs.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => xmpp::domain_name(text).is_ok(),
    }
}

fn host_and_port(text: &str) -> Result<(), String> {
    let parts = text.rsplit_once(':');
    match parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    {
        true => Ok(()),
        false => Err("HOST:PORT, such as \"push2.example.com:5222\"".to_owned()),
    }
}

//! Every key of the configuration: a flat table of calls, in the order of the reference in
//! `docs/configuration.md`, each with its default, its range and a sentence. A default that an operator
//! may change is `types::limits`'s, where its reason stands.

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
        let dev = reader.switch(
            "server.dev",
            false,
            "Makes the app `dev` with a key also where there are other apps.",
        );
        // A development node shows its key on the screen: nothing for the network.
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
                "HTTP/2 on the public and the admin address, besides HTTP/1.1: under TLS where the client asks for it (ALPN h2), in the clear where it begins with it (prior knowledge).",
            ),
            public_url: reader.optional(
                "server.public_url",
                ("url", "http:// or https://, without a path"),
                public_url,
                "How devices reach this node, or the load balancer before all gateways; told at registration. Unset: a live gateway's `node.advertise`; of a node alone, the request's Host header.",
            ),
            app_domain: reader.optional(
                "server.app_domain",
                ("domain", "a host name"),
                app_domain,
                "A request to NAME.DOMAIN names the app NAME for the JWT that it brings, as `?app=NAME` does. Unset: host names name no app.",
            ),
            admin: reader.address("server.admin", loopback, "Address of the admin API, /metrics, /livez and /readyz."),
            data: reader.path("server.data", "./noroshi-data", "Folder of the database and generated keys."),
            shards: reader.count("server.shards", 0, 0..=1_024, "threads", "Threads that hold connections; 0 is one for each core.")
                as usize,
            workers: reader.count("server.workers", 0, 0..=1_024, "threads", "Threads that serve the API; 0 is one for each core.")
                as usize,
            stall_timeout: reader.duration(
                "server.stall_timeout",
                limits::STALL_TIMEOUT,
                Duration::ZERO..=HOUR,
                "A thread that works on one thing for this long without progress ends the node (exit code 70). Longer than any disk of the node may take for one write; 0s: never.",
            ),
            proxies: TrustedProxies {
                networks: reader.networks(
                    "server.trusted_proxies",
                    &[],
                    "Proxies and load balancers before this node: for connections from these networks, the client is who server.forwarding_header says, the rightmost address there that is not in them. Everyone else's header is ignored.",
                ),
                header: match reader.word(
                    "server.forwarding_header",
                    &["x-forwarded-for", "forwarded"],
                    "The header that every trusted proxy writes (Forwarded: RFC 7239). Only this one is believed, since a proxy passes the other on as the client wrote it.",
                ) {
                    0 => ForwardingHeader::XForwardedFor,
                    _ => ForwardingHeader::Forwarded,
                },
            },
            conformance: reader.switch("server.conformance", false, "For conformance suites alone: echoes at /v1/echo, /engine.io/ and /socket.io/ (no devices there), MQTT without a token."),
            tls: tls(
                reader,
                ("tls.cert", "tls.key"),
                "Certificate chain of the public address, PEM. Read again on SIGHUP.",
                "Private key of tls.cert, PEM.",
            ),
            admin_tls: tls(
                reader,
                ("admin.tls.cert", "admin.tls.key"),
                "Certificate chain of the admin address, PEM. Read again on SIGHUP.",
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
                "`data` of one notification.",
            ),
            body_bytes: reader.size(
                "limits.body",
                limits::BODY_BYTES,
                4 * KIB..=256 * MIB,
                "Body of one request.",
            ),
            topic_bytes: reader.size(
                "limits.topic",
                limits::TOPIC_BYTES_MAX,
                limits::TOPIC_BYTES_MAX..=limits::TOPIC_BYTES_CEILING,
                "Name of a topic, topic filter or rule's pattern. Up to 65535 B, as in MQTT; with PostgreSQL up to 2600 B, which is what its index takes. Longer ones cost as much more memory for each topic that somebody is subscribed to, and need limits.head to be named in a path.",
            ),
            head_bytes: reader.size(
                "limits.head",
                limits::HEAD_BYTES,
                KIB..=limits::HEAD_BYTES,
                "Request line and headers.",
            ),
            headers: reader.count(
                "limits.headers",
                limits::HEADERS as u64,
                16..=limits::HEADERS as u64,
                "headers",
                "Headers of one request.",
            ) as usize,
            client_message_bytes: reader.size(
                "limits.client_message",
                limits::CLIENT_MESSAGE_BYTES,
                KIB..=16 * MIB,
                "One message from a device.",
            ),
            requests_in_flight: reader.count(
                "limits.requests_in_flight",
                4_096,
                1..=1_000_000,
                "requests",
                "API requests served at once; more are told to come back (503).",
            ) as usize,
            connections_per_client: reader.count(
                "limits.connections_per_client",
                limits::API_CONNECTIONS_PER_CLIENT as u64,
                0..=1_000_000,
                "connections",
                "HTTP connections of one client (an IPv4 address, an IPv6 /64), without those that showed an API key; a further one takes the place of one that is idle, or is answered 503. 0: no limit. Connections from server.trusted_proxies do not count.",
            ) as usize,
            http2_streams: reader.count(
                "limits.http2_streams",
                u64::from(limits::HTTP2_STREAMS),
                1..=10_000,
                "streams",
                "Requests at once on one HTTP/2 connection. Every stream except one counts toward limits.connections_per_client.",
            ) as u32,
            timing: noroshi_api::Timing {
                body_first_byte: reader.duration(
                    "limits.body_first_byte_timeout",
                    limits::BODY_FIRST_BYTE_TIMEOUT,
                    SECOND..=5 * MINUTE,
                    "The first byte of a request's body has to arrive within this time; else 408.",
                ),
                body: reader.duration(
                    "limits.body_timeout",
                    limits::BODY_TIMEOUT,
                    SECOND..=HOUR,
                    "The whole body of a request has to arrive within this time; else 408.",
                ),
                body_rate_min: reader.count(
                    "limits.body_rate_min",
                    u64::from(limits::BODY_RATE_MIN),
                    1..=u64::from(u32::MAX),
                    "bytes a second",
                    "Minimum rate of a body: each time this many bytes arrive, the deadline moves from limits.body_first_byte_timeout by one second, up to limits.body_timeout. Reading this many bytes of an answer offsets one second of limits.send_timeout.",
                ) as u32,
                send: reader.duration(
                    "limits.send_timeout",
                    limits::SEND_TIMEOUT,
                    SECOND..=HOUR,
                    "A client that keeps the node waiting this long while it is sent an answer is closed.",
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
                "Address for MQTT without TLS, such as 0.0.0.0:1883. Unset: none. MQTT over WebSocket is at /mqtt of the public address in any case.",
            ),
            tls_listen: reader.optional_address(
                "mqtt.tls_listen",
                8883,
                "Address for MQTT under TLS, such as 0.0.0.0:8883, with the certificate of tls.cert. Unset: none.",
            ),
            public_url: reader.optional(
                "mqtt.public_url",
                ("url", "mqtts:// or mqtt:// and HOST:PORT"),
                |text| tcp_url(text, ["mqtts", "mqtt"]),
                "How devices reach MQTT over TCP, mqtts:// where that is under TLS; told as mqtt_tcp by nodes with the role api. One name for all nodes, such as a TCP load balancer's. Unset: not told.",
            ),
            redirect: reader.optional(
                "mqtt.redirect",
                ("text", "HOST:PORT with spaces between"),
                servers,
                "Where a drain, or a node without room, sends clients of MQTT 5 over TCP and TLS (Server Reference). Unset: they are told to use another server, and connect again by this one's name.",
            ),
            moved: reader.switch(
                "mqtt.moved",
                false,
                "What mqtt.redirect names is this server's new place for good: 0x9D instead of 0x9C.",
            ),
        }
    }
}

fn servers(text: &str) -> Result<(), String> {
    match text.split(' ').try_for_each(host_and_port) {
        Ok(()) if text.len() <= 1_024 => Ok(()),
        _ => {
            Err("HOST:PORT, or several with one space between, such as \"push2.example.com:1883\"".to_owned())
        }
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
                "Connections of this node; 0 is what the file-descriptor limit allows.",
            ) as usize,
            unauthenticated_max: reader.count(
                "gateway.unauthenticated_max",
                0,
                0..=100_000_000,
                "connections",
                "Connections that have not shown a credential yet, handshakes included; above it the oldest makes room. 0 is a quarter of all, at most 16,384.",
            ) as usize,
            connections_per_client: reader.count(
                "gateway.connections_per_client",
                u64::from(limits::CONNECTIONS_PER_CLIENT),
                0..=u64::from(u32::MAX),
                "connections",
                "Connections of devices from one client (an IPv4 address, an IPv6 /64; behind server.trusted_proxies the one they name, over TCP without HTTP none). Carriers put thousands of phones behind one address. 0: no limit.",
            ) as u32,
            connects_per_second: count_u32(
                reader,
                "gateway.connects_per_second",
                limits::CONNECTS_PER_SECOND,
                "connections a second",
                "New connections a second; above it devices are told to come back, or wait for their turn under TLS.",
            ),
            frames_per_second: count_u32(
                reader,
                "gateway.frames_per_second",
                limits::FRAMES_PER_SECOND,
                "frames a second",
                "Frames one device may send a second, averaged over the burst.",
            ),
            frames_burst: count_u32(
                reader,
                "gateway.frames_burst",
                limits::FRAMES_BURST,
                "frames",
                "Frames one device may send at once.",
            ),
            auth_timeout: reader.duration(
                "gateway.auth_timeout",
                limits::AUTH_TIMEOUT,
                SECOND..=5 * MINUTE,
                "A connection's token has to arrive within this time.",
            ),
            head_timeout: reader.duration(
                "gateway.head_timeout",
                limits::HEAD_TIMEOUT,
                SECOND..=5 * MINUTE,
                "A request head has to be complete within this time.",
            ),
            ping_interval: reader.duration(
                "gateway.ping_interval",
                limits::PING_INTERVAL,
                SECOND..=HOUR,
                "How often the server pings an idle connection.",
            ),
            ping_timeout: reader.duration(
                "gateway.ping_timeout",
                limits::PING_TIMEOUT,
                SECOND..=HOUR,
                "How long after a ping something must be heard.",
            ),
            send_queue_soft_bytes: reader.size(
                "gateway.send_queue_soft",
                limits::SEND_QUEUE_SOFT_BYTES,
                KIB..=64 * MIB,
                "Unsent bytes of one connection above which `active` and `connected` messages are dropped.",
            ),
            send_queue_bytes: reader.size(
                "gateway.send_queue",
                limits::SEND_QUEUE_BYTES,
                KIB..=256 * MIB,
                "Unsent bytes of one connection above which it is closed.",
            ),
            send_stall: reader.duration(
                "gateway.send_stall",
                limits::SEND_STALL,
                SECOND..=HOUR,
                "A connection whose unsent bytes do not move for this long is closed.",
            ),
            parked_sessions_bytes: reader.size(
                "gateway.parked_sessions",
                limits::PARKED_SESSIONS_BYTES,
                64 * KIB..=64 * 1024 * MIB,
                "Memory for sessions without a connection (in-flight messages, wills), of MQTT and of XMPP each. When it is full, the app that holds most of it loses its oldest.",
            ),
            tcp_keepalive: reader.duration(
                "gateway.tcp_keepalive",
                limits::TCP_KEEPALIVE,
                SECOND..=2 * HOUR,
                "How long a connection may be silent before TCP probes its peer, which is gone one minute later if it does not answer.",
            ),
            io_uring: reader.switch(
                "gateway.io_uring",
                true,
                "Messages to many connections are handed to the kernel together, where it and the build can (Linux io_uring).",
            ),
            websocket_deflate: reader.switch(
                "gateway.websocket_deflate",
                false,
                "Compresses messages on WebSockets whose clients offer permessage-deflate (RFC 7692).",
            ),
            drain: Drain {
                rate: count_u32(
                    reader,
                    "gateway.drain.rate",
                    1_000,
                    "connections a second",
                    "Connections told to leave a second when the node is stopped.",
                ),
                spread: reader.duration(
                    "gateway.drain.spread",
                    5 * SECOND,
                    Duration::ZERO..=HOUR,
                    "They are told to connect again within this time, each at another moment.",
                ),
                deadline: reader.duration(
                    "gateway.drain.deadline",
                    30 * SECOND,
                    Duration::ZERO..=HOUR,
                    "Connections still open after this time are closed.",
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
                    "failures a minute",
                    "Log-ins that may fail in a minute from one IPv4 address or IPv6 /64. Beyond it, the node answers failures with a retry delay, delays its HTTP responses to JWTs by one second, and verifies at most 20 new RS256 or ES256 tokens a second.",
                ),
                per_app_per_minute: count_u32(
                    reader,
                    "auth.failures_per_app",
                    limits::FAILED_LOG_INS_PER_APP,
                    "failures a minute",
                    "Log-ins that may fail in a minute for one app, from everywhere. Failures of a client beyond its own limit do not count. Beyond it, 100 such tokens of the app are verified a second.",
                ),
            },
        }
    }
}

impl Egress {
    fn read(reader: &mut Reader, dev: bool) -> Egress {
        // A development node tries things out with servers of this machine.
        let loopback = [
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
        ];
        let any = |_: &str| Ok(());
        Egress {
            allow: reader.networks(
                "egress.allow",
                if dev { &loopback } else { &[] },
                "Networks that may be connected to although they are not public. With `server.dev` the default is [\"127.0.0.0/8\", \"::1/128\"].",
            ),
            proxy: reader.proxy(
                "egress.proxy",
                "HTTP proxy for every outgoing connection. Unset: what `https_proxy`, `http_proxy`, `all_proxy` say.",
            ),
            no_proxy: reader.optional(
                "egress.no_proxy",
                ("list", "names, addresses and networks with commas between them"),
                any,
                "What is connected to without the proxy. Unset: what `no_proxy` says.",
            ),
            ca_file: reader
                .optional(
                    "egress.ca_file",
                    ("path", "a PEM file"),
                    any,
                    "Certificate authorities trusted beside those of the web.",
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
                    "Key that push credentials are encrypted with at rest. Unset: with `server.dev` made as `push.key` in the data folder, else no credentials can be added.",
                )
                .map(Into::into),
            queue: match reader.word(
                "push.queue",
                &["store", "redis", "sqs"],
                "Where senders find their batches: each in the store, or handed out by one of them over Redis Streams or SQS. The same at every node.",
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
                "To one push service for one credential, at most.",
            ) as usize,
            request_timeout: reader.duration(
                "push.request_timeout",
                limits::PUSH_REQUEST_TIMEOUT,
                SECOND..=5 * MINUTE,
                "How long a push service may take to answer one push.",
            ),
            batch: reader.count(
                "push.batch",
                limits::CAMPAIGN_BATCH.into(),
                1..=limits::CAMPAIGN_BATCH_MAX.into(),
                "recipients",
                "Recipients in one batch of a campaign, where it does not say.",
            ) as u32,
            in_flight: reader.count(
                "push.in_flight",
                limits::PUSH_IN_FLIGHT as u64,
                1..=1_000_000,
                "recipients",
                "Recipients taken from the queue and not answered yet, in all.",
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
                "messages a minute",
                "Messages that others may post to one Web Push endpoint of a device at this node, on average and at once; more are told to come back (429).",
            ),
            app_per_second: count_u32(
                reader,
                "web_push.app_rate",
                limits::APP_ENDPOINT_MESSAGES_PER_SECOND,
                "messages a second",
                "The same for all endpoints of one app together; ten seconds of it may come at once.",
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
                "What is logged, on standard error.",
            ),
            format: match reader.word("log.format", &["text", "json"], "How it is written.") {
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
            reader.problem(keys.0, format!("{} is missing: a certificate needs its key", keys.1));
            None
        }
        (None, Some(_)) => {
            reader.problem(keys.1, format!("{} is missing: a key needs its certificate", keys.0));
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
    // The range keeps it within 32 bits.
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

/// The first scheme is the one under TLS.
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

/// A name, or an address as it stands in a URL.
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

//! From a request head to the purpose of the connection. Pure: it touches no connection.

use noroshi_protocol::device_path::DevicePath;
use noroshi_protocol::engine_io::{self, RequestError, Transport};
use noroshi_protocol::http::Head;
use noroshi_protocol::ws::handshake::SUBPROTOCOL;
use noroshi_protocol::ws::{self, Upgrade, UpgradeError};
use noroshi_protocol::{app_name, sse};
use noroshi_types::{CloseReason, Topic, limits};

use crate::config::Config;
use crate::protocol::effect::Refusal;
use crate::protocol::socket_io::{Mount, Opener};
use crate::protocol::sse::Stream;
use crate::session::verification::Credentials;
use crate::wire::{Protocol, gzip};

/// The route that a request head selects.
pub(crate) enum Route {
    WebSocket {
        protocol: Protocol,
        upgrade: Result<Upgrade, UpgradeError>,
        credentials: Credentials,
    },
    Sse {
        wanted: Result<Stream, Refusal>,
        credentials: Credentials,
    },
    /// Engine.IO, with any protocol on it.
    EngineIo(Box<EngineRequest>),
    /// For the API.
    Api,
}

/// A request on a path of Engine.IO.
pub(crate) struct EngineRequest {
    pub(crate) opener: Opener,
    pub(crate) wanted: Result<engine_io::Request, RequestError>,
    pub(crate) upgrade: Result<Upgrade, UpgradeError>,
    /// `OPTIONS`, which browsers send before some requests (WHATWG Fetch §3.2).
    pub(crate) is_preflight: bool,
    /// The connection may serve another request afterwards.
    pub(crate) keeps: bool,
}

impl EngineRequest {
    /// Whether it opens a session.
    pub(crate) fn opens(&self) -> bool {
        matches!(self.wanted, Ok(engine_io::Request::Open(_))) && !self.is_preflight
    }
}

pub(crate) fn route(head: &Head<'_>, config: &Config) -> Route {
    let websocket = |protocol, subprotocol| {
        let upgrade = upgrade(head, subprotocol, config);
        Route::WebSocket { protocol, upgrade, credentials: credentials(head, config) }
    };
    match DevicePath::of(head.method, head.path) {
        Some(DevicePath::Native) => websocket(Protocol::Native, SUBPROTOCOL),
        Some(DevicePath::Events) => {
            Route::Sse { wanted: stream(head), credentials: credentials(head, config) }
        }
        // [MQTT-6.0.0-3]
        Some(DevicePath::Mqtt) => websocket(Protocol::Mqtt, "mqtt"),
        // RFC 7395 §3.1
        Some(DevicePath::Xmpp) => websocket(Protocol::Xmpp, "xmpp"),
        Some(DevicePath::EngineIo) => {
            let mount = if config.conformance { Mount::Namespaces } else { Mount::Devices };
            Route::EngineIo(Box::new(engine_request(head, mount, config)))
        }
        None => match (head.method, head.path) {
            (_, "/engine.io/" | "/engine.io") if config.conformance => {
                Route::EngineIo(Box::new(engine_request(head, Mount::Raw, config)))
            }
            ("GET", "/v1/echo") if config.conformance => websocket(Protocol::Echo, SUBPROTOCOL),
            _ => Route::Api,
        },
    }
}

fn upgrade(head: &Head<'_>, subprotocol: &'static str, config: &Config) -> Result<Upgrade, UpgradeError> {
    let upgrade = ws::upgrade_to(head, subprotocol)?;
    if config.websocket_deflate { upgrade.with_deflate(head) } else { Ok(upgrade) }
}

fn engine_request(head: &Head<'_>, mount: Mount, config: &Config) -> EngineRequest {
    // JSONP would let any page read the session of another.
    let wanted = match head.query_value("j") {
        Some(_) => Err(RequestError::BadRequest),
        None => engine_io::request(head, &config.socket_io.engine),
    };
    let has_body = head.header("transfer-encoding").is_some()
        || head.header_values("content-length").any(|length| length.trim() != "0");
    // If the body stays unread, nothing behind it can be read.
    let reads_body = matches!(wanted, Ok(engine_io::Request::Post { .. })) || !has_body;
    // The Java library does not implement `WebSocketListener.onClosing` of OkHttp. It notices the end of the TCP
    // connection only if no close frame came first.
    let misses_close_frames = head.header("user-agent").is_some_and(|agent| agent.starts_with("okhttp/"));
    EngineRequest {
        opener: Opener { mount, credentials: credentials(head, config), misses_close_frames },
        upgrade: match wanted {
            Ok(engine_io::Request::Open(Transport::WebSocket) | engine_io::Request::Probe(_)) => {
                upgrade(head, SUBPROTOCOL, config)
            }
            _ => Err(UpgradeError::NotUpgrade),
        },
        wanted,
        is_preflight: head.method == "OPTIONS",
        keeps: reads_body && head.minor_version >= 1 && !head.has_token("connection", "close"),
    }
}

fn credentials(head: &Head<'_>, config: &Config) -> Credentials {
    let token = head.bearer_token().map(str::to_owned);
    let (query, header, host) = (head.query_value("app"), head.header(app_name::HEADER), head.header("host"));
    Credentials {
        token: token.or_else(|| head.query_value("token").map(Into::into)),
        app: app_name::of_request(query, header, host, config.app_domain.as_deref()).map(Into::into),
    }
}

fn stream(head: &Head<'_>) -> Result<Stream, Refusal> {
    let bad = |code, text| Refusal { code, text, reason: CloseReason::BadMessage, after_s: None };
    let resume = sse::last_event_id(head).map_err(|error| bad("bad_last_event_id", error.to_string()))?;
    let given = head.query_value("topics").unwrap_or_default();
    let mut topics = Vec::new();
    for name in given.split(',').filter(|name| !name.is_empty()) {
        if topics.len() == limits::TOPICS_PER_DEVICE_MAX {
            let text = format!("at most {} topics", limits::TOPICS_PER_DEVICE_MAX);
            return Err(bad("too_many_topics", text));
        }
        let topic = Topic::parse_subscription(name);
        topics.push(topic.map_err(|error| bad("bad_topic", error.to_string()))?);
    }
    let asks_gzip = head.header_values("accept-encoding").any(gzip::is_asked_for);
    Ok(Stream { topics: crate::session::registry::distinct(topics), resume, asks_gzip })
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_protocol::http;

    fn check(head: &str, conformance: bool, expected: &str) {
        let text = format!("{head}\r\nHost: h\r\nAuthorization: Bearer t1\r\n\r\n");
        let parsed = http::parse(text.as_bytes(), &http::Limits::default()).expect(head).expect("complete");
        let config = Config { conformance, ..Config::default() };
        let got = match route(&parsed.0, &config) {
            Route::WebSocket { protocol: Protocol::Native, credentials, .. } => {
                format!("websocket {}", credentials.token.unwrap_or_default())
            }
            Route::Sse { wanted: Ok(stream), credentials } => {
                let topics: Vec<_> = stream.topics.iter().map(Topic::as_str).collect();
                format!("sse {} {}", credentials.token.unwrap_or_default(), topics.join("+"))
            }
            Route::Sse { wanted: Err(bad), .. } => bad.code.to_owned(),
            Route::WebSocket { protocol, .. } => protocol.as_str().to_owned(),
            Route::EngineIo(request) if request.is_preflight => "preflight".to_owned(),
            Route::EngineIo(request) => {
                let wanted =
                    request.wanted.map_or_else(|error| error.to_string(), |wanted| format!("{wanted:?}"));
                format!(
                    "{:?} {wanted} {}",
                    request.opener.mount,
                    if request.keeps { "keeps" } else { "ends" }
                )
            }
            Route::Api => "api".to_owned(),
        };
        assert_eq!(got, expected, "{head}");
    }

    #[test]
    fn a_head_selects_the_route() {
        check("GET /v1/connect?token=t2 HTTP/1.1", false, "websocket t1");
        check("GET /v1/events?topics=a,b,a HTTP/1.1", false, "sse t1 a+b");
        check("GET /v1/events HTTP/1.1", false, "sse t1 ");
        check("GET /v1/events?topics=%24everyone HTTP/1.1", false, "bad_topic");
        check("GET /v1/events?last_event_id=7 HTTP/1.1", false, "bad_last_event_id");
        check("GET /mqtt HTTP/1.1", false, "mqtt");
        check("GET /socket.io/?EIO=4&transport=polling HTTP/1.1", false, "Devices Open(Polling) keeps");
        check("GET /socket.io?EIO=4&transport=polling HTTP/1.0", true, "Namespaces Open(Polling) ends");
        check("GET /engine.io/?EIO=4&transport=polling HTTP/1.1", true, "Raw Open(Polling) keeps");
        check("GET /engine.io/?EIO=4&transport=polling HTTP/1.1", false, "api");
        check("GET /socket.io/socket.io.js HTTP/1.1", false, "api");
        check("GET /socket.io/?EIO=4&transport=polling&j=0 HTTP/1.1", false, "Devices Bad request keeps");
        check("OPTIONS /socket.io/?EIO=4&transport=polling HTTP/1.1", false, "preflight");
        check(
            "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nContent-Length: 9",
            false,
            "Devices Open(Polling) ends",
        );
        check("GET /xmpp HTTP/1.1", false, "xmpp");
        check("POST /v1/connect HTTP/1.1", false, "api");
        check("GET /v1/echo HTTP/1.1", false, "api");
        check("GET /v1/echo HTTP/1.1", true, "echo");
        check("GET /v1/connections HTTP/1.1", true, "api");
    }
}

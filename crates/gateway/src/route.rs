//! From a request head to what the connection is for. Pure: no connection is touched here.

use noroshi_protocol::http::Head;
use noroshi_protocol::sse;
use noroshi_protocol::ws::{self, Upgrade, UpgradeError};
use noroshi_types::{NotificationId, Topic, limits};

/// What a request head asks for.
pub(crate) enum Route {
    WebSocket {
        upgrade: Result<Upgrade, UpgradeError>,
        credentials: Credentials,
    },
    Sse {
        wanted: Result<Stream, BadQuery>,
        credentials: Credentials,
    },
    Echo {
        upgrade: Result<Upgrade, UpgradeError>,
    },
    /// MQTT over a WebSocket.
    Mqtt {
        upgrade: Result<Upgrade, UpgradeError>,
    },
    /// XMPP over a WebSocket (RFC 7395).
    Xmpp {
        upgrade: Result<Upgrade, UpgradeError>,
    },
    /// Not the gateway's.
    Api,
}

/// A token where one came with the request, and the app its signature belongs to where that was said.
#[derive(Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    pub(crate) app: Option<String>,
}

pub(crate) struct Stream {
    pub(crate) topics: Vec<Topic>,
    pub(crate) resume: Option<NotificationId>,
}

/// A query that cannot be served: the code and the public text of the answer.
pub(crate) struct BadQuery {
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

pub(crate) fn route(head: &Head<'_>, conformance: bool) -> Route {
    match (head.method, head.path) {
        ("GET", "/v1/connect") => {
            Route::WebSocket { upgrade: ws::upgrade(head), credentials: credentials(head) }
        }
        ("GET", "/v1/events") => Route::Sse { wanted: stream(head), credentials: credentials(head) },
        ("GET", "/mqtt") => Route::Mqtt { upgrade: ws::upgrade_to(head, "mqtt") }, // [MQTT-6.0.0-3]
        ("GET", "/xmpp") => Route::Xmpp { upgrade: ws::upgrade_to(head, "xmpp") }, // RFC 7395 §3.1
        ("GET", "/v1/echo") if conformance => Route::Echo { upgrade: ws::upgrade(head) },
        _ => Route::Api,
    }
}

fn credentials(head: &Head<'_>) -> Credentials {
    let token = head.bearer_token().map(str::to_owned);
    Credentials {
        token: token.or_else(|| head.query_value("token").map(Into::into)),
        app: head.query_value("app").map(Into::into),
    }
}

fn stream(head: &Head<'_>) -> Result<Stream, BadQuery> {
    let resume = sse::last_event_id(head)
        .map_err(|error| BadQuery { code: "bad_last_event_id", detail: error.to_string() })?;
    let given = head.query_value("topics").unwrap_or_default();
    let mut topics = Vec::new();
    for name in given.split(',').filter(|name| !name.is_empty()) {
        if topics.len() == limits::TOPICS_PER_DEVICE_MAX {
            let detail = format!("at most {} topics", limits::TOPICS_PER_DEVICE_MAX);
            return Err(BadQuery { code: "too_many_topics", detail });
        }
        let topic =
            Topic::parse(name).map_err(|error| BadQuery { code: "bad_topic", detail: error.to_string() })?;
        topics.push(topic);
    }
    Ok(Stream { topics: crate::registry::distinct(topics), resume })
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_protocol::http;

    fn check(head: &str, conformance: bool, expected: &str) {
        let text = format!("{head}\r\nHost: h\r\nAuthorization: Bearer t1\r\n\r\n");
        let parsed = http::parse(text.as_bytes(), &http::Limits::default()).expect(head).expect("complete");
        let got = match route(&parsed.0, conformance) {
            Route::WebSocket { credentials, .. } => {
                format!("websocket {}", credentials.token.unwrap_or_default())
            }
            Route::Sse { wanted: Ok(stream), credentials } => {
                let topics: Vec<_> = stream.topics.iter().map(Topic::as_str).collect();
                format!("sse {} {}", credentials.token.unwrap_or_default(), topics.join("+"))
            }
            Route::Sse { wanted: Err(bad), .. } => bad.code.to_owned(),
            Route::Echo { .. } => "echo".to_owned(),
            Route::Mqtt { .. } => "mqtt".to_owned(),
            Route::Xmpp { .. } => "xmpp".to_owned(),
            Route::Api => "api".to_owned(),
        };
        assert_eq!(got, expected, "{head}");
    }

    #[test]
    fn a_head_says_what_a_connection_is_for() {
        check("GET /v1/connect?token=t2 HTTP/1.1", false, "websocket t1");
        check("GET /v1/events?topics=a,b,a HTTP/1.1", false, "sse t1 a+b");
        check("GET /v1/events HTTP/1.1", false, "sse t1 ");
        check("GET /v1/events?topics=%24everyone HTTP/1.1", false, "bad_topic");
        check("GET /v1/events?last_event_id=7 HTTP/1.1", false, "bad_last_event_id");
        check("GET /mqtt HTTP/1.1", false, "mqtt");
        check("GET /xmpp HTTP/1.1", false, "xmpp");
        check("POST /v1/connect HTTP/1.1", false, "api");
        check("GET /v1/echo HTTP/1.1", false, "api");
        check("GET /v1/echo HTTP/1.1", true, "echo");
        check("GET /v1/connections HTTP/1.1", true, "api");
    }
}

//! Where devices connect to, as registration and a front tell it: every protocol at a node's public address. Listeners
//! of their own (MQTT, XMPP over TCP) are not told: which port leads to them from outside only the operator knows.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct ConnectBody {
    websocket: String,
    sse: String,
    /// Its clients add `/socket.io/` themselves.
    socketio: String,
    mqtt: String,
    xmpp: String,
}

impl ConnectBody {
    /// `base` is a URL with http or https, without a path.
    pub fn at(base: &str) -> Self {
        let base = base.trim_end_matches('/');
        let ws = base.strip_prefix("http").map_or_else(|| base.to_owned(), |rest| format!("ws{rest}"));
        Self {
            websocket: format!("{ws}/v1/connect"),
            sse: format!("{base}/v1/events"),
            socketio: base.to_owned(),
            mqtt: format!("{ws}/mqtt"),
            xmpp: format!("{ws}/xmpp"),
        }
    }
}

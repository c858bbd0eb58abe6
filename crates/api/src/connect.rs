//! Where devices connect to, as registration and a front tell it: every protocol at a node's public address. Listeners
//! of their own (MQTT, XMPP over TCP) are told where the operator says which address leads to them from outside.

use serde::Serialize;

use crate::state::Config;

#[derive(Debug, Serialize)]
pub struct ConnectBody<'a> {
    websocket: String,
    sse: String,
    /// Its clients add `/socket.io/` themselves.
    socketio: String,
    mqtt: String,
    xmpp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mqtt_tcp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xmpp_tcp: Option<&'a str>,
}

impl<'a> ConnectBody<'a> {
    /// `base` is a URL with http or https, without a path. Nothing over TCP.
    pub fn at(base: &str) -> Self {
        let base = base.trim_end_matches('/');
        let ws = base.strip_prefix("http").map_or_else(|| base.to_owned(), |rest| format!("ws{rest}"));
        Self {
            websocket: format!("{ws}/v1/connect"),
            sse: format!("{base}/v1/events"),
            socketio: base.to_owned(),
            mqtt: format!("{ws}/mqtt"),
            xmpp: format!("{ws}/xmpp"),
            mqtt_tcp: None,
            xmpp_tcp: None,
        }
    }

    /// With the service's addresses over TCP, the same whichever node `base` leads to.
    pub(crate) fn of_service(base: &str, config: &'a Config) -> Self {
        let (mqtt_tcp, xmpp_tcp) = (config.mqtt_public_url.as_deref(), config.xmpp_public_url.as_deref());
        Self { mqtt_tcp, xmpp_tcp, ..Self::at(base) }
    }
}

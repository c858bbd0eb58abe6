//! The addresses that the API returns to clients: where devices connect by each protocol, and
//! where their Web Push endpoints are.
//!
//! The configured public address comes first, then a gateway of the cluster, then the address of the request itself.
//! Separate listeners (MQTT and XMPP over TCP) appear only if the operator configured their public addresses.

use std::sync::Arc;

use http::{HeaderMap, header};
use serde::Serialize;

use crate::connection::Peer;
use crate::nodes::Nodes;

#[derive(Debug, Serialize)]
pub struct ConnectBody<'a> {
    websocket: String,
    sse: String,
    /// Socket.IO clients append `/socket.io/` themselves.
    socketio: String,
    mqtt: String,
    xmpp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mqtt_tcp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xmpp_tcp: Option<&'a str>,
}

impl ConnectBody<'_> {
    /// `base` is an http or https URL without a path. Without TCP addresses.
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
}

/// Chooses the addresses of a node.
pub struct Addresses {
    pub(crate) public_url: Option<String>,
    pub(crate) mqtt_public_url: Option<String>,
    pub(crate) xmpp_public_url: Option<String>,
    /// None: the node does not know other nodes.
    pub(crate) nodes: Option<Arc<dyn Nodes>>,
}

impl Addresses {
    /// `base` with every protocol, including the service's TCP addresses.
    pub(crate) fn connect(&self, base: &str) -> ConnectBody<'_> {
        let (mqtt_tcp, xmpp_tcp) = (self.mqtt_public_url.as_deref(), self.xmpp_public_url.as_deref());
        ConnectBody { mqtt_tcp, xmpp_tcp, ..ConnectBody::at(base) }
    }

    /// Where a device connects. `before`: the address that it got last time, which it gets again while that gateway accepts
    /// devices.
    pub(crate) fn device_base(
        &self,
        before: Option<&str>,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> String {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let gateway = self.nodes.as_ref().and_then(|nodes| match before {
            Some(before) => nodes.gateway_again(before),
            None => nodes.gateway(),
        });
        gateway.unwrap_or_else(|| request_base(headers, peer))
    }

    /// Where this API is reached: the base of Web Push endpoints, without a trailing slash.
    pub(crate) fn api_base(&self, headers: &HeaderMap, peer: Option<&Peer>) -> String {
        let base = self.public_url.clone().unwrap_or_else(|| request_base(headers, peer));
        base.trim_end_matches('/').to_owned()
    }
}

/// The base URL of the request.
fn request_base(headers: &HeaderMap, peer: Option<&Peer>) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let scheme = if peer.is_some_and(|peer| peer.secure) { "https" } else { "http" };
    format!("{scheme}://{host}")
}

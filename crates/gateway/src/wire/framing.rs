//! Protocols, and how their bytes are framed: the two axes of a connection. [`Speaks`] is what a listener
//! expects.

use noroshi_protocol::ws::Upgrade;
use noroshi_protocol::ws::extension::WINDOW_BITS_MAX;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Not known yet, or the API's.
    Http,
    Native,
    Mqtt,
    SocketIo,
    Xmpp,
    /// The echo of the conformance suite.
    Echo,
    #[cfg(test)]
    Line,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 6 + cfg!(test) as usize] = [
        Protocol::Http,
        Protocol::Native,
        Protocol::Mqtt,
        Protocol::SocketIo,
        Protocol::Xmpp,
        Protocol::Echo,
        #[cfg(test)]
        Protocol::Line,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Native => "native",
            Protocol::Mqtt => "mqtt",
            Protocol::SocketIo => "socketio",
            Protocol::Xmpp => "xmpp",
            Protocol::Echo => "echo",
            #[cfg(test)]
            Protocol::Line => "line",
        }
    }
}

/// How bytes are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Unframed.
    Stream,
    WebSocket,
    /// A WebSocket with permessage-deflate ([`crate::wire::deflate`]), and the bits of the window that the client
    /// allows the server: 8 to 15.
    Deflated(u8),
    /// Server-sent events.
    Events,
    /// Server-sent events under gzip ([`crate::wire::gzip`]).
    GzipEvents,
    /// HTTP requests in sequence that replace a stream; also the framing of the session that they serve, which has no
    /// socket.
    Polling,
}

impl Framing {
    pub(crate) const ALL: [Framing; 6] = [
        Framing::Stream,
        Framing::WebSocket,
        Framing::Deflated(WINDOW_BITS_MAX),
        Framing::Events,
        Framing::GzipEvents,
        Framing::Polling,
    ];

    /// The index in [`Framing::ALL`].
    pub(crate) fn index(self) -> usize {
        match self {
            Framing::Stream => 0,
            Framing::WebSocket => 1,
            Framing::Deflated(_) => 2,
            Framing::Events => 3,
            Framing::GzipEvents => 4,
            Framing::Polling => 5,
        }
    }

    /// The framing of a WebSocket, by its negotiated extensions.
    pub(crate) fn agreed(upgrade: &Upgrade) -> Self {
        match upgrade.deflate {
            Some(deflate) => Framing::Deflated(deflate.server_window_bits()),
            None => Framing::WebSocket,
        }
    }

    pub(crate) fn is_websocket(self) -> bool {
        matches!(self, Framing::WebSocket | Framing::Deflated(_))
    }

    pub(crate) fn as_str(self) -> &'static str {
        ["stream", "websocket", "websocket_deflate", "sse", "sse_gzip", "polling"][self.index()]
    }
}

/// The protocol that a listener expects from the first byte on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// The request selects WebSocket, event streams or the API.
    Http,
    Mqtt,
    Xmpp,
    #[cfg(test)]
    Line,
}

impl Speaks {
    /// The protocol, if it is known before the first byte.
    pub(crate) fn protocol(self) -> Option<Protocol> {
        match self {
            Speaks::Http => None,
            Speaks::Mqtt => Some(Protocol::Mqtt),
            Speaks::Xmpp => Some(Protocol::Xmpp),
            #[cfg(test)]
            Speaks::Line => Some(Protocol::Line),
        }
    }
}

//! What a connection speaks, and how its bytes are put on the wire.

use noroshi_protocol::ws::Upgrade;
use noroshi_protocol::ws::extension::WINDOW_BITS_MAX;

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Not known yet, or not one of ours.
    Http,
    Native,
    Mqtt,
    SocketIo,
    Xmpp,
    /// The conformance suite's.
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

/// How its bytes are put on the wire: the other axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As they are.
    Stream,
    WebSocket,
    /// The same where permessage-deflate was agreed on ([`crate::wire::deflate`]), with the bits of the window that the client lets
    /// the server have: 8 to 15.
    Deflated(u8),
    /// Server-sent events.
    Events,
    /// The same under gzip ([`crate::wire::gzip`]).
    GzipEvents,
    /// HTTP requests, one after the other, that stand for a stream; and of a session that speaks by them, which
    /// has no socket of its own ([`crate::protocol::polling`]).
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

    /// The place in [`Framing::ALL`].
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

    /// Of a WebSocket.
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
        match self {
            Framing::Stream => "stream",
            Framing::WebSocket => "websocket",
            Framing::Deflated(_) => "websocket_deflate",
            Framing::Events => "sse",
            Framing::GzipEvents => "sse_gzip",
            Framing::Polling => "polling",
        }
    }
}

/// What the connections of a listener speak from their first byte on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// The request says what else: WebSocket, event streams, the API.
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

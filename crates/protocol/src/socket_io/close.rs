//! How each close reason appears in Socket.IO. The protocol has no close reasons on the wire: the way a
//! connection ends determines what a client library reports and whether it reconnects automatically. The
//! event `close` carries the reason before. The WebSocket close code is [`CloseReason::websocket_code`].

use noroshi_types::CloseReason;

/// How the service ends a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMethod {
    /// `close`, then DISCONNECT: the library reports "io server disconnect" and does not reconnect.
    Disconnect,
    /// `close`, then the end of the transport: the library reports "transport close" and reconnects
    /// automatically.
    Transport,
    /// The client ended the connection: nothing is sent.
    Silent,
}

/// A library reconnects after the transport ended, but not after DISCONNECT.
pub fn close_method(reason: CloseReason) -> CloseMethod {
    match (reason.websocket_code(), reason.may_reconnect()) {
        (None, _) => CloseMethod::Silent,
        (Some(_), true) => CloseMethod::Transport,
        (Some(_), false) => CloseMethod::Disconnect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_reconnect_only_where_it_can_succeed() {
        let check = |reason, expected| assert_eq!(close_method(reason), expected, "{reason:?}");
        check(CloseReason::Replaced, CloseMethod::Disconnect);
        check(CloseReason::Unauthorized, CloseMethod::Disconnect);
        check(CloseReason::Drain, CloseMethod::Transport);
        check(CloseReason::TooBig, CloseMethod::Transport);
        check(CloseReason::PeerReset, CloseMethod::Silent);
    }
}

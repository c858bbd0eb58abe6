//! How each close reason is said in Socket.IO. The protocol has no reasons of its own on the wire: what a
//! client library reports, and whether it comes back by itself, follows from how it is ended. The event
//! `close` says the rest before. The WebSocket close code is [`CloseReason::websocket_code`].

use noroshi_types::CloseReason;

/// How a connected client is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// `close`, then DISCONNECT: the library says "io server disconnect" and stays away.
    Disconnect,
    /// `close`, then the transport ends: the library says "transport close" and comes back by itself.
    Transport,
    /// The client ended it: nothing is said.
    Silent,
}

/// A library that ended by itself comes back; one that was told to disconnect does not.
pub fn manner(reason: CloseReason) -> Manner {
    match (reason.websocket_code(), reason.may_reconnect()) {
        (None, _) => Manner::Silent,
        (Some(_), true) => Manner::Transport,
        (Some(_), false) => Manner::Disconnect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_comes_back_by_itself_where_that_can_succeed() {
        let check = |reason, expected| assert_eq!(manner(reason), expected, "{reason:?}");
        check(CloseReason::Replaced, Manner::Disconnect);
        check(CloseReason::Unauthorized, Manner::Disconnect);
        check(CloseReason::Drain, Manner::Transport);
        check(CloseReason::TooBig, Manner::Transport);
        check(CloseReason::PeerReset, Manner::Silent);
    }
}

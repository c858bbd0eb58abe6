//! Why a connection ended: one closed enum. Every end of a connection has exactly one reason, which
//! determines the metric label, the log entry, the WebSocket close code and the advice to the client. The
//! operator page `docs/close-reasons.md` contains this table.

crate::names! {
    /// Why a connection ended. The names are those in close frames, metrics and logs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum CloseReason {
        /// The node is draining.
        Drain => "drain",
        /// A newer connection of the same device replaced this one.
        Replaced => "replaced",
        /// The token expired.
        Expired => "expired",
        /// The device was deleted or its tokens were revoked.
        Revoked => "revoked",
        /// The token is invalid.
        Unauthorized => "unauthorized",
        /// No token arrived in time.
        AuthTimeout => "auth_timeout",
        /// The client sent nothing within the timeout.
        PingTimeout => "ping_timeout",
        /// The client read too slowly.
        SlowConsumer => "slow_consumer",
        /// Too many frames per second, or too many failed log-ins of the client or its app.
        RateLimited => "rate_limited",
        /// A message that violates the protocol.
        BadMessage => "bad_message",
        /// The node cannot accept another connection.
        Overloaded => "overloaded",
        /// The app has exhausted its quota.
        QuotaExceeded => "quota_exceeded",
        /// The app's topic rules changed, and the session did not keep the claims that the new ones need.
        RulesChanged => "rules_changed",
        /// An internal error.
        Internal => "internal",
        /// A frame that violates RFC 6455.
        ProtocolError => "protocol_error",
        /// Text that is not UTF-8.
        InvalidUtf8 => "invalid_utf8",
        /// A frame or message above the size limit.
        TooBig => "too_big",
        /// The client closed the connection.
        PeerClosed => "peer_closed",
        /// The transport failed.
        PeerReset => "peer_reset",
    }
}

impl CloseReason {
    /// The code in the WebSocket close frame: 4000 to 4099 are private use (RFC 6455 §7.4.2), the others are
    /// from RFC 6455 §7.4.1. `None` if the peer ended the connection, since no frame is sent.
    pub fn websocket_code(self) -> Option<u16> {
        self.row().0
    }

    /// Whether reconnecting with the same token can succeed.
    pub fn may_reconnect(self) -> bool {
        self.row().1
    }

    /// One sentence of at most 123 bytes: a close frame carries 125 including the code (RFC 6455 §5.5).
    pub fn explain(self) -> &'static str {
        self.row().2
    }

    /// The code, whether a client may reconnect, and the sentence.
    fn row(self) -> (Option<u16>, bool, &'static str) {
        match self {
            CloseReason::Drain => (Some(4000), true, "the node is draining; reconnect after the given delay"),
            CloseReason::Replaced => {
                (Some(4001), false, "a newer connection of the same device replaced this one")
            }
            CloseReason::Expired => (Some(4002), false, "the token expired; connect with a new one"),
            CloseReason::Revoked => (Some(4003), false, "the device was deleted or its tokens were revoked"),
            CloseReason::Unauthorized => (Some(4004), false, "the token is not valid"),
            CloseReason::AuthTimeout => (Some(4005), true, "no frame with a token arrived in time"),
            CloseReason::PingTimeout => (Some(4006), true, "the client sent nothing within the timeout"),
            CloseReason::SlowConsumer => (Some(4007), true, "the client did not read fast enough"),
            CloseReason::RateLimited => {
                (Some(4008), true, "too many frames per second, or too many failed log-ins")
            }
            CloseReason::BadMessage => (Some(4009), true, "a message violates the protocol"),
            CloseReason::Overloaded => (Some(4010), true, "the node cannot accept another connection now"),
            CloseReason::QuotaExceeded => {
                (Some(4012), true, "the app has exhausted its quota; reconnect after the given delay")
            }
            CloseReason::RulesChanged => {
                (Some(4013), true, "the app's topic rules changed; reconnect after the given delay")
            }
            CloseReason::Internal => (Some(4011), true, "internal error"),
            CloseReason::ProtocolError => (Some(1002), true, "a frame violates the WebSocket protocol"),
            CloseReason::InvalidUtf8 => (Some(1007), true, "a text message is not valid UTF-8"),
            CloseReason::TooBig => (Some(1009), true, "a message exceeds the size limit"),
            CloseReason::PeerClosed => (None, true, "the client closed the connection"),
            CloseReason::PeerReset => (None, true, "the transport failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn table_is_complete_and_unambiguous() {
        let names: BTreeSet<_> = CloseReason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(names.len(), CloseReason::ALL.len());
        let codes: Vec<_> = CloseReason::ALL.iter().filter_map(|r| r.websocket_code()).collect();
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
        for (i, reason) in CloseReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i, "ALL lists every variant in order");
            assert!(reason.explain().len() <= 123, "{reason:?}");
        }
    }

    #[test]
    fn operator_page_matches_this_table() {
        let rows: Vec<String> = CloseReason::ALL
            .into_iter()
            .map(|reason| {
                let code = reason.websocket_code().map_or("–".to_owned(), |code| code.to_string());
                let reconnect = if reason.may_reconnect() { "yes" } else { "no" };
                format!("| `{}` | {code} | {reconnect} | {} |", reason.as_str(), reason.explain())
            })
            .collect();
        let page = include_str!("../../../docs/close-reasons.md");
        let written: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(written, rows, "docs/close-reasons.md");
    }
}

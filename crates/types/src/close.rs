//! Why a connection ended: one closed table. Every way out of a connection names exactly one of
//! these; the metric label, the log, the WebSocket close code and the advice to the client all come
//! from here. The operator page `docs/close-reasons.md` is this table as text.

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CloseReason {
    /// The node is being emptied.
    Drain,
    /// A newer connection of the same device took over.
    Replaced,
    /// The token's lifetime ended.
    Expired,
    /// The device was deleted or its tokens were revoked.
    Revoked,
    /// The token is not valid.
    Unauthorized,
    /// No token arrived in time.
    AuthTimeout,
    /// Nothing was heard for too long.
    PingTimeout,
    /// The client did not take what was sent.
    SlowConsumer,
    /// Too many frames a second, or too many log-ins of the client or its app failed.
    RateLimited,
    /// A message that is not what the protocol allows here.
    BadMessage,
    /// The node has no room for one more connection now.
    Overloaded,
    /// The app has used up its quota.
    QuotaExceeded,
    /// The app's topic rules changed, and the session kept too little of its token to decide by the new ones.
    RulesChanged,
    /// Our own failure.
    Internal,
    /// A frame that breaks RFC 6455.
    ProtocolError,
    /// Text that is not UTF-8.
    InvalidUtf8,
    /// A frame or message over the limit.
    TooBig,
    /// The client said good-bye.
    PeerClosed,
    /// The transport broke.
    PeerReset,
}

impl CloseReason {
    pub const ALL: [CloseReason; 19] = [
        CloseReason::Drain,
        CloseReason::Replaced,
        CloseReason::Expired,
        CloseReason::Revoked,
        CloseReason::Unauthorized,
        CloseReason::AuthTimeout,
        CloseReason::PingTimeout,
        CloseReason::SlowConsumer,
        CloseReason::RateLimited,
        CloseReason::BadMessage,
        CloseReason::Overloaded,
        CloseReason::QuotaExceeded,
        CloseReason::RulesChanged,
        CloseReason::Internal,
        CloseReason::ProtocolError,
        CloseReason::InvalidUtf8,
        CloseReason::TooBig,
        CloseReason::PeerClosed,
        CloseReason::PeerReset,
    ];

    /// The name in close frames, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Drain => "drain",
            CloseReason::Replaced => "replaced",
            CloseReason::Expired => "expired",
            CloseReason::Revoked => "revoked",
            CloseReason::Unauthorized => "unauthorized",
            CloseReason::AuthTimeout => "auth_timeout",
            CloseReason::PingTimeout => "ping_timeout",
            CloseReason::SlowConsumer => "slow_consumer",
            CloseReason::RateLimited => "rate_limited",
            CloseReason::BadMessage => "bad_message",
            CloseReason::Overloaded => "overloaded",
            CloseReason::QuotaExceeded => "quota_exceeded",
            CloseReason::RulesChanged => "rules_changed",
            CloseReason::Internal => "internal",
            CloseReason::ProtocolError => "protocol_error",
            CloseReason::InvalidUtf8 => "invalid_utf8",
            CloseReason::TooBig => "too_big",
            CloseReason::PeerClosed => "peer_closed",
            CloseReason::PeerReset => "peer_reset",
        }
    }

    /// The code in the WebSocket close frame: 4000 to 4099 are private use (RFC 6455 §7.4.2), the
    /// others are RFC 6455 §7.4.1. `None` where the peer ended it and no frame is sent.
    pub fn websocket_code(self) -> Option<u16> {
        Some(match self {
            CloseReason::Drain => 4000,
            CloseReason::Replaced => 4001,
            CloseReason::Expired => 4002,
            CloseReason::Revoked => 4003,
            CloseReason::Unauthorized => 4004,
            CloseReason::AuthTimeout => 4005,
            CloseReason::PingTimeout => 4006,
            CloseReason::SlowConsumer => 4007,
            CloseReason::RateLimited => 4008,
            CloseReason::BadMessage => 4009,
            CloseReason::Overloaded => 4010,
            CloseReason::Internal => 4011,
            CloseReason::QuotaExceeded => 4012,
            CloseReason::RulesChanged => 4013,
            CloseReason::ProtocolError => 1002,
            CloseReason::InvalidUtf8 => 1007,
            CloseReason::TooBig => 1009,
            CloseReason::PeerClosed | CloseReason::PeerReset => return None,
        })
    }

    /// Whether coming back with the same token can succeed.
    pub fn may_reconnect(self) -> bool {
        match self {
            CloseReason::Replaced
            | CloseReason::Expired
            | CloseReason::Revoked
            | CloseReason::Unauthorized => false,
            CloseReason::Drain
            | CloseReason::AuthTimeout
            | CloseReason::PingTimeout
            | CloseReason::SlowConsumer
            | CloseReason::RateLimited
            | CloseReason::BadMessage
            | CloseReason::Overloaded
            | CloseReason::QuotaExceeded
            | CloseReason::RulesChanged
            | CloseReason::Internal
            | CloseReason::ProtocolError
            | CloseReason::InvalidUtf8
            | CloseReason::TooBig
            | CloseReason::PeerClosed
            | CloseReason::PeerReset => true,
        }
    }

    /// One sentence, at most 123 bytes: a close frame carries 125 less the code (RFC 6455 §5.5).
    pub fn explain(self) -> &'static str {
        match self {
            CloseReason::Drain => "this node is being emptied; connect again after the delay told",
            CloseReason::Replaced => "a newer connection of the same device took over",
            CloseReason::Expired => "the token expired; connect with a new one",
            CloseReason::Revoked => "the device was deleted or its tokens were revoked",
            CloseReason::Unauthorized => "the token is not valid",
            CloseReason::AuthTimeout => "no connect frame with a token arrived in time",
            CloseReason::PingTimeout => "nothing was heard from the client for too long",
            CloseReason::SlowConsumer => "the client did not take what was sent",
            CloseReason::RateLimited => "too many frames a second, or too many failed log-ins",
            CloseReason::BadMessage => "a message that the protocol does not allow here",
            CloseReason::Overloaded => "no room for one more connection now",
            CloseReason::QuotaExceeded => "the app has used up its quota; reconnect after the given delay",
            CloseReason::RulesChanged => "the app's topic rules changed; reconnect after the given delay",
            CloseReason::Internal => "the service failed",
            CloseReason::ProtocolError => "a frame breaks the WebSocket protocol",
            CloseReason::InvalidUtf8 => "a text message is not UTF-8",
            CloseReason::TooBig => "a message is over the size limit",
            CloseReason::PeerClosed => "the client closed the connection",
            CloseReason::PeerReset => "the transport broke",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_complete_and_unambiguous() {
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
    fn the_operator_page_is_this_table() {
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

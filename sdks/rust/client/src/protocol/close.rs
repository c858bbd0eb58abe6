//! Reasons for which connections end (docs/close-reasons.md).

use crate::state::Reason;

/// Of the WebSocket close codes from 4000 on.
const REASONS: [Reason; 14] = [
    Reason::Drain,
    Reason::Replaced,
    Reason::Expired,
    Reason::Revoked,
    Reason::Unauthorized,
    Reason::AuthTimeout,
    Reason::PingTimeout,
    Reason::SlowConsumer,
    Reason::RateLimited,
    Reason::BadMessage,
    Reason::Overloaded,
    Reason::Internal,
    Reason::QuotaExceeded,
    Reason::RulesChanged,
];

/// The reason that a WebSocket close code stands for.
pub(super) fn reason_of(code: u16) -> Option<Reason> {
    match code {
        1002 => Some(Reason::ProtocolError),
        1007 => Some(Reason::InvalidUtf8),
        1009 => Some(Reason::TooBig),
        _ => REASONS.get(usize::from(code.checked_sub(4000)?)).cloned(),
    }
}

/// Whether a connection that ended for this reason needs another token (C3).
pub(super) fn rejects_token(reason: &Reason) -> bool {
    matches!(reason, Reason::Expired | Reason::Revoked | Reason::Unauthorized)
}

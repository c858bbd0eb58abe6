//! Why a connection ended, in XMPP's words: one table. Where the peer ended it nothing is said.

use noroshi_types::CloseReason;

use super::error::StreamError;

/// The stream error that tells `reason`; `None` where the stream just ends.
pub fn stream_error(reason: CloseReason) -> Option<StreamError> {
    Some(match reason {
        CloseReason::Drain => StreamError::SystemShutdown, // `see-other-host` where another is known
        CloseReason::Replaced => StreamError::Conflict,    // RFC 6120 §7.7.2.2
        CloseReason::Expired | CloseReason::Revoked | CloseReason::Unauthorized => StreamError::NotAuthorized,
        CloseReason::AuthTimeout | CloseReason::PingTimeout => StreamError::ConnectionTimeout,
        CloseReason::SlowConsumer | CloseReason::Overloaded | CloseReason::QuotaExceeded => {
            StreamError::ResourceConstraint
        }
        CloseReason::RulesChanged => StreamError::Reset, // RFC 6120 §4.9.3.16
        CloseReason::RateLimited | CloseReason::TooBig => StreamError::PolicyViolation,
        CloseReason::BadMessage | CloseReason::ProtocolError => StreamError::BadFormat,
        CloseReason::InvalidUtf8 => StreamError::UnsupportedEncoding,
        CloseReason::Internal => StreamError::InternalServerError,
        CloseReason::PeerClosed | CloseReason::PeerReset => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_peers_own_ends_are_not_explained() {
        for reason in CloseReason::ALL {
            // The same ones that WebSocket has no code for.
            assert_eq!(stream_error(reason).is_some(), reason.websocket_code().is_some(), "{reason:?}");
        }
    }
}

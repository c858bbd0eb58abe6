//! Maps close reasons to stream errors. There is none if the peer ended the stream.

use noroshi_types::CloseReason;

use super::error::StreamError;

/// The stream error for `reason`; `None` if the stream ends without one.
pub fn stream_error(reason: CloseReason) -> Option<StreamError> {
    Some(match reason {
        CloseReason::Drain => StreamError::SystemShutdown, // `see-other-host` if another host is known
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
    fn every_end_by_the_service_has_a_stream_error() {
        for reason in CloseReason::ALL {
            // Exactly the reasons without a WebSocket code.
            assert_eq!(stream_error(reason).is_some(), reason.websocket_code().is_some(), "{reason:?}");
        }
    }
}

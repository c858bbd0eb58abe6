//! Maps close reasons to the reason codes of DISCONNECT and, for connections without a session, CONNACK.
//! Clients of MQTT 3.1.1 get CONNACK's return code, or only the end of the connection.

use noroshi_types::CloseReason;

use super::ReasonCode;

/// The codes for one close reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseCodes {
    pub connack: ReasonCode,
    pub disconnect: ReasonCode,
}

/// Returns `None` if the peer ended the connection.
pub fn close_codes(reason: CloseReason) -> Option<CloseCodes> {
    use ReasonCode::*;
    let (connack, disconnect) = match reason {
        // The client should reconnect, and will reach another node.
        CloseReason::Drain => (UseAnotherServer, UseAnotherServer),
        CloseReason::Replaced => (ServerBusy, SessionTakenOver),
        CloseReason::Expired => (NotAuthorized, MaximumConnectTime),
        CloseReason::Revoked => (NotAuthorized, AdministrativeAction),
        CloseReason::Unauthorized => (BadUserNameOrPassword, NotAuthorized),
        CloseReason::AuthTimeout => (NotAuthorized, NotAuthorized),
        CloseReason::PingTimeout => (UnspecifiedError, KeepAliveTimeout),
        CloseReason::SlowConsumer => (QuotaExceeded, QuotaExceeded),
        CloseReason::RateLimited => (ConnectionRateExceeded, MessageRateTooHigh),
        CloseReason::BadMessage => (ProtocolError, ProtocolError),
        CloseReason::Overloaded => (ServerBusy, ServerBusy),
        CloseReason::QuotaExceeded => (QuotaExceeded, QuotaExceeded),
        // "Server busy" and not 0x98, which a client with a revoked credential gets.
        CloseReason::RulesChanged => (ServerBusy, ServerBusy),
        CloseReason::Internal => (UnspecifiedError, UnspecifiedError),
        CloseReason::ProtocolError => (MalformedPacket, MalformedPacket),
        CloseReason::InvalidUtf8 => (MalformedPacket, MalformedPacket),
        CloseReason::TooBig => (PacketTooLarge, PacketTooLarge),
        CloseReason::PeerClosed | CloseReason::PeerReset => return None,
    };
    Some(CloseCodes { connack, disconnect })
}

#[cfg(test)]
mod tests {
    use super::super::PacketType;
    use super::*;

    #[test]
    fn every_reason_has_codes_allowed_in_its_packet() {
        for reason in CloseReason::ALL {
            let Some(word) = close_codes(reason) else {
                assert!(reason.websocket_code().is_none(), "{reason:?}");
                continue;
            };
            assert!(word.connack.is_error() && word.connack.is_allowed_in(PacketType::ConnAck), "{reason:?}");
            assert!(word.disconnect.is_error() && word.disconnect.is_allowed_in(PacketType::Disconnect));
        }
    }

    #[test]
    fn codes_tell_clients_whether_to_reconnect() {
        // Clients stop reconnecting at return codes 4 and 5 of MQTT 3.1.1.
        for reason in CloseReason::ALL.into_iter().filter(|reason| *reason != CloseReason::Replaced) {
            let Some(word) = close_codes(reason) else { continue };
            let stops = word.connack.connect_return_code() >= 4;
            assert_eq!(stops, !reason.may_reconnect() || reason == CloseReason::AuthTimeout, "{reason:?}");
        }
    }
}

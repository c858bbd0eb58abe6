//! Why a connection ends, in MQTT's words: one table for DISCONNECT and for the CONNACK of a connection
//! that is not let in. Clients of MQTT 3.1.1 get CONNACK's return code, or just the end.

use noroshi_types::CloseReason;

use super::ReasonCode;

/// What is said of one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastWord {
    pub connack: ReasonCode,
    pub disconnect: ReasonCode,
}

/// `None` where the peer ended it.
pub fn last_word(reason: CloseReason) -> Option<LastWord> {
    use ReasonCode::*;
    let (connack, disconnect) = match reason {
        // To come back is right, and another node is whom the client then finds.
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
        // "Try again later", and not 0x98: a client that was revoked gets that.
        CloseReason::RulesChanged => (ServerBusy, ServerBusy),
        CloseReason::Internal => (UnspecifiedError, UnspecifiedError),
        CloseReason::ProtocolError => (MalformedPacket, MalformedPacket),
        CloseReason::InvalidUtf8 => (MalformedPacket, MalformedPacket),
        CloseReason::TooBig => (PacketTooLarge, PacketTooLarge),
        CloseReason::PeerClosed | CloseReason::PeerReset => return None,
    };
    Some(LastWord { connack, disconnect })
}

#[cfg(test)]
mod tests {
    use super::super::PacketType;
    use super::*;

    #[test]
    fn every_reason_has_words_that_may_be_said() {
        for reason in CloseReason::ALL {
            let Some(word) = last_word(reason) else {
                assert!(reason.websocket_code().is_none(), "{reason:?}");
                continue;
            };
            assert!(word.connack.is_error() && word.connack.is_allowed_in(PacketType::ConnAck), "{reason:?}");
            assert!(word.disconnect.is_error() && word.disconnect.is_allowed_in(PacketType::Disconnect));
        }
    }

    #[test]
    fn clients_that_come_back_only_with_something_new_are_told_so() {
        // Return codes 4 and 5 of MQTT 3.1.1 are what clients stop at.
        for reason in CloseReason::ALL.into_iter().filter(|reason| *reason != CloseReason::Replaced) {
            let Some(word) = last_word(reason) else { continue };
            let stops = word.connack.connect_return_code() >= 4;
            assert_eq!(stops, !reason.may_reconnect() || reason == CloseReason::AuthTimeout, "{reason:?}");
        }
    }
}

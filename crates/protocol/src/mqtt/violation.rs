//! Everything a peer's bytes can be wrong by: one value each, with the section of MQTT 5 that says so, the
//! reason code it is answered with and the close reason it is counted under. MQTT 3.1.1 has the same rules
//! under other numbers and closes without a word.

use noroshi_types::CloseReason;

use super::ReasonCode;

macro_rules! violations {
    ($($name:ident: $code:ident, $section:literal, $text:literal;)*) => {
        /// Why a packet ends the connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Violation {
            $(#[doc = $text] $name,)*
        }

        impl Violation {
            pub const ALL: &'static [Violation] = &[$(Violation::$name),*];

            /// What a DISCONNECT or CONNACK answers.
            pub fn reason_code(self) -> ReasonCode {
                match self {
                    $(Violation::$name => ReasonCode::$code,)*
                }
            }

            /// Where MQTT 5 says so.
            pub fn section(self) -> &'static str {
                match self {
                    $(Violation::$name => $section,)*
                }
            }

            /// Public: without any of the peer's bytes.
            pub fn text(self) -> &'static str {
                match self {
                    $(Violation::$name => $text,)*
                }
            }
        }
    };
}

violations! {
    ReservedType: MalformedPacket, "§2.1.2", "packet type 0 is forbidden";
    ReservedFlags: MalformedPacket, "§2.1.3", "reserved flags of the fixed header are not as they must be";
    LengthTooLong: MalformedPacket, "§1.5.5", "a variable byte integer has more than four bytes";
    LengthNotMinimal: MalformedPacket, "§1.5.5", "a variable byte integer is longer than it must be";
    TooBig: PacketTooLarge, "§3.1.2.11.4", "a packet is over the maximum packet size";
    Truncated: MalformedPacket, "§2.1.4", "a packet ends within a field";
    TrailingBytes: MalformedPacket, "§2.1.4", "a packet goes on behind its last field";
    InvalidUtf8: MalformedPacket, "§1.5.4", "a string is not UTF-8";
    NulInString: MalformedPacket, "§1.5.4", "a string has the character U+0000";
    UnknownProperty: MalformedPacket, "§2.2.2.2", "a property that the packet cannot have";
    RepeatedProperty: ProtocolError, "§2.2.2.2", "a property is there twice";
    PropertyValue: ProtocolError, "§2.2.2.2", "a property has a value that it cannot have";
    TopicAliasZero: TopicAliasInvalid, "§3.3.2.3.4", "topic alias 0 is forbidden";
    AuthDataWithoutMethod: ProtocolError, "§3.1.2.11.10", "authentication data without a method";
    ReasonUnknown: ProtocolError, "§2.4", "a reason code that the packet cannot have";
    NoPacketId: ProtocolError, "§2.2.1", "a packet identifier is 0";
    ProtocolName: UnsupportedProtocolVersion, "§3.1.2.1", "the protocol name is neither MQTT nor MQIsdp";
    ProtocolLevel: UnsupportedProtocolVersion, "§3.1.2.2", "the protocol version is none of 3 (3.1), 4 (3.1.1) and 5";
    ConnectReserved: MalformedPacket, "§3.1.2.3", "the reserved connect flag is set";
    WillFlags: MalformedPacket, "§3.1.2.6", "will flags without a will, or will QoS 3";
    PasswordWithoutUser: MalformedPacket, "§3.1.2.9", "MQTT 3.1.1 has no password without a user name";
    WillTopicMalformed: MalformedPacket, "§4.7", "the will's topic is empty or has wildcards";
    WillTopic: TopicNameInvalid, "§3.1.3.3", "the will's topic is none that a client may publish to";
    QosThree: MalformedPacket, "§3.3.1.2", "QoS 3";
    DupAtQosZero: MalformedPacket, "§3.3.1.1", "DUP at QoS 0";
    NoTopic: ProtocolError, "§3.3.2.1", "a topic name is empty and no topic alias stands for it";
    TopicName: TopicNameInvalid, "§3.3.2.1", "a topic name has wildcards";
    ResponseTopic: ProtocolError, "§3.3.2.3.5", "a response topic is empty or has wildcards";
    SubscriptionIdInPublish: ProtocolError, "§3.3.4", "a client's PUBLISH has a subscription identifier";
    AliasOverMaximum: TopicAliasInvalid, "§3.3.2.3.4", "a topic alias is above the maximum told in CONNACK";
    AliasUnknown: ProtocolError, "§3.3.2.3.4", "a topic alias that was not set";
    ReceiveMaximum: ReceiveMaximumExceeded, "§3.3.4", "more in flight than the receive maximum told in CONNACK";
    TooManyInFlight: QuotaExceeded, "§4.9", "too many messages in flight";
    AckMismatch: ProtocolError, "§4.3", "an acknowledgement of another QoS than the message's";
    NoFilters: ProtocolError, "§3.8.3", "SUBSCRIBE or UNSUBSCRIBE without a topic filter";
    EmptyFilter: MalformedPacket, "§4.7.3", "a topic filter is empty";
    SubscribeOptions: ProtocolError, "§3.8.3.1", "subscription options that are reserved";
    NoLocalShared: ProtocolError, "§3.8.3.1", "No Local on a shared subscription";
    TooManyFilters: QuotaExceeded, "§3.8.4", "more topic filters in one packet than a device may have";
    NoReasons: ProtocolError, "§3.9.3", "SUBACK or UNSUBACK without a reason code";
    ConnAckFlags: MalformedPacket, "§3.2.2.1", "connect acknowledge flags that are reserved, or a session with a refusal";
    NotConnected: ProtocolError, "§3.1.0", "the first packet is not CONNECT";
    SecondConnect: ProtocolError, "§3.1.0", "a second CONNECT";
    ServersPacket: ProtocolError, "§2.1.2", "a packet that only a server sends";
    ServersProperty: ProtocolError, "§3.14.2.2", "a property that only a server sends";
    SessionExpiryRaised: ProtocolError, "§3.14.2.2.2", "DISCONNECT gives a session expiry that CONNECT had not";
    AuthUnexpected: ProtocolError, "§4.12", "AUTH where CONNECT named no authentication method";
    AuthMethod: BadAuthenticationMethod, "§4.12", "the authentication method is not supported";
    NoClientId: ClientIdentifierNotValid, "§3.1.3.1", "MQTT 3.1.1 needs a client identifier where the session is kept";
    EarlyPackets: QuotaExceeded, "§3.1.4", "too much was sent before CONNACK";
}

impl Violation {
    pub fn close_reason(self) -> CloseReason {
        match self {
            Violation::TooBig => CloseReason::TooBig,
            Violation::InvalidUtf8 | Violation::NulInString => CloseReason::InvalidUtf8,
            Violation::TooManyInFlight | Violation::EarlyPackets => CloseReason::RateLimited,
            _ if self.reason_code() == ReasonCode::MalformedPacket => CloseReason::ProtocolError,
            _ => CloseReason::BadMessage,
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (MQTT {})", self.text(), self.section())
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::super::PacketType;
    use super::*;

    #[test]
    fn every_violation_can_be_said() {
        for violation in Violation::ALL {
            let code = violation.reason_code();
            let in_connect = code.is_allowed_in(PacketType::ConnAck);
            assert!(code.is_error() && (in_connect || code.is_allowed_in(PacketType::Disconnect)));
            assert!(violation.section().starts_with('§') && violation.text().len() <= 123, "{violation:?}");
        }
    }
}

//! All protocol violations of a peer: each with the section of MQTT 5 that defines the rule, its reason code
//! and its close reason. MQTT 3.1.1 has the same rules under other numbers, and closes without a reason code.

use noroshi_types::CloseReason;

use super::reason::ReasonCode;

macro_rules! violations {
    ($($name:ident: $code:ident, $section:literal, $text:literal;)*) => {
        /// Why a packet ends the connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Violation {
            $(#[doc = $text] $name,)*
        }

        impl Violation {
            pub const ALL: &'static [Violation] = &[$(Violation::$name),*];

            /// The reason code in DISCONNECT or CONNACK.
            pub fn reason_code(self) -> ReasonCode {
                match self {
                    $(Violation::$name => ReasonCode::$code,)*
                }
            }

            /// The section of MQTT 5 that defines the rule.
            pub fn section(self) -> &'static str {
                match self {
                    $(Violation::$name => $section,)*
                }
            }

            /// Public: contains none of the peer's bytes.
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
    ReservedFlags: MalformedPacket, "§2.1.3", "reserved flags of the fixed header have a wrong value";
    LengthTooLong: MalformedPacket, "§1.5.5", "a variable byte integer has more than four bytes";
    LengthNotMinimal: MalformedPacket, "§1.5.5", "a variable byte integer is longer than necessary";
    TooBig: PacketTooLarge, "§3.1.2.11.4", "the packet exceeds the maximum packet size";
    Truncated: MalformedPacket, "§2.1.4", "the packet ends within a field";
    TrailingBytes: MalformedPacket, "§2.1.4", "the packet continues after its last field";
    InvalidUtf8: MalformedPacket, "§1.5.4", "a string is not valid UTF-8";
    NulInString: MalformedPacket, "§1.5.4", "a string contains U+0000";
    UnknownProperty: MalformedPacket, "§2.2.2.2", "the packet must not contain this property";
    RepeatedProperty: ProtocolError, "§2.2.2.2", "a property occurs twice";
    PropertyValue: ProtocolError, "§2.2.2.2", "a property has an invalid value";
    TopicAliasZero: TopicAliasInvalid, "§3.3.2.3.4", "topic alias 0 is forbidden";
    AuthDataWithoutMethod: ProtocolError, "§3.1.2.11.10", "authentication data without a method";
    ReasonUnknown: ProtocolError, "§2.4", "the packet must not contain this reason code";
    NoPacketId: ProtocolError, "§2.2.1", "a packet identifier is 0";
    ProtocolName: UnsupportedProtocolVersion, "§3.1.2.1", "the protocol name is neither MQTT nor MQIsdp";
    ProtocolLevel: UnsupportedProtocolVersion, "§3.1.2.2", "the protocol level is not 3 (3.1), 4 (3.1.1) or 5";
    ConnectReserved: MalformedPacket, "§3.1.2.3", "the reserved connect flag is set";
    WillFlags: MalformedPacket, "§3.1.2.6", "will flags without a will, or will QoS 3";
    PasswordWithoutUser: MalformedPacket, "§3.1.2.9", "MQTT 3.1.1 forbids a password without a user name";
    WillTopicMalformed: MalformedPacket, "§4.7", "the will's topic is empty or contains wildcards";
    WillTopic: TopicNameInvalid, "§3.1.3.3", "clients may not publish to the will's topic";
    QosThree: MalformedPacket, "§3.3.1.2", "QoS 3";
    DupAtQosZero: MalformedPacket, "§3.3.1.1", "DUP at QoS 0";
    NoTopic: ProtocolError, "§3.3.2.1", "the topic name is empty and there is no topic alias";
    TopicName: TopicNameInvalid, "§3.3.2.1", "the topic name contains wildcards";
    ResponseTopic: ProtocolError, "§3.3.2.3.5", "the response topic is empty or contains wildcards";
    SubscriptionIdInPublish: ProtocolError, "§3.3.4", "a client's PUBLISH must not contain a subscription identifier";
    AliasOverMaximum: TopicAliasInvalid, "§3.3.2.3.4", "the topic alias exceeds the maximum in CONNACK";
    AliasUnknown: ProtocolError, "§3.3.2.3.4", "the topic alias was not set";
    ReceiveMaximum: ReceiveMaximumExceeded, "§3.3.4", "more messages in flight than the receive maximum in CONNACK";
    TooManyInFlight: QuotaExceeded, "§4.9", "too many messages in flight";
    AckMismatch: ProtocolError, "§4.3", "the acknowledgement does not match the message's QoS";
    NoFilters: ProtocolError, "§3.8.3", "SUBSCRIBE or UNSUBSCRIBE without a topic filter";
    EmptyFilter: MalformedPacket, "§4.7.3", "a topic filter is empty";
    SubscribeOptions: ProtocolError, "§3.8.3.1", "reserved bits of the subscription options are set";
    NoLocalShared: ProtocolError, "§3.8.3.1", "No Local on a shared subscription";
    TooManyFilters: QuotaExceeded, "§3.8.4", "the packet contains more topic filters than a device may have";
    NoReasons: ProtocolError, "§3.9.3", "SUBACK or UNSUBACK without a reason code";
    ConnAckFlags: MalformedPacket, "§3.2.2.1", "reserved connect acknowledge flags, or a session in a rejection";
    NotConnected: ProtocolError, "§3.1.0", "the first packet is not CONNECT";
    SecondConnect: ProtocolError, "§3.1.0", "a second CONNECT";
    ServersPacket: ProtocolError, "§2.1.2", "only servers send this packet";
    ServersProperty: ProtocolError, "§3.14.2.2", "only servers send this property";
    SessionExpiryRaised: ProtocolError, "§3.14.2.2.2", "DISCONNECT sets a session expiry although CONNECT had none";
    AuthUnexpected: ProtocolError, "§4.12", "AUTH although CONNECT named no authentication method";
    AuthMethod: BadAuthenticationMethod, "§4.12", "the authentication method is not supported";
    NoClientId: ClientIdentifierNotValid, "§3.1.3.1", "MQTT 3.1.1 requires a client identifier for a persistent session";
    EarlyPackets: QuotaExceeded, "§3.1.4", "too many bytes were sent before CONNACK";
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
    fn every_violation_has_an_allowed_reason_code() {
        for violation in Violation::ALL {
            let code = violation.reason_code();
            let in_connect = code.is_allowed_in(PacketType::ConnAck);
            assert!(code.is_error() && (in_connect || code.is_allowed_in(PacketType::Disconnect)));
            assert!(violation.section().starts_with('§') && violation.text().len() <= 123, "{violation:?}");
        }
    }
}

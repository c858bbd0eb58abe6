//! The reason codes of MQTT 5 (§2.4), the packets that may carry each, and the corresponding return codes of
//! MQTT 3.1.1. No other file knows their numbers.

use super::packet_type::PacketType;

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal in $($packet:ident)*;)*) => {
        /// Success is 0 everywhere: "normal disconnection" and "granted QoS 0" have the same number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ReasonCode {
            $($(#[$doc])* $name = $code,)*
        }

        impl ReasonCode {
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$name),*];

            pub fn from_u8(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(ReasonCode::$name),)*
                    _ => None,
                }
            }

            /// The packets that may carry it, one bit per type.
            fn packets(self) -> u16 {
                match self {
                    $(ReasonCode::$name => 0 $(| 1 << PacketType::$packet as u16)*,)*
                }
            }
        }
    };
}

reason_codes! {
    Success = 0x00 in ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth;
    GrantedQos1 = 0x01 in SubAck;
    GrantedQos2 = 0x02 in SubAck;
    DisconnectWithWill = 0x04 in Disconnect;
    NoMatchingSubscribers = 0x10 in PubAck PubRec;
    NoSubscriptionExisted = 0x11 in UnsubAck;
    ContinueAuthentication = 0x18 in Auth;
    ReAuthenticate = 0x19 in Auth;
    UnspecifiedError = 0x80 in ConnAck PubAck PubRec SubAck UnsubAck Disconnect;
    MalformedPacket = 0x81 in ConnAck Disconnect;
    ProtocolError = 0x82 in ConnAck Disconnect;
    ImplementationSpecificError = 0x83 in ConnAck PubAck PubRec SubAck UnsubAck Disconnect;
    UnsupportedProtocolVersion = 0x84 in ConnAck;
    ClientIdentifierNotValid = 0x85 in ConnAck;
    BadUserNameOrPassword = 0x86 in ConnAck;
    NotAuthorized = 0x87 in ConnAck PubAck PubRec SubAck UnsubAck Disconnect;
    ServerUnavailable = 0x88 in ConnAck;
    ServerBusy = 0x89 in ConnAck Disconnect;
    Banned = 0x8A in ConnAck;
    ServerShuttingDown = 0x8B in Disconnect;
    BadAuthenticationMethod = 0x8C in ConnAck Disconnect;
    KeepAliveTimeout = 0x8D in Disconnect;
    SessionTakenOver = 0x8E in Disconnect;
    TopicFilterInvalid = 0x8F in SubAck UnsubAck Disconnect;
    TopicNameInvalid = 0x90 in ConnAck PubAck PubRec Disconnect;
    PacketIdentifierInUse = 0x91 in PubAck PubRec SubAck UnsubAck;
    PacketIdentifierNotFound = 0x92 in PubRel PubComp;
    ReceiveMaximumExceeded = 0x93 in Disconnect;
    TopicAliasInvalid = 0x94 in Disconnect;
    PacketTooLarge = 0x95 in ConnAck Disconnect;
    MessageRateTooHigh = 0x96 in Disconnect;
    QuotaExceeded = 0x97 in ConnAck PubAck PubRec SubAck Disconnect;
    AdministrativeAction = 0x98 in Disconnect;
    PayloadFormatInvalid = 0x99 in ConnAck PubAck PubRec Disconnect;
    RetainNotSupported = 0x9A in ConnAck Disconnect;
    QosNotSupported = 0x9B in ConnAck Disconnect;
    UseAnotherServer = 0x9C in ConnAck Disconnect;
    ServerMoved = 0x9D in ConnAck Disconnect;
    SharedSubscriptionsNotSupported = 0x9E in SubAck Disconnect;
    ConnectionRateExceeded = 0x9F in ConnAck Disconnect;
    MaximumConnectTime = 0xA0 in Disconnect;
    SubscriptionIdentifiersNotSupported = 0xA1 in SubAck Disconnect;
    WildcardSubscriptionsNotSupported = 0xA2 in SubAck Disconnect;
}

impl ReasonCode {
    /// 0x80 and above (§2.4).
    pub fn is_error(self) -> bool {
        self as u8 >= 0x80
    }

    pub fn is_allowed_in(self, packet: PacketType) -> bool {
        self.packets() & 1 << packet as u16 != 0
    }

    /// The closest CONNACK return code of MQTT 3.1.1 (§3.2.2.3).
    pub fn connect_return_code(self) -> u8 {
        match self {
            ReasonCode::Success => 0,
            ReasonCode::UnsupportedProtocolVersion => 1,
            ReasonCode::ClientIdentifierNotValid => 2,
            ReasonCode::BadUserNameOrPassword => 4,
            ReasonCode::NotAuthorized
            | ReasonCode::Banned
            | ReasonCode::BadAuthenticationMethod
            | ReasonCode::TopicNameInvalid => 5,
            _ => 3,
        }
    }

    /// The SUBACK return code of MQTT 3.1.1 (§3.9.3), which has one for all failures.
    pub fn subscribe_return_code(self) -> u8 {
        match self.is_error() {
            true => 0x80,
            false => self as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        assert_eq!(ReasonCode::ALL.len(), 43);
        for code in 0..=u8::MAX {
            assert!(ReasonCode::from_u8(code).is_none_or(|reason| reason as u8 == code));
        }
        for reason in ReasonCode::ALL {
            assert_eq!(ReasonCode::from_u8(*reason as u8), Some(*reason));
            assert!(reason.packets() != 0, "{reason:?} stands nowhere");
        }
    }

    #[test]
    fn return_codes_of_3_1_1_are_in_range() {
        for reason in ReasonCode::ALL {
            assert!(reason.connect_return_code() <= 5);
            assert!(matches!(reason.subscribe_return_code(), 0x80) == reason.is_error());
        }
    }
}

//! The packet types of MQTT (§2.1.2), with the flags of their fixed headers (§2.1.3).

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    pub(super) const ALL: [PacketType; 15] = [
        PacketType::Connect,
        PacketType::ConnAck,
        PacketType::Publish,
        PacketType::PubAck,
        PacketType::PubRec,
        PacketType::PubRel,
        PacketType::PubComp,
        PacketType::Subscribe,
        PacketType::SubAck,
        PacketType::Unsubscribe,
        PacketType::UnsubAck,
        PacketType::PingReq,
        PacketType::PingResp,
        PacketType::Disconnect,
        PacketType::Auth,
    ];

    /// §2.1.3; only PUBLISH has variable flags.
    pub(super) fn fixed_flags(self) -> Option<u8> {
        match self {
            PacketType::Publish => None,
            PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => Some(0b0010),
            _ => Some(0),
        }
    }

    /// Packets that MQTT 3.1 resends with DUP, the flag of PUBLISH (its §2.1).
    pub(super) fn has_dup(self) -> bool {
        self.fixed_flags() == Some(0b0010)
    }

    /// The name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PacketType::Connect => "connect",
            PacketType::ConnAck => "connack",
            PacketType::Publish => "publish",
            PacketType::PubAck => "puback",
            PacketType::PubRec => "pubrec",
            PacketType::PubRel => "pubrel",
            PacketType::PubComp => "pubcomp",
            PacketType::Subscribe => "subscribe",
            PacketType::SubAck => "suback",
            PacketType::Unsubscribe => "unsubscribe",
            PacketType::UnsubAck => "unsuback",
            PacketType::PingReq => "pingreq",
            PacketType::PingResp => "pingresp",
            PacketType::Disconnect => "disconnect",
            PacketType::Auth => "auth",
        }
    }
}

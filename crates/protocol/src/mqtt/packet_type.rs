//! The packet types of MQTT (§2.1.2), with the flags of their fixed headers (§2.1.3).

noroshi_types::names! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum PacketType {
        Connect = 1 => "connect",
        ConnAck = 2 => "connack",
        Publish = 3 => "publish",
        PubAck = 4 => "puback",
        PubRec = 5 => "pubrec",
        PubRel = 6 => "pubrel",
        PubComp = 7 => "pubcomp",
        Subscribe = 8 => "subscribe",
        SubAck = 9 => "suback",
        Unsubscribe = 10 => "unsubscribe",
        UnsubAck = 11 => "unsuback",
        PingReq = 12 => "pingreq",
        PingResp = 13 => "pingresp",
        Disconnect = 14 => "disconnect",
        Auth = 15 => "auth",
    }
}

impl PacketType {
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
}

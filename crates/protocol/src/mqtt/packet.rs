//! The fifteen packets, parsed in place and encoded, for both ends and both versions. Each file handles one
//! family. Semantics are in the conversation.

mod ack;
mod connect;
mod publish;
mod qos;
mod subscribe;

pub use ack::{Ack, ConnAck, Notice};
pub use connect::{Connect, LastWill};
pub use publish::Publish;
pub(in crate::mqtt) use publish::flags;
pub use qos::Qos;
pub use subscribe::{Filters, RetainHandling, SubAck, Subscribe, SubscribeOptions};

use super::frame::Frame;
use super::packet_type::PacketType;
use super::property::Properties;
use super::reader::Reader;
use super::violation::Violation;
use super::writer::push_packet;

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4; and 3.1, level 3, which differs little ([`Connect::is_mqtt31`]).
    V3 = 4,
    V5 = 5,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Subscribe<'a>),
    UnsubAck(SubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Notice<'a>),
    Auth(Notice<'a>),
}

impl<'a> Packet<'a> {
    /// Parses a packet's body. CONNECT contains its own version; `version` applies to all others.
    pub fn parse(version: Version, frame: Frame<'a>) -> Result<Self, Violation> {
        let mut reader = Reader::new(frame.body);
        let packet_type = frame.packet_type;
        if packet_type.fixed_flags().is_some_and(|fixed| fixed != frame.flags) {
            return Err(Violation::ReservedFlags);
        }
        if packet_type != PacketType::Connect && version == Version::V5 && !frame.minimal {
            return Err(Violation::LengthNotMinimal);
        }
        let packet = match packet_type {
            PacketType::Connect => {
                let connect = Connect::read(&mut reader)?;
                if connect.version == Version::V5 && !frame.minimal {
                    return Err(Violation::LengthNotMinimal);
                }
                Packet::Connect(connect)
            }
            PacketType::ConnAck => Packet::ConnAck(ConnAck::read(version, &mut reader)?),
            PacketType::Publish => Packet::Publish(Publish::read(version, frame.flags, &mut reader)?),
            PacketType::PubAck => Packet::PubAck(Ack::read(version, packet_type, &mut reader)?),
            PacketType::PubRec => Packet::PubRec(Ack::read(version, packet_type, &mut reader)?),
            PacketType::PubRel => Packet::PubRel(Ack::read(version, packet_type, &mut reader)?),
            PacketType::PubComp => Packet::PubComp(Ack::read(version, packet_type, &mut reader)?),
            PacketType::Subscribe => Packet::Subscribe(Subscribe::read(version, packet_type, &mut reader)?),
            PacketType::SubAck => Packet::SubAck(SubAck::read(version, packet_type, &mut reader)?),
            PacketType::Unsubscribe => {
                Packet::Unsubscribe(Subscribe::read(version, packet_type, &mut reader)?)
            }
            PacketType::UnsubAck => Packet::UnsubAck(SubAck::read(version, packet_type, &mut reader)?),
            PacketType::PingReq => Packet::PingReq,
            PacketType::PingResp => Packet::PingResp,
            PacketType::Disconnect => Packet::Disconnect(Notice::read(version, packet_type, &mut reader)?),
            // MQTT 3.1.1 §2.2.1
            PacketType::Auth if version == Version::V3 => return Err(Violation::ReservedType),
            PacketType::Auth => Packet::Auth(Notice::read(version, packet_type, &mut reader)?),
        };
        reader.end()?;
        Ok(packet)
    }

    pub fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let packet_type = self.packet_type();
        match self {
            Packet::Connect(connect) => connect.write(out),
            Packet::ConnAck(connack) => connack.write(version, out),
            Packet::Publish(publish) => publish.write(version, out),
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
                ack.write(version, packet_type, out);
            }
            Packet::Subscribe(request) | Packet::Unsubscribe(request) => {
                request.write(version, packet_type, out);
            }
            Packet::SubAck(ack) | Packet::UnsubAck(ack) => ack.write(version, packet_type, out),
            Packet::PingReq | Packet::PingResp => push_packet(out, packet_type, |_| {}),
            Packet::Disconnect(notice) => notice.write(version, packet_type, out),
            Packet::Auth(notice) => notice.write(Version::V5, packet_type, out),
        }
    }

    /// Removes the properties.
    pub(in crate::mqtt) fn bare(mut self) -> Self {
        match &mut self {
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
                ack.properties = Properties::default();
            }
            Packet::SubAck(ack) | Packet::UnsubAck(ack) => ack.properties = Properties::default(),
            _ => {}
        }
        self
    }

    pub fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::ConnAck(_) => PacketType::ConnAck,
            Packet::Publish(_) => PacketType::Publish,
            Packet::PubAck(_) => PacketType::PubAck,
            Packet::PubRec(_) => PacketType::PubRec,
            Packet::PubRel(_) => PacketType::PubRel,
            Packet::PubComp(_) => PacketType::PubComp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::SubAck(_) => PacketType::SubAck,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::UnsubAck(_) => PacketType::UnsubAck,
            Packet::PingReq => PacketType::PingReq,
            Packet::PingResp => PacketType::PingResp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }
}

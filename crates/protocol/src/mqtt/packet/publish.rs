//! PUBLISH (§3.3).

use super::connect::{read_properties, write_properties};
use super::{Qos, Version};
use crate::mqtt::property::{Holder, Properties, Property};
use crate::mqtt::reader::Reader;
use crate::mqtt::writer::{push_flagged, push_text, push_u16};
use crate::mqtt::{PacketType, Violation};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: Qos,
    pub retain: bool,
    /// Empty if a topic alias replaces it.
    pub topic: &'a str,
    /// 0 at QoS 0, and only then.
    pub packet_id: u16,
    pub properties: Properties<'a>,
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    pub(super) fn read(version: Version, flags: u8, reader: &mut Reader<'a>) -> Result<Self, Violation> {
        let dup = flags & 0b1000 != 0;
        let qos = Qos::from_bits(flags >> 1 & 3).ok_or(Violation::QosThree)?;
        if dup && qos == Qos::AtMostOnce {
            return Err(Violation::DupAtQosZero); // [MQTT-3.3.1-2]
        }
        let topic = reader.text()?;
        if topic.contains(['+', '#']) {
            return Err(Violation::TopicName); // [MQTT-3.3.2-2]
        }
        let packet_id = if qos == Qos::AtMostOnce { 0 } else { reader.packet_id()? };
        let properties = read_properties(version, reader, Holder::Packet(PacketType::Publish))?;
        if topic.is_empty() && properties.number(Property::TopicAlias).is_none() {
            return Err(Violation::NoTopic);
        }
        Ok(Self { dup, qos, retain: flags & 1 != 0, topic, packet_id, properties, payload: reader.rest() })
    }

    pub(super) fn write(&self, version: Version, out: &mut Vec<u8>) {
        push_flagged(out, PacketType::Publish, flags(self.dup, self.qos, self.retain), |out| {
            push_text(out, self.topic);
            if self.qos != Qos::AtMostOnce {
                push_u16(out, self.packet_id);
            }
            write_properties(version, self.properties, out);
            out.extend_from_slice(self.payload);
        });
    }
}

/// The flags of the fixed header (§3.3.1).
pub(in crate::mqtt) fn flags(dup: bool, qos: Qos, retain: bool) -> u8 {
    u8::from(dup) << 3 | (qos as u8) << 1 | u8::from(retain)
}

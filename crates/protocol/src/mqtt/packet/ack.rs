//! Packets that contain little more than a reason code: CONNACK (§3.2), PUBACK, PUBREC, PUBREL, PUBCOMP (§3.4
//! to §3.7), DISCONNECT (§3.14) and AUTH (§3.15). MQTT 5 permits omitting a reason code of success without
//! properties, and the length of empty properties.

use super::Version;
use super::connect::read_properties;
use crate::mqtt::property::{Holder, Properties};
use crate::mqtt::reader::Reader;
use crate::mqtt::writer::{push_packet, push_u16};
use crate::mqtt::{PacketType, ReasonCode, Violation};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnAck<'a> {
    pub session_present: bool,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    pub packet_id: u16,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

/// DISCONNECT or AUTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    pub(super) fn read(version: Version, reader: &mut Reader<'a>) -> Result<Self, Violation> {
        let flags = reader.u8()?;
        let reason = match version {
            Version::V5 => read_reason(PacketType::ConnAck, reader)?,
            Version::V3 => return_code(reader.u8()?)?,
        };
        if flags > 1 || flags == 1 && reason.is_error() {
            return Err(Violation::ConnAckFlags); // [MQTT-3.2.2-1], [MQTT-3.2.2-6]
        }
        let properties = read_properties(version, reader, Holder::Packet(PacketType::ConnAck))?;
        Ok(Self { session_present: flags == 1, reason, properties })
    }

    pub(super) fn write(&self, version: Version, out: &mut Vec<u8>) {
        push_packet(out, PacketType::ConnAck, |out| {
            out.push(u8::from(self.session_present));
            match version {
                Version::V3 => out.push(self.reason.connect_return_code()),
                Version::V5 => {
                    out.push(self.reason as u8);
                    self.properties.write(out);
                }
            }
        });
    }
}

impl<'a> Ack<'a> {
    pub fn success(packet_id: u16) -> Self {
        Self { packet_id, reason: ReasonCode::Success, properties: Properties::default() }
    }

    pub(super) fn read(
        version: Version,
        packet_type: PacketType,
        reader: &mut Reader<'a>,
    ) -> Result<Self, Violation> {
        let packet_id = reader.packet_id()?;
        let (reason, properties) = read_outcome(version, packet_type, reader)?;
        Ok(Self { packet_id, reason, properties })
    }

    pub(super) fn write(&self, version: Version, packet_type: PacketType, out: &mut Vec<u8>) {
        push_packet(out, packet_type, |out| {
            push_u16(out, self.packet_id);
            write_outcome(version, self.reason, self.properties, out);
        });
    }
}

impl<'a> Notice<'a> {
    pub(super) fn read(
        version: Version,
        packet_type: PacketType,
        reader: &mut Reader<'a>,
    ) -> Result<Self, Violation> {
        let (reason, properties) = read_outcome(version, packet_type, reader)?;
        Ok(Self { reason, properties })
    }

    pub(super) fn write(&self, version: Version, packet_type: PacketType, out: &mut Vec<u8>) {
        push_packet(out, packet_type, |out| write_outcome(version, self.reason, self.properties, out));
    }
}

pub(super) fn read_reason(packet_type: PacketType, reader: &mut Reader<'_>) -> Result<ReasonCode, Violation> {
    let reason = ReasonCode::from_u8(reader.u8()?);
    reason.filter(|reason| reason.is_allowed_in(packet_type)).ok_or(Violation::ReasonUnknown)
}

/// MQTT 3.1.1 §3.2.2.3, mapped to MQTT 5 codes.
fn return_code(code: u8) -> Result<ReasonCode, Violation> {
    Ok(match code {
        0 => ReasonCode::Success,
        1 => ReasonCode::UnsupportedProtocolVersion,
        2 => ReasonCode::ClientIdentifierNotValid,
        3 => ReasonCode::ServerUnavailable,
        4 => ReasonCode::BadUserNameOrPassword,
        5 => ReasonCode::NotAuthorized,
        _ => return Err(Violation::ReasonUnknown),
    })
}

/// Reads the optional end of a packet.
fn read_outcome<'a>(
    version: Version,
    packet_type: PacketType,
    reader: &mut Reader<'a>,
) -> Result<(ReasonCode, Properties<'a>), Violation> {
    if version == Version::V3 || reader.is_empty() {
        return Ok((ReasonCode::Success, Properties::default()));
    }
    let reason = read_reason(packet_type, reader)?;
    let properties = match reader.is_empty() {
        true => Properties::default(),
        false => Properties::read(reader, Holder::Packet(packet_type))?,
    };
    Ok((reason, properties))
}

fn write_outcome(version: Version, reason: ReasonCode, properties: Properties<'_>, out: &mut Vec<u8>) {
    if version == Version::V3 || reason == ReasonCode::Success && properties.is_empty() {
        return;
    }
    out.push(reason as u8);
    if !properties.is_empty() {
        properties.write(out);
    }
}

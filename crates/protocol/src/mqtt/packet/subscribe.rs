//! SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK (§3.8 to §3.11). Lists are validated once and stay encoded, so a
//! packet of ten thousand filters allocates nothing.

use super::connect::{read_properties, write_properties};
use super::{Qos, Version};
use crate::mqtt::property::{Holder, Properties};
use crate::mqtt::reader::Reader;
use crate::mqtt::topic::is_shared;
use crate::mqtt::writer::{push_packet, push_text, push_u16};
use crate::mqtt::{PacketType, ReasonCode, Violation};

/// When a subscription delivers retained messages (§3.8.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetainHandling {
    Send,
    SendIfNew,
    DoNotSend,
}

/// The options of one filter: the validated byte of the wire. MQTT 3.1.1 has the QoS only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscribeOptions(u8);

impl SubscribeOptions {
    pub fn new(qos: Qos) -> Self {
        Self(qos as u8)
    }

    /// For a store, which keeps the same byte.
    pub fn from_u8(byte: u8) -> Option<Self> {
        (byte & 0b1100_0000 == 0 && byte & 0b11 != 0b11 && byte & 0b11_0000 != 0b11_0000)
            .then_some(Self(byte))
    }

    pub fn as_u8(self) -> u8 {
        self.0
    }

    pub fn with_no_local(self) -> Self {
        Self(self.0 | 1 << 2)
    }

    pub fn with_retain_as_published(self) -> Self {
        Self(self.0 | 1 << 3)
    }

    pub fn with_retain_handling(self, handling: RetainHandling) -> Self {
        Self(self.0 & !0b11_0000 | (handling as u8) << 4)
    }

    pub fn qos(self) -> Qos {
        Qos::from_bits(self.0 & 0b11).unwrap_or_default()
    }

    /// The client does not receive its own messages.
    pub fn no_local(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    pub fn retain_as_published(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    pub fn retain_handling(self) -> RetainHandling {
        match self.0 >> 4 & 0b11 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            _ => RetainHandling::DoNotSend,
        }
    }
}

/// Filters with their options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filters<'a> {
    bytes: &'a [u8],
    with_options: bool,
}

impl<'a> Filters<'a> {
    fn read(reader: &mut Reader<'a>, with_options: bool, version: Version) -> Result<Self, Violation> {
        let mut rest = *reader;
        if rest.is_empty() {
            return Err(Violation::NoFilters); // [MQTT-3.8.3-2], [MQTT-3.10.3-2]
        }
        let bytes = reader.rest();
        while !rest.is_empty() {
            let filter = rest.text()?;
            if filter.is_empty() {
                return Err(Violation::EmptyFilter); // [MQTT-4.7.3-1]
            }
            if !with_options {
                continue;
            }
            let options = SubscribeOptions::from_u8(rest.u8()?).ok_or(Violation::SubscribeOptions)?;
            if version == Version::V3 && options.0 > 2 {
                return Err(Violation::SubscribeOptions); // MQTT 3.1.1 [MQTT-3.8.3-4]
            }
            if options.no_local() && is_shared(filter) {
                return Err(Violation::NoLocalShared); // [MQTT-3.8.3-4]
            }
        }
        Ok(Self { bytes, with_options })
    }

    /// Filters of UNSUBSCRIBE have the options of QoS 0.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, SubscribeOptions)> {
        let mut rest = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            let filter = rest.text().ok()?;
            let options = if self.with_options { rest.u8().ok()? } else { 0 };
            Some((filter, SubscribeOptions(options)))
        })
    }
}

/// Encodes filters.
pub(in crate::mqtt) fn push_filters(
    out: &mut Vec<u8>,
    filters: impl Iterator<Item = (impl AsRef<str>, SubscribeOptions)>,
    with_options: bool,
) {
    for (filter, options) in filters {
        push_text(out, filter.as_ref());
        if with_options {
            out.push(options.0);
        }
    }
}

/// SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub packet_id: u16,
    pub properties: Properties<'a>,
    pub filters: Filters<'a>,
}

/// SUBACK or UNSUBACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAck<'a> {
    pub packet_id: u16,
    pub properties: Properties<'a>,
    /// One reason code per filter; empty in an UNSUBACK of MQTT 3.1.1.
    pub reasons: &'a [u8],
}

impl<'a> Subscribe<'a> {
    /// SUBSCRIBE; `filters` must be the output of [`Subscribe::encode_filters`].
    pub fn new(packet_id: u16, properties: Properties<'a>, filters: &'a [u8]) -> Self {
        Self { packet_id, properties, filters: Filters { bytes: filters, with_options: true } }
    }

    /// UNSUBSCRIBE; `filters` must be the output of [`Subscribe::encode_bare`].
    pub fn bare(packet_id: u16, properties: Properties<'a>, filters: &'a [u8]) -> Self {
        Self { packet_id, properties, filters: Filters { bytes: filters, with_options: false } }
    }

    pub fn encode_filters(filters: &[(&str, SubscribeOptions)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_filters(&mut bytes, filters.iter().copied(), true);
        bytes
    }

    /// Filters without options.
    pub fn encode_bare(filters: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_filters(&mut bytes, filters.iter().map(|filter| (filter, SubscribeOptions(0))), false);
        bytes
    }

    pub(super) fn read(
        version: Version,
        packet_type: PacketType,
        reader: &mut Reader<'a>,
    ) -> Result<Self, Violation> {
        let packet_id = reader.packet_id()?;
        let properties = read_properties(version, reader, Holder::Packet(packet_type))?;
        let filters = Filters::read(reader, packet_type == PacketType::Subscribe, version)?;
        Ok(Self { packet_id, properties, filters })
    }

    pub(super) fn write(&self, version: Version, packet_type: PacketType, out: &mut Vec<u8>) {
        push_packet(out, packet_type, |out| {
            push_u16(out, self.packet_id);
            write_properties(version, self.properties, out);
            out.extend_from_slice(self.filters.bytes);
        });
    }
}

impl<'a> SubAck<'a> {
    pub(super) fn read(
        version: Version,
        packet_type: PacketType,
        reader: &mut Reader<'a>,
    ) -> Result<Self, Violation> {
        let packet_id = reader.packet_id()?;
        let properties = read_properties(version, reader, Holder::Packet(packet_type))?;
        let bare = version == Version::V3 && packet_type == PacketType::UnsubAck;
        let reasons = if bare { &[] } else { reader.rest() };
        if reasons.is_empty() && !bare {
            return Err(Violation::NoReasons);
        }
        let allowed = |code: u8| match version {
            Version::V3 => matches!(code, 0..=2 | 0x80), // MQTT 3.1.1 [MQTT-3.9.3-2]
            Version::V5 => ReasonCode::from_u8(code).is_some_and(|reason| reason.is_allowed_in(packet_type)),
        };
        match reasons.iter().all(|code| allowed(*code)) {
            true => Ok(Self { packet_id, properties, reasons }),
            false => Err(Violation::ReasonUnknown),
        }
    }

    pub(super) fn write(&self, version: Version, packet_type: PacketType, out: &mut Vec<u8>) {
        push_packet(out, packet_type, |out| {
            push_u16(out, self.packet_id);
            write_properties(version, self.properties, out);
            if version == Version::V5 || packet_type == PacketType::SubAck {
                out.extend_from_slice(self.reasons);
            }
        });
    }
}

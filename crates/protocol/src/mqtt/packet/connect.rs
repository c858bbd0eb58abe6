//! CONNECT (§3.1).

use super::{Qos, Version};
use crate::mqtt::property::{Holder, Properties};
use crate::mqtt::reader::Reader;
use crate::mqtt::topic::is_topic_name;
use crate::mqtt::writer::{push_binary, push_packet, push_text, push_u16};
use crate::mqtt::{PacketType, Violation};

#[derive(Clone, Copy, PartialEq)]
pub struct Connect<'a> {
    pub version: Version,
    /// MQTT 3.1: protocol name MQIsdp, level 3. Its clients set DUP when they resend PUBREL, SUBSCRIBE and
    /// UNSUBSCRIBE, and do not learn whether a session was present.
    pub is_mqtt31: bool,
    /// Clean Session in MQTT 3.1.1.
    pub clean_start: bool,
    /// 0 disables it.
    pub keep_alive_s: u16,
    pub properties: Properties<'a>,
    pub client_id: &'a str,
    pub will: Option<LastWill<'a>>,
    pub username: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

/// Published if the client disconnects abnormally (§3.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastWill<'a> {
    pub qos: Qos,
    pub retain: bool,
    pub properties: Properties<'a>,
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// The protocol name of MQTT 3.1.
const MQTT31_NAME: &[u8] = b"MQIsdp";
const MQTT31_LEVEL: u8 = 3;

const CLEAN_START: u8 = 1 << 1;
const WILL: u8 = 1 << 2;
const WILL_RETAIN: u8 = 1 << 5;
const PASSWORD: u8 = 1 << 6;
const USERNAME: u8 = 1 << 7;

impl<'a> Connect<'a> {
    /// The protocol level of a CONNECT with an unsupported version, for a rejection that the client
    /// understands.
    pub(in crate::mqtt) fn names_mqtt(body: &[u8]) -> Option<u8> {
        let mut reader = Reader::new(body);
        let name = reader.binary().ok()?;
        let known = name == b"MQTT" || name == MQTT31_NAME;
        reader.u8().ok().filter(|_| known)
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Violation> {
        let is_mqtt31 = match reader.binary()? {
            b"MQTT" => false,
            MQTT31_NAME => true,
            _ => return Err(Violation::ProtocolName),
        };
        let version = match (is_mqtt31, reader.u8()?) {
            (true, MQTT31_LEVEL) | (false, 4) => Version::V3,
            (false, 5) => Version::V5,
            _ => return Err(Violation::ProtocolLevel),
        };
        let flags = reader.u8()?;
        check_flags(flags, version)?;
        let keep_alive_s = reader.u16()?;
        let properties = read_properties(version, reader, Holder::Packet(PacketType::Connect))?;
        let client_id = reader.text()?;
        let will = match flags & WILL != 0 {
            true => Some(LastWill::read(flags, version, reader)?),
            false => None,
        };
        let username = if flags & USERNAME != 0 { Some(reader.text()?) } else { None };
        let password = if flags & PASSWORD != 0 { Some(reader.binary()?) } else { None };
        let clean_start = flags & CLEAN_START != 0;
        Ok(Self {
            version,
            is_mqtt31,
            clean_start,
            keep_alive_s,
            properties,
            client_id,
            will,
            username,
            password,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let will = self.will.as_ref();
        let flags = flag(self.clean_start, CLEAN_START)
            | will.map_or(0, |will| WILL | (will.qos as u8) << 3 | flag(will.retain, WILL_RETAIN))
            | flag(self.password.is_some(), PASSWORD)
            | flag(self.username.is_some(), USERNAME);
        push_packet(out, PacketType::Connect, |out| {
            match self.is_mqtt31 {
                true => {
                    push_binary(out, MQTT31_NAME);
                    out.push(MQTT31_LEVEL);
                }
                false => {
                    push_text(out, "MQTT");
                    out.push(self.version as u8);
                }
            }
            out.push(flags);
            push_u16(out, self.keep_alive_s);
            write_properties(self.version, self.properties, out);
            push_text(out, self.client_id);
            if let Some(will) = will {
                write_properties(self.version, will.properties, out);
                push_text(out, will.topic);
                push_binary(out, will.payload);
            }
            if let Some(username) = self.username {
                push_text(out, username);
            }
            if let Some(password) = self.password {
                push_binary(out, password);
            }
        });
    }
}

impl<'a> LastWill<'a> {
    fn read(flags: u8, version: Version, reader: &mut Reader<'a>) -> Result<Self, Violation> {
        let qos = Qos::from_bits(flags >> 3 & 3).ok_or(Violation::WillFlags)?;
        let properties = read_properties(version, reader, Holder::Will)?;
        let topic = reader.text()?;
        if !is_topic_name(topic) {
            return Err(Violation::WillTopicMalformed);
        }
        Ok(Self { qos, retain: flags & WILL_RETAIN != 0, properties, topic, payload: reader.binary()? })
    }
}

impl std::fmt::Debug for Connect<'_> {
    /// Omits password and user name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (version, client_id) = (self.version as u8, self.client_id);
        write!(f, "Connect({version}, {client_id:?}, clean start {})", self.clean_start)
    }
}

fn check_flags(flags: u8, version: Version) -> Result<(), Violation> {
    if flags & 1 != 0 {
        return Err(Violation::ConnectReserved); // [MQTT-3.1.2-3]
    }
    if flags & WILL == 0 && flags & 0b0011_1000 != 0 {
        return Err(Violation::WillFlags); // [MQTT-3.1.2-11], [MQTT-3.1.2-13]
    }
    if version == Version::V3 && flags & PASSWORD != 0 && flags & USERNAME == 0 {
        return Err(Violation::PasswordWithoutUser); // MQTT 3.1.1 [MQTT-3.1.2-22]
    }
    Ok(())
}

pub(super) fn read_properties<'a>(
    version: Version,
    reader: &mut Reader<'a>,
    holder: Holder,
) -> Result<Properties<'a>, Violation> {
    match version {
        Version::V3 => Ok(Properties::default()),
        Version::V5 => Properties::read(reader, holder),
    }
}

pub(super) fn write_properties(version: Version, properties: Properties<'_>, out: &mut Vec<u8>) {
    if version == Version::V5 {
        properties.write(out);
    }
}

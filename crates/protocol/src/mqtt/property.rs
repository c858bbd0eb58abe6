//! The properties of MQTT 5 (§2.2.2): the packets that may carry each, its type and whether it may repeat.
//! Properties are validated once, when the packet is parsed, and stay encoded; look-ups read them in place.

use super::reader::Reader;
use super::topic::is_topic_name;
use super::writer::VAR_INT_MAX;
use super::writer::{push_binary, push_text, push_u16, push_u32, push_var_int};
use super::{PacketType, Violation};

/// What carries properties: a packet, or the will inside CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Packet(PacketType),
    Will,
}

impl Holder {
    /// No packet has type 0: its bit represents the will.
    fn bit(self) -> u16 {
        match self {
            Holder::Packet(packet) => 1 << packet as u16,
            Holder::Will => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Byte,
    U16,
    U32,
    VarInt,
    Text,
    Binary,
    Pair,
}

/// A property's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Byte(u8),
    U16(u16),
    U32(u32),
    VarInt(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

macro_rules! properties {
    ($($name:ident = $id:literal $kind:ident in $($holder:ident)*;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Property {
            $($name = $id,)*
        }

        impl Property {
            pub const ALL: &'static [Property] = &[$(Property::$name),*];

            fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Property::$name),)*
                    _ => None,
                }
            }

            fn kind(self) -> Kind {
                match self {
                    $(Property::$name => Kind::$kind,)*
                }
            }

            fn holders(self) -> u16 {
                // The will uses bit 0.
                #[allow(non_upper_case_globals, reason = "named like the packets beside it")]
                const Will: u16 = 0;
                use PacketType::*;
                match self {
                    $(Property::$name => 0 $(| 1 << $holder as u16)*,)*
                }
            }
        }
    };
}

// Table 2-4.
properties! {
    PayloadFormatIndicator = 0x01 Byte in Publish Will;
    MessageExpiryInterval = 0x02 U32 in Publish Will;
    ContentType = 0x03 Text in Publish Will;
    ResponseTopic = 0x08 Text in Publish Will;
    CorrelationData = 0x09 Binary in Publish Will;
    SubscriptionIdentifier = 0x0B VarInt in Publish Subscribe;
    SessionExpiryInterval = 0x11 U32 in Connect ConnAck Disconnect;
    AssignedClientIdentifier = 0x12 Text in ConnAck;
    ServerKeepAlive = 0x13 U16 in ConnAck;
    AuthenticationMethod = 0x15 Text in Connect ConnAck Auth;
    AuthenticationData = 0x16 Binary in Connect ConnAck Auth;
    RequestProblemInformation = 0x17 Byte in Connect;
    WillDelayInterval = 0x18 U32 in Will;
    RequestResponseInformation = 0x19 Byte in Connect;
    ResponseInformation = 0x1A Text in ConnAck;
    ServerReference = 0x1C Text in ConnAck Disconnect;
    ReasonString = 0x1F Text in ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth;
    ReceiveMaximum = 0x21 U16 in Connect ConnAck;
    TopicAliasMaximum = 0x22 U16 in Connect ConnAck;
    TopicAlias = 0x23 U16 in Publish;
    MaximumQos = 0x24 Byte in ConnAck;
    RetainAvailable = 0x25 Byte in ConnAck;
    UserProperty = 0x26 Pair in Connect ConnAck Publish Will PubAck PubRec PubRel PubComp Subscribe SubAck Unsubscribe UnsubAck Disconnect Auth;
    MaximumPacketSize = 0x27 U32 in Connect ConnAck;
    WildcardSubscriptionAvailable = 0x28 Byte in ConnAck;
    SubscriptionIdentifierAvailable = 0x29 Byte in ConnAck;
    SharedSubscriptionAvailable = 0x2A Byte in ConnAck;
}

impl Property {
    fn may_repeat(self, holder: Holder) -> bool {
        match self {
            Property::UserProperty => true,
            // §3.3.2.3.8: one per matching subscription.
            Property::SubscriptionIdentifier => holder == Holder::Packet(PacketType::Publish),
            _ => false,
        }
    }

    /// Checks the value's range, in addition to its type.
    fn check(self, value: Value<'_>) -> Result<(), Violation> {
        let holds = match (self, value) {
            (Property::TopicAlias, Value::U16(0)) => return Err(Violation::TopicAliasZero),
            (Property::ResponseTopic, Value::Text(topic)) if !is_topic_name(topic) => {
                return Err(Violation::ResponseTopic);
            }
            // All bytes are flags.
            (_, Value::Byte(flag)) => flag <= 1,
            (Property::ReceiveMaximum, Value::U16(maximum)) => maximum != 0,
            (Property::MaximumPacketSize, Value::U32(maximum)) => maximum != 0,
            (Property::SubscriptionIdentifier, Value::VarInt(id)) => id != 0,
            _ => true,
        };
        match holds {
            true => Ok(()),
            false => Err(Violation::PropertyValue),
        }
    }
}

/// The validated properties of a packet; empty in MQTT 3.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// Reads the length and the properties.
    pub(super) fn read(reader: &mut Reader<'a>, holder: Holder) -> Result<Self, Violation> {
        let length = reader.var_int()?;
        let bytes = reader.take(length as usize)?;
        let mut seen = 0_u64;
        let mut rest = Reader::new(bytes);
        while !rest.is_empty() {
            let property = Property::from_id(rest.var_int()?).ok_or(Violation::UnknownProperty)?;
            if property.holders() & holder.bit() == 0 {
                return Err(Violation::UnknownProperty);
            }
            let bit = 1 << property as u8;
            if seen & bit != 0 && !property.may_repeat(holder) {
                return Err(Violation::RepeatedProperty);
            }
            seen |= bit;
            property.check(read_value(&mut rest, property.kind())?)?;
        }
        let method = 1 << Property::AuthenticationMethod as u8;
        if seen & 1 << Property::AuthenticationData as u8 != 0 && seen & method == 0 {
            return Err(Violation::AuthDataWithoutMethod);
        }
        Ok(Self(bytes))
    }

    pub fn iter(self) -> impl Iterator<Item = (Property, Value<'a>)> {
        let mut rest = Reader::new(self.0);
        std::iter::from_fn(move || {
            let property = Property::from_id(rest.var_int().ok()?)?;
            Some((property, read_value(&mut rest, property.kind()).ok()?))
        })
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn find(self, wanted: Property) -> Option<Value<'a>> {
        self.iter().find(|(property, _)| *property == wanted).map(|(_, value)| value)
    }

    /// A property of a numeric type.
    pub fn number(self, property: Property) -> Option<u32> {
        match self.find(property)? {
            Value::Byte(number) => Some(u32::from(number)),
            Value::U16(number) => Some(u32::from(number)),
            Value::U32(number) | Value::VarInt(number) => Some(number),
            Value::Text(_) | Value::Binary(_) | Value::Pair(..) => None,
        }
    }

    pub fn text(self, property: Property) -> Option<&'a str> {
        match self.find(property)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn binary(self, property: Property) -> Option<&'a [u8]> {
        match self.find(property)? {
            Value::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// User properties, in order.
    pub fn user(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter().filter_map(|(_, value)| match value {
            Value::Pair(name, value) => Some((name, value)),
            _ => None,
        })
    }

    pub(super) fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// `bytes` must have been validated before.
    pub(super) fn from_checked(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Writes the length and the properties.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        push_var_int(out, u32::try_from(self.0.len()).unwrap_or(VAR_INT_MAX));
        out.extend_from_slice(self.0);
    }
}

/// Properties to be encoded. The caller ensures that the packet may carry them.
#[derive(Debug, Clone, Default)]
pub struct PropertyList(Vec<u8>);

impl PropertyList {
    pub fn new() -> Self {
        Self::default()
    }

    /// The value must have the property's type.
    pub fn push(&mut self, property: Property, value: Value<'_>) {
        push_property(&mut self.0, property, value);
    }

    pub fn properties(&self) -> Properties<'_> {
        Properties(&self.0)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

pub(super) fn push_property(out: &mut Vec<u8>, property: Property, value: Value<'_>) {
    out.push(property as u8);
    match value {
        Value::Byte(number) => out.push(number),
        Value::U16(number) => push_u16(out, number),
        Value::U32(number) => push_u32(out, number),
        Value::VarInt(number) => push_var_int(out, number),
        Value::Text(text) => push_text(out, text),
        Value::Binary(bytes) => push_binary(out, bytes),
        Value::Pair(name, value) => {
            push_text(out, name);
            push_text(out, value);
        }
    }
}

fn read_value<'a>(reader: &mut Reader<'a>, kind: Kind) -> Result<Value<'a>, Violation> {
    Ok(match kind {
        Kind::Byte => Value::Byte(reader.u8()?),
        Kind::U16 => Value::U16(reader.u16()?),
        Kind::U32 => Value::U32(reader.u32()?),
        Kind::VarInt => Value::VarInt(reader.var_int()?),
        Kind::Text => Value::Text(reader.text()?),
        Kind::Binary => Value::Binary(reader.binary()?),
        Kind::Pair => Value::Pair(reader.text()?, reader.text()?),
    })
}

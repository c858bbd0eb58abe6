//! The values inside of records: messages, ids, lists, and the kinds of records, parts, questions and answers.
//!
//! [`Field::read`] accepts what [`Field::write`] wrote, ignores what a newer version appended, and checks ids by their
//! own rules.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{
    AppId, Category, CloseReason, Condition, DeviceId, ItemEvent, Label, Message, NotificationId, Presence,
    Timestamp, Topic, TopicPosition, UserId, limits,
};

use crate::cluster::codec::{Malformed, Reader, Writer};
use crate::cluster::wire::{Addressed, ItemReport, Part, REPORT_BYTES_MAX};
use crate::edge::Session;

/// A value in the body of a record.
pub(crate) trait Field: Sized {
    /// The fewest bytes that a value takes.
    const BYTES_MIN: usize = 2;
    /// The most values in a list.
    const LIST_MAX: usize = limits::TARGETS_MAX;

    fn write(&self, out: &mut Writer<'_>);
    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Declares an enum whose variants are written as a number and their fields, in this order. Numbers never change their
/// meaning; new ones are appended. A record has its number in its head, the others before their fields.
macro_rules! kinds {
    (
        $(#[$attributes:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$doc:meta])*
                $kind:literal => $Variant:ident $({ $($field:ident: $Type:ty),* })? $(($value:ident: $Value:ty))?,
            )*
        }
    ) => {
        $(#[$attributes])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $Enum {
            $($(#[$doc])* $Variant $({ $($field: $Type),* })? $(($Value))?,)*
        }

        impl $Enum {
            fn kind(&self) -> u8 {
                match self {
                    $($Enum::$Variant { .. } => $kind,)*
                }
            }

            fn write_fields(&self, out: &mut Writer<'_>) {
                match self {
                    $($Enum::$Variant { $($($field),*)? $(0: $value)? } => {
                        $($($field.write(out);)*)?
                        $($value.write(out);)?
                    })*
                }
            }

            /// `None` for a kind of a newer version.
            fn read_fields(kind: u8, body: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
                Ok(Some(match kind {
                    $($kind => $Enum::$Variant {
                        $($($field: Field::read(body)?),*)?
                        $(0: <$Value as Field>::read(body)?)?
                    },)*
                    _ => return Ok(None),
                }))
            }
        }

        impl Field for $Enum {
            fn write(&self, out: &mut Writer<'_>) {
                out.u8(self.kind());
                self.write_fields(out);
            }

            fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
                Self::read_fields(body.u8()?, body)?.ok_or(Malformed)
            }
        }
    };
}
pub(super) use kinds;

/// How types are written and read: each line has the type, what `write` does, and what `read` returns.
macro_rules! fields {
    ($($Type:ty: |$value:ident, $out:ident| $write:expr, |$body:ident| $read:expr;)*) => {
        $(impl Field for $Type {
            fn write(&self, $out: &mut Writer<'_>) {
                let $value = self;
                $write;
            }

            fn read($body: &mut Reader<'_>) -> Result<Self, Malformed> {
                $read
            }
        })*
    };
}

fields! {
    bool: |value, out| out.u8(u8::from(*value)), |body| Ok(body.u8()? != 0);
    i64: |value, out| out.u64(value.cast_unsigned()), |body| body.u64().map(u64::cast_signed);
    usize: |value, out| out.u32(count(*value)), |body| Ok(body.u32()? as usize);
    AppId: |app, out| out.u32(app.0), |body| body.u32().map(AppId);
    DeviceId: |id, out| out.text(id.as_str()), |body| DeviceId::parse(body.text()?).map_err(|_| Malformed);
    UserId: |id, out| out.text(id.as_str()), |body| UserId::parse(body.text()?).map_err(|_| Malformed);
    Topic: |topic, out| out.text(topic.as_str()), |body| topic(body.text()?);
    Condition: |text, out| out.text(text.as_str()), |body| Condition::parse(body.text()?).map_err(|_| Malformed);
    CloseReason: |reason, out| out.text(reason.as_str()), |body| reason(body.text()?);
    ItemEvent: |event, out| out.u8(*event as u8), |body| ItemEvent::from_code(body.u8()?).ok_or(Malformed);
    Presence: |presence, out| out.u8(presence_code(*presence)), |body| presence(body.u8()?);
    Arc<Message>: |message, out| message.as_ref().write(out), |body| Message::read(body).map(Arc::new);
}

impl Field for u64 {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Writer<'_>) {
        out.u64(*self);
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        body.u64()
    }
}

impl Field for NotificationId {
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut Writer<'_>) {
        out.raw(self.as_bytes());
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        body.array().map(NotificationId::from_bytes)
    }
}

impl Field for Bytes {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Writer<'_>) {
        out.u32(count(self.len())).raw(self);
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        body.bytes(REPORT_BYTES_MAX).map(Bytes::copy_from_slice)
    }
}

impl Field for ItemReport {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { app, users, event, ids, more } = self;
        app.write(out);
        users.write(out);
        event.write(out);
        ids.write(out);
        more.write(out);
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            app: Field::read(body)?,
            users: Field::read(body)?,
            event: Field::read(body)?,
            ids: Field::read(body)?,
            more: Field::read(body)?,
        })
    }
}

impl Field for Session {
    const BYTES_MIN: usize = 3;
    const LIST_MAX: usize = usize::MAX;

    fn write(&self, out: &mut Writer<'_>) {
        self.device.write(out);
        self.presence.write(out);
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Session { device: Field::read(body)?, presence: Field::read(body)? })
    }
}

impl<T: Field> Field for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Writer<'_>) {
        out.u32(count(self.len()));
        self.iter().for_each(|item| item.write(out));
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        body.list(T::LIST_MAX, T::BYTES_MIN, T::read)
    }
}

const HAS_TOPIC: u8 = 1;
const HAS_NOTIFICATION: u8 = 2;
const HAS_DATA: u8 = 4;
const PUSH_WAITS: u8 = 8;
/// An older node ignores this and delivers at once.
const WAITS_FOR_USE: u8 = 16;

/// Without its category, which [`Addressed`] has.
impl Field for Message {
    fn write(&self, out: &mut Writer<'_>) {
        let has = |yes: bool, bit: u8| if yes { bit } else { 0 };
        let flags = has(self.topic.is_some(), HAS_TOPIC)
            | has(self.notification.is_some(), HAS_NOTIFICATION)
            | has(self.data.is_some(), HAS_DATA)
            | has(self.push_waits, PUSH_WAITS)
            | has(self.waits_for_use, WAITS_FOR_USE);
        out.u8(flags).u8(self.when as u8).u8(self.urgency as u8).raw(self.id.as_bytes());
        out.u32(self.app.0).u64(self.sent_at.0).u64(self.expires_at.0);
        if let Some(TopicPosition { topic, position }) = &self.topic {
            out.text(topic.as_str()).u32(position.epoch.0).u64(position.offset);
        }
        for json in [&self.notification, &self.data].into_iter().flatten() {
            out.long_text(json.as_str());
        }
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        let flags = body.u8()?;
        let when = noroshi_types::When::from_code(body.u8()?).ok_or(Malformed)?;
        let urgency = noroshi_types::Urgency::from_code(body.u8()?).ok_or(Malformed)?;
        let id = NotificationId::from_bytes(body.array()?);
        let (app, sent_at, expires_at) = (AppId::read(body)?, Timestamp(body.u64()?), Timestamp(body.u64()?));
        let topic = match flags & HAS_TOPIC {
            0 => None,
            _ => {
                let topic = Topic::read(body)?;
                let epoch = noroshi_types::Epoch(body.u32()?);
                let position = noroshi_types::Position { epoch, offset: body.u64()? };
                Some(TopicPosition { topic, position })
            }
        };
        let mut json = |bit: u8| match flags & bit {
            0 => Ok(None),
            // The node that accepted it has checked it.
            _ => body.long_text().map(|text| Some(noroshi_types::JsonText::from_valid(text))),
        };
        let (notification, data) = (json(HAS_NOTIFICATION)?, json(HAS_DATA)?);
        let (push_waits, waits_for_use) = (flags & PUSH_WAITS != 0, flags & WAITS_FOR_USE != 0);
        Ok(Message {
            id,
            app,
            when,
            urgency,
            topic,
            notification,
            data,
            sent_at,
            expires_at,
            push_waits,
            waits_for_use,
            category: None,
        })
    }
}

/// An older node ignores the category, and with it preferences.
impl Field for Addressed {
    fn write(&self, out: &mut Writer<'_>) {
        self.message.write(out);
        self.part.write(out);
        write_category(&self.message, out);
    }

    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut message, part) = (Message::read(body)?, Part::read(body)?);
        if !body.is_empty() {
            let is_essential = bool::read(body)?;
            let name = Label::parse(body.text()?).map_err(|_| Malformed)?;
            message.category = Some(Category { name, is_essential });
        }
        Ok(Self { message: Arc::new(message), part })
    }
}

/// Writes nothing without a category.
pub(super) fn write_category(message: &Message, out: &mut Writer<'_>) {
    if let Some(Category { name, is_essential }) = &message.category {
        is_essential.write(out);
        out.text(name.as_str());
    }
}

fn topic(text: &str) -> Result<Topic, Malformed> {
    match text == limits::EVERYONE_TOPIC {
        true => Ok(Topic::everyone()),
        false => Topic::parse_any(text).map_err(|_| Malformed),
    }
}

fn reason(name: &str) -> Result<CloseReason, Malformed> {
    CloseReason::ALL.into_iter().find(|reason| reason.as_str() == name).ok_or(Malformed)
}

fn presence_code(presence: Presence) -> u8 {
    match presence {
        Presence::Offline => 0,
        Presence::Idle => 1,
        Presence::Active => 2,
    }
}

fn presence(code: u8) -> Result<Presence, Malformed> {
    let all = [Presence::Offline, Presence::Idle, Presence::Active];
    all.into_iter().find(|presence| presence_code(*presence) == code).ok_or(Malformed)
}

/// Lists are far shorter: the API accepts 10,000 targets.
pub(super) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

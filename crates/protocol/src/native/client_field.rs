//! Parses the fields of a device's frame in one pass over the text. Each field has one type in all frames, so
//! `t` may occur anywhere; `client_frame` decides which fields belong to which type.
//!
//! serde's messages for wrong types quote the value, so they are never forwarded: every visitor here records
//! its own message in [`Failure`].

use std::cell::{Cell, RefCell};
use std::fmt;

use noroshi_types::{Epoch, Invalid, NotificationId, Position, Presence, Since, Topic, limits};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::frame_type::{FrameError, Kind};
use super::token::Token;

noroshi_types::names! {
    /// A field's name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Field {
        Type => "t",
        Token => "token",
        Ids => "ids",
        State => "state",
        Topics => "topics",
        Since => "since",
    }
}

impl Field {
    fn rule(self) -> &'static str {
        match self {
            Field::Type => "`t` must be a string, the type of the frame",
            Field::Token => "`token` must be a string",
            Field::Ids => "`ids` must be an array of notification ids",
            Field::State => "`state` must be \"active\" or \"idle\"",
            Field::Topics => "`topics` must be an array of strings",
            Field::Since => {
                "`since` must be an object of topics, each with a string `epoch` and a whole number `offset`, or with `null`"
            }
        }
    }
}

/// The fields of a frame, each validated separately.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) kind: Option<Kind>,
    pub(super) token: Option<Token>,
    pub(super) ids: Option<Vec<NotificationId>>,
    pub(super) state: Option<Presence>,
    pub(super) topics: Option<Vec<Topic>>,
    pub(super) since: Option<Vec<(Topic, Since)>>,
    /// One bit for each [`Field`] that occurred.
    seen: u8,
}

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, FrameError> {
        let failure =
            Failure { rule: Cell::new("a frame must be a JSON object"), reason: RefCell::new(None) };
        let mut json = serde_json::Deserializer::from_str(text);
        let read = (&mut json).deserialize_map(FrameVisitor { failure: &failure, fields: Fields::default() });
        read.and_then(|fields| json.end().map(|()| fields)).map_err(|error| {
            FrameError::new(match (failure.reason.take(), error.classify()) {
                (Some(reason), _) => reason,
                (None, Category::Data) => failure.rule.get().to_owned(),
                // serde_json's messages for malformed JSON quote nothing.
                (None, Category::Syntax | Category::Eof | Category::Io) => format!("not JSON: {error}"),
            })
        })
    }

    pub(super) fn seen(&self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(|field| self.seen & 1 << *field as u8 != 0)
    }
}

/// Carries our error messages past serde, whose error type is its own.
struct Failure {
    /// The rule for the current field: used if serde finds another type.
    rule: Cell<&'static str>,
    /// Why a value was rejected.
    reason: RefCell<Option<String>>,
}

impl Failure {
    fn refuse<E: de::Error>(&self, why: String) -> E {
        self.reason.replace(Some(why));
        E::custom("refused")
    }
}

/// A name from the frame, shortened for an error message.
fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(64)]
}

struct FrameVisitor<'t> {
    failure: &'t Failure,
    fields: Fields,
}

impl<'de> Visitor<'de> for FrameVisitor<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let Self { failure, mut fields } = self;
        let field = |name: &str| {
            let known = Field::named(name);
            known.ok_or_else(|| format!("unknown field `{}`", shown(name)))
        };
        while let Some(field) = map.next_key_seed(Text(failure, field))? {
            if fields.seen & 1 << field as u8 != 0 {
                return Err(failure.refuse(format!("`{}` occurs twice", field.as_str())));
            }
            fields.seen |= 1 << field as u8;
            failure.rule.set(field.rule());
            match field {
                Field::Type => fields.kind = Some(map.next_value_seed(Text(failure, kind))?),
                Field::Token => fields.token = Some(map.next_value_seed(Text(failure, token))?),
                Field::State => fields.state = Some(map.next_value_seed(Text(failure, state))?),
                Field::Ids => {
                    let (max, item) = (limits::ACK_IDS_MAX, NotificationId::parse);
                    fields.ids = Some(map.next_value_seed(List { failure, field, max, item })?);
                }
                Field::Topics => {
                    let (max, item) = (limits::TOPICS_PER_DEVICE_MAX, Topic::parse_subscription);
                    fields.topics = Some(map.next_value_seed(List { failure, field, max, item })?);
                }
                Field::Since => fields.since = Some(map.next_value_seed(SinceField(failure))?),
            }
        }
        Ok(fields)
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::named(name).ok_or_else(|| format!("`t`: unknown frame type `{}`", shown(name)))
}

fn token(text: &str) -> Result<Token, String> {
    match text.is_empty() {
        true => Err("`token` is empty".to_owned()),
        false => Ok(Token::new(text)),
    }
}

fn state(text: &str) -> Result<Presence, String> {
    match text {
        "active" => Ok(Presence::Active),
        "idle" => Ok(Presence::Idle),
        _ => Err(Field::State.rule().to_owned()),
    }
}

/// A string, validated by a function without a copy.
struct Text<'t, F>(&'t Failure, F);

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Text<'_, F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<'_, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(|why| self.0.refuse(why))
    }
}

/// An array of at most `max` validated strings.
struct List<'t, T> {
    failure: &'t Failure,
    field: Field,
    max: usize,
    item: fn(&str) -> Result<T, Invalid>,
}

impl<'de, T> DeserializeSeed<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T> Visitor<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let (name, max) = (self.field.as_str(), self.max);
        let mut items = Vec::new();
        loop {
            let at = items.len();
            let item = |text: &str| match at < max {
                true => (self.item)(text).map_err(|why| format!("`{name}[{at}]`: {why}")),
                false => Err(format!("`{name}` has more than {max} entries")),
            };
            match seq.next_element_seed(Text(self.failure, item))? {
                Some(item) => items.push(item),
                None => return Ok(items),
            }
        }
    }
}

/// `{"news": {"epoch": "…", "offset": 41}}`
struct SinceField<'t>(&'t Failure);

impl<'de> DeserializeSeed<'de> for SinceField<'_> {
    type Value = Vec<(Topic, Since)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SinceField<'_> {
    type Value = Vec<(Topic, Since)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let topic = |text: &str| Topic::parse_subscription(text).map_err(|why| format!("`since`: {why}"));
        let mut since = Vec::new();
        while let Some(topic) = map.next_key_seed(Text(self.0, topic))? {
            if since.len() == limits::TOPICS_PER_DEVICE_MAX {
                let max = limits::TOPICS_PER_DEVICE_MAX;
                return Err(self.0.refuse(format!("`since` has more than {max} entries")));
            }
            since.push((topic, map.next_value_seed(SinceOf(self.0))?));
        }
        Ok(since)
    }
}

/// A position, or `null`.
struct SinceOf<'t>(&'t Failure);

impl<'de> DeserializeSeed<'de> for SinceOf<'_> {
    type Value = Since;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Since, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SinceOf<'_> {
    type Value = Since;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Since, E> {
        Ok(Since::Now)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Since, A::Error> {
        let (mut epoch, mut offset) = (None, None);
        let is_epoch = |name: &str| match name {
            "epoch" => Ok(true),
            "offset" => Ok(false),
            _ => Err(format!("unknown field `{}` in `since`", shown(name))),
        };
        while let Some(is_epoch) = map.next_key_seed(Text(self.0, is_epoch))? {
            if is_epoch {
                let read = |text: &str| Epoch::parse(text).map_err(|why| format!("`since`: {why}"));
                epoch = Some(map.next_value_seed(Text(self.0, read))?);
            } else {
                offset = Some(map.next_value::<u64>()?);
            }
        }
        match (epoch, offset) {
            (Some(epoch), Some(offset)) => Ok(Since::Position(Position { epoch, offset })),
            (None, _) => Err(self.0.refuse("`epoch` is missing in `since`".to_owned())),
            (_, None) => Err(self.0.refuse("`offset` is missing in `since`".to_owned())),
        }
    }
}

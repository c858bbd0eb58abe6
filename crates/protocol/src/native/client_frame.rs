//! What a device may say, read strictly: an unknown type or field, a wrong type or a value over its limit
//! is an error that names the field. The text of an error holds field names and rules, never a value,
//! since any value may be a token put in the wrong place.

use std::collections::HashSet;
use std::fmt;

use noroshi_types::{NotificationId, Position, Presence, Topic};

use super::client_field::{Field, Fields};

/// A device token or the app's JWT: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

impl Token {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// One frame of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// The first frame, where the token did not come with the request.
    Connect {
        token: Token,
    },
    /// At most `limits::ACK_IDS_MAX`.
    Ack {
        ids: Vec<NotificationId>,
    },
    /// `Active` or `Idle`.
    Presence(Presence),
    /// At most `limits::TOPICS_PER_DEVICE_MAX` topics, each once; `since` names only topics of `topics`.
    Sub {
        topics: Vec<Topic>,
        since: Vec<(Topic, Position)>,
    },
    Unsub {
        topics: Vec<Topic>,
    },
    Ping,
    /// Renews the token of an open connection.
    Token {
        token: Token,
    },
}

/// What is wrong with a frame, in words for the client's developer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

impl FrameError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The stable code of the error frame that answers it.
    pub fn code(&self) -> &'static str {
        "bad_frame"
    }
}

/// Reads one frame.
pub fn parse_client_frame(text: &str) -> Result<ClientFrame, FrameError> {
    let fields = Fields::parse(text)?;
    let kind = fields.kind.ok_or_else(|| missing(Field::Type))?;
    frame(kind, fields)
}

/// Reads the fields of a frame whose type is told outside of them.
pub(crate) fn parse_fields(kind: Kind, text: &str) -> Result<ClientFrame, FrameError> {
    let fields = Fields::parse(text)?;
    match fields.kind {
        Some(_) => Err(FrameError::new("unknown field `t`")),
        None => frame(kind, fields),
    }
}

fn frame(kind: Kind, fields: Fields) -> Result<ClientFrame, FrameError> {
    if let Some(field) = fields.seen().find(|field| *field != Field::Type && !kind.may_have(*field)) {
        let (field, kind) = (field.as_str(), kind.as_str());
        return Err(FrameError::new(format!("`{field}` does not belong to a frame of type `{kind}`")));
    }
    Ok(match kind {
        Kind::Connect => ClientFrame::Connect { token: fields.token.ok_or_else(|| missing(Field::Token))? },
        Kind::Token => ClientFrame::Token { token: fields.token.ok_or_else(|| missing(Field::Token))? },
        Kind::Ack => ClientFrame::Ack { ids: fields.ids.ok_or_else(|| missing(Field::Ids))? },
        Kind::Presence => ClientFrame::Presence(fields.state.ok_or_else(|| missing(Field::State))?),
        Kind::Sub => {
            let topics = fields.topics.ok_or_else(|| missing(Field::Topics))?;
            subscribe(topics, fields.since.unwrap_or_default())?
        }
        Kind::Unsub => ClientFrame::Unsub { topics: fields.topics.ok_or_else(|| missing(Field::Topics))? },
        Kind::Ping => ClientFrame::Ping,
    })
}

fn missing(field: Field) -> FrameError {
    FrameError::new(format!("`{}` is missing", field.as_str()))
}

fn subscribe(mut topics: Vec<Topic>, since: Vec<(Topic, Position)>) -> Result<ClientFrame, FrameError> {
    let mut named = HashSet::with_capacity(topics.len());
    topics.retain(|topic| named.insert(topic.clone()));
    match since.iter().all(|(topic, _)| named.remove(topic)) {
        true => Ok(ClientFrame::Sub { topics, since }),
        false => Err(FrameError::new("`since` names a topic twice, or one that `topics` does not")),
    }
}

/// The value of `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Connect,
    Ack,
    Presence,
    Sub,
    Unsub,
    Ping,
    Token,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Connect, Kind::Ack, Kind::Presence, Kind::Sub, Kind::Unsub, Kind::Ping, Kind::Token];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Kind::Connect => "connect",
            Kind::Ack => "ack",
            Kind::Presence => "presence",
            Kind::Sub => "sub",
            Kind::Unsub => "unsub",
            Kind::Ping => "ping",
            Kind::Token => "token",
        }
    }

    fn may_have(self, field: Field) -> bool {
        let fields: &[Field] = match self {
            Kind::Connect | Kind::Token => &[Field::Token],
            Kind::Ack => &[Field::Ids],
            Kind::Presence => &[Field::State],
            Kind::Sub => &[Field::Topics, Field::Since],
            Kind::Unsub => &[Field::Topics],
            Kind::Ping => &[],
        };
        fields.contains(&field)
    }
}

#[cfg(test)]
mod tests;

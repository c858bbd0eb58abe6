//! Frames of devices, parsed strictly: an unknown type or field, a wrong type, or a value above its limit is
//! an error that names the field. Error messages contain field names and rules but never values, since any
//! value may be a misplaced token.

use std::collections::HashSet;

use noroshi_types::{NotificationId, Presence, Since, Topic};

use super::client_field::{Field, Fields};
use super::frame_type::{FrameError, Kind};
use super::token::Token;

/// One frame of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// The first frame, unless the request contained the token.
    Connect { token: Token },
    /// At most `limits::ACK_IDS_MAX`.
    Ack { ids: Vec<NotificationId> },
    /// `Active` or `Idle`.
    Presence(Presence),
    /// At most `limits::TOPICS_PER_DEVICE_MAX` topics, each once; `since` names only topics of `topics`.
    Sub { topics: Vec<Topic>, since: Vec<(Topic, Since)> },
    /// Ends subscriptions.
    Unsub { topics: Vec<Topic> },
    /// Asks for a pong.
    Ping,
    /// Renews the token of an open connection.
    Token { token: Token },
}

/// Parses one frame.
pub fn parse_client_frame(text: &str) -> Result<ClientFrame, FrameError> {
    let fields = Fields::parse(text)?;
    let kind = fields.kind.ok_or_else(|| missing(Field::Type))?;
    frame(kind, fields)
}

/// Parses the fields of a frame whose type is known from elsewhere.
pub(crate) fn parse_fields(kind: Kind, text: &str) -> Result<ClientFrame, FrameError> {
    let fields = Fields::parse(text)?;
    match fields.kind {
        Some(_) => Err(FrameError::new("unknown field `t`")),
        None => frame(kind, fields),
    }
}

fn frame(kind: Kind, fields: Fields) -> Result<ClientFrame, FrameError> {
    if let Some(field) = fields.seen().find(|field| *field != Field::Type && !may_have(kind, *field)) {
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

fn subscribe(mut topics: Vec<Topic>, since: Vec<(Topic, Since)>) -> Result<ClientFrame, FrameError> {
    let mut named = HashSet::with_capacity(topics.len());
    topics.retain(|topic| named.insert(topic.clone()));
    match since.iter().all(|(topic, _)| named.remove(topic)) {
        true => Ok(ClientFrame::Sub { topics, since }),
        false => Err(FrameError::new("`since` names a topic twice, or a topic that is not in `topics`")),
    }
}

/// Whether a frame of this type may contain the field.
fn may_have(kind: Kind, field: Field) -> bool {
    let fields: &[Field] = match kind {
        Kind::Connect | Kind::Token => &[Field::Token],
        Kind::Ack => &[Field::Ids],
        Kind::Presence => &[Field::State],
        Kind::Sub => &[Field::Topics, Field::Since],
        Kind::Unsub => &[Field::Topics],
        Kind::Ping => &[],
    };
    fields.contains(&field)
}

#[cfg(test)]
mod tests;

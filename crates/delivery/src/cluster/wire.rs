//! The protocol between nodes: the contents of a bus message, called a frame.
//!
//! ```text
//!   frame  = version (1 byte), then records to the end
//!   record = kind (1 byte), length (4 bytes, little-endian), body
//! ```
//!
//! A rolling upgrade mixes versions. A record of an unknown kind is skipped and counted, bytes behind the known end of
//! a body belong to a newer version and are ignored, and a frame of another version is not read at all. Nothing
//! unreadable is guessed: the store has it.
//!
//! Pure: no clock, no IO. Frames come from nodes of the same cell, but are not trusted: every length is checked before
//! an allocation, and every id by its own rules.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{AppId, CloseReason, Condition, DeviceId, Message, Presence, Topic, UserId};

use crate::cluster::codec::{Malformed, Reader, Writer};
use crate::edge::Session;

mod body;

use body::{
    PART_DEVICES, PART_USERS, app, count, device, read_answer, read_message, read_part, read_question,
    reason, topics, write_answer, write_message, write_part, write_question,
};

/// Names of devices in one [`Record::Stale`]: 32 KiB.
pub const STALE_TAGS_MAX: usize = 4_096;
/// The first byte of a frame.
pub const VERSION: u8 = 1;
/// Kind and length.
const HEAD_BYTES: usize = 5;

/// The recipients of a message on the receiving node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Only this node holds the first `sole` users: those without a session here are offline.
    Users {
        users: Vec<UserId>,
        sole: usize,
    },
    Devices {
        devices: Vec<DeviceId>,
        sole: usize,
    },
    Topic(Topic),
    Condition(Condition),
    Everyone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// The sessions of each user, in order.
    Sessions {
        app: AppId,
        users: Vec<UserId>,
    },
    /// The session of each device, in order, at most one each.
    Devices {
        app: AppId,
        devices: Vec<DeviceId>,
    },
    /// The number of connections that subscribe to each topic.
    TopicSessions {
        app: AppId,
        topics: Vec<Topic>,
    },
    SetPresence {
        app: AppId,
        device: DeviceId,
        presence: Presence,
    },
    /// The generation of each device's session, in order; 0 without one.
    Generations {
        app: AppId,
        devices: Vec<DeviceId>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Answers `Sessions` and `Devices`.
    Sessions(Vec<Vec<Session>>),
    /// Answers `TopicSessions` and `Generations`.
    Counts(Vec<u64>),
    Done(bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Deliver {
        message: Arc<Message>,
        part: Part,
    },
    /// From a node to itself: marks the place of its own part (`own_part`).
    Marker {
        number: u64,
    },
    /// The device logged in on another node: ends its session if the generation is below this one.
    Replaced {
        app: AppId,
        device: DeviceId,
        below: u64,
    },
    Close {
        app: AppId,
        device: DeviceId,
        reason: CloseReason,
    },
    CloseApp {
        app: AppId,
        reason: CloseReason,
    },
    Subscribe {
        app: AppId,
        device: DeviceId,
        topics: Vec<Topic>,
    },
    Unsubscribe {
        app: AppId,
        device: DeviceId,
        topics: Vec<Topic>,
    },
    Question {
        number: u64,
        question: Question,
    },
    Answer {
        number: u64,
        answer: Answer,
    },
    AppsChanged,
    CredentialsChanged {
        app: AppId,
    },
    WakePush,
    /// Stored messages since this place in the order of commits may be missing.
    Sweep {
        since: i64,
    },
    /// Groups of shared subscriptions of an app, or their members, changed.
    SharesChanged {
        app: AppId,
    },
    /// Experiments or maintenance notices were created, changed or archived.
    DefinitionsChanged,
    /// Cached data of devices is stale (`freshness`).
    Stale {
        tags: Vec<u64>,
        /// Data of all devices; `tags` is empty.
        all: bool,
    },
}

/// A frame under construction.
#[derive(Debug)]
pub struct Frame(Vec<u8>);

/// A decoded frame.
#[derive(Debug, Default)]
pub struct Decoded {
    pub records: Vec<Record>,
    /// Records of unknown kinds.
    pub unknown: usize,
    /// Unreadable records, and trailing bytes.
    pub malformed: usize,
}

impl Default for Frame {
    fn default() -> Self {
        Self(vec![VERSION])
    }
}

impl Frame {
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.len() <= 1
    }

    /// Appends a record that [`encode`] wrote.
    pub fn push(&mut self, record: &[u8]) {
        self.0.extend_from_slice(record);
    }

    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

impl From<&Record> for Frame {
    fn from(record: &Record) -> Self {
        let mut frame = Frame::default();
        encode(record, &mut frame.0);
        frame
    }
}

/// Appends a record.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    let mut out = Writer::new(out, HEAD_BYTES);
    let kind = match record {
        Record::Deliver { message, part } => {
            write_message(&mut out, message);
            write_part(&mut out, part);
            kind::DELIVER
        }
        Record::Marker { number } => {
            out.u64(*number);
            kind::MARKER
        }
        Record::Replaced { app, device, below } => {
            out.u32(app.0).text(device.as_str()).u64(*below);
            kind::REPLACED
        }
        Record::Close { app, device, reason } => {
            out.u32(app.0).text(device.as_str()).text(reason.as_str());
            kind::CLOSE
        }
        Record::CloseApp { app, reason } => {
            out.u32(app.0).text(reason.as_str());
            kind::CLOSE_APP
        }
        Record::Subscribe { app, device, topics } => {
            out.u32(app.0).text(device.as_str()).texts(topics.iter().map(Topic::as_str));
            kind::SUBSCRIBE
        }
        Record::Unsubscribe { app, device, topics } => {
            out.u32(app.0).text(device.as_str()).texts(topics.iter().map(Topic::as_str));
            kind::UNSUBSCRIBE
        }
        Record::Question { number, question } => {
            out.u64(*number);
            write_question(&mut out, question);
            kind::QUESTION
        }
        Record::Answer { number, answer } => {
            out.u64(*number);
            write_answer(&mut out, answer);
            kind::ANSWER
        }
        Record::AppsChanged => kind::APPS_CHANGED,
        Record::CredentialsChanged { app } => {
            out.u32(app.0);
            kind::CREDENTIALS_CHANGED
        }
        Record::WakePush => kind::WAKE_PUSH,
        Record::Sweep { since } => {
            out.u64(since.cast_unsigned());
            kind::SWEEP
        }
        Record::DefinitionsChanged => kind::DEFINITIONS_CHANGED,
        Record::SharesChanged { app } => {
            out.u32(app.0);
            kind::SHARES_CHANGED
        }
        Record::Stale { tags, all } => {
            out.u8(u8::from(*all)).u32(count(tags.len()));
            for tag in tags {
                out.u64(*tag);
            }
            kind::STALE
        }
    };
    out.end(kind);
}

/// Appends a message for named users or devices: `named` starts with the `sole` ones.
pub fn encode_named<'a>(
    message: &Message,
    users: bool,
    named: impl ExactSizeIterator<Item = &'a str>,
    sole: usize,
    out: &mut Vec<u8>,
) {
    let mut out = Writer::new(out, HEAD_BYTES);
    write_message(&mut out, message);
    out.u8(if users { PART_USERS } else { PART_DEVICES }).u32(count(sole)).texts(named);
    out.end(kind::DELIVER);
}

/// Decodes everything readable in a frame.
pub fn decode(frame: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    let Some((&VERSION, mut rest)) = frame.split_first() else {
        decoded.malformed = 1;
        return decoded;
    };
    while !rest.is_empty() {
        let Some((kind, body, behind)) = split_record(rest) else {
            decoded.malformed += 1;
            return decoded;
        };
        match read_record(kind, &mut Reader::new(body)) {
            Ok(Some(record)) => decoded.records.push(record),
            Ok(None) => decoded.unknown += 1,
            Err(Malformed) => decoded.malformed += 1,
        }
        rest = behind;
    }
    decoded
}

/// Numbers never change their meaning; new ones are appended.
mod kind {
    pub(super) const DELIVER: u8 = 1;
    pub(super) const MARKER: u8 = 2;
    pub(super) const REPLACED: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const CLOSE_APP: u8 = 5;
    pub(super) const SUBSCRIBE: u8 = 6;
    pub(super) const UNSUBSCRIBE: u8 = 7;
    pub(super) const QUESTION: u8 = 8;
    pub(super) const ANSWER: u8 = 9;
    pub(super) const APPS_CHANGED: u8 = 10;
    pub(super) const CREDENTIALS_CHANGED: u8 = 11;
    pub(super) const WAKE_PUSH: u8 = 12;
    pub(super) const SWEEP: u8 = 13;
    pub(super) const DEFINITIONS_CHANGED: u8 = 14;
    pub(super) const STALE: u8 = 15;
    pub(super) const SHARES_CHANGED: u8 = 16;
}

fn split_record(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[1..].try_into().ok()?);
    let (body, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((head[0], body, behind))
}

/// `None` for a kind of a newer version.
fn read_record(kind: u8, body: &mut Reader<'_>) -> Result<Option<Record>, Malformed> {
    Ok(Some(match kind {
        kind::DELIVER => Record::Deliver { message: Arc::new(read_message(body)?), part: read_part(body)? },
        kind::MARKER => Record::Marker { number: body.u64()? },
        kind::REPLACED => Record::Replaced { app: app(body)?, device: device(body)?, below: body.u64()? },
        kind::CLOSE => Record::Close { app: app(body)?, device: device(body)?, reason: reason(body)? },
        kind::CLOSE_APP => Record::CloseApp { app: app(body)?, reason: reason(body)? },
        kind::SUBSCRIBE => {
            Record::Subscribe { app: app(body)?, device: device(body)?, topics: topics(body)? }
        }
        kind::UNSUBSCRIBE => {
            Record::Unsubscribe { app: app(body)?, device: device(body)?, topics: topics(body)? }
        }
        kind::QUESTION => Record::Question { number: body.u64()?, question: read_question(body)? },
        kind::ANSWER => Record::Answer { number: body.u64()?, answer: read_answer(body)? },
        kind::APPS_CHANGED => Record::AppsChanged,
        kind::CREDENTIALS_CHANGED => Record::CredentialsChanged { app: app(body)? },
        kind::WAKE_PUSH => Record::WakePush,
        kind::SWEEP => Record::Sweep { since: body.u64()?.cast_signed() },
        kind::DEFINITIONS_CHANGED => Record::DefinitionsChanged,
        kind::SHARES_CHANGED => Record::SharesChanged { app: app(body)? },
        kind::STALE => {
            let all = body.u8()? != 0;
            Record::Stale { tags: body.list(STALE_TAGS_MAX, 8, Reader::u64)?, all }
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests;

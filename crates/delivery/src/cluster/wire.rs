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
use noroshi_types::{
    AppId, CloseReason, Condition, DeviceId, ItemEvent, Message, NotificationId, Presence, Topic, UserId,
};

use crate::cluster::codec::{Malformed, Reader, Writer};
use crate::edge::Session;

mod body;
#[cfg(test)]
mod tests;

use body::{Field, count, kinds, write_category};

/// Names of devices in one [`Record::Stale`]: 32 KiB.
pub const STALE_TAGS_MAX: usize = 4_096;

/// The first byte of a frame.
pub const VERSION: u8 = 1;

/// Kind and length.
const HEAD_BYTES: usize = 5;

/// The most bytes of a report of live figures, of a live tail, and of the filter of a tail.
pub const REPORT_BYTES_MAX: usize = 32 << 10;

kinds! {
    /// The recipients of a message on the receiving node.
    pub enum Part {
        /// Only this node holds the first `sole` users: those without a session here are offline.
        1 => Users { sole: usize, users: Vec<UserId> },
        2 => Devices { sole: usize, devices: Vec<DeviceId> },
        3 => Topic(topic: Topic),
        4 => Condition(condition: Condition),
        5 => Everyone,
    }
}

kinds! {
    pub enum Question {
        /// The sessions of each user, in order.
        1 => Sessions { app: AppId, users: Vec<UserId> },
        /// The session of each device, in order, at most one each.
        2 => Devices { app: AppId, devices: Vec<DeviceId> },
        /// The number of connections that subscribe to each topic.
        3 => TopicSessions { app: AppId, topics: Vec<Topic> },
        4 => SetPresence { app: AppId, device: DeviceId, presence: Presence },
        /// The generation of each device's session, in order; 0 without one.
        5 => Generations { app: AppId, devices: Vec<DeviceId> },
    }
}

kinds! {
    pub enum Answer {
        /// Answers `Sessions` and `Devices`.
        1 => Sessions(sessions: Vec<Vec<Session>>),
        /// Answers `TopicSessions` and `Generations`.
        2 => Counts(counts: Vec<u64>),
        3 => Done(done: bool),
    }
}

kinds! {
    pub enum Record {
        1 => Deliver(addressed: Addressed),
        /// From a node to itself: marks the place of its own part (`own_part`).
        2 => Marker { number: u64 },
        /// The device logged in on another node: ends its session if the generation is below this one.
        3 => Replaced { app: AppId, device: DeviceId, below: u64 },
        4 => Close { app: AppId, device: DeviceId, reason: CloseReason },
        5 => CloseApp { app: AppId, reason: CloseReason },
        6 => Subscribe { app: AppId, device: DeviceId, topics: Vec<Topic> },
        7 => Unsubscribe { app: AppId, device: DeviceId, topics: Vec<Topic> },
        8 => Question { number: u64, question: Question },
        9 => Answer { number: u64, answer: Answer },
        10 => AppsChanged,
        11 => CredentialsChanged { app: AppId },
        12 => WakePush,
        /// Stored messages since this place in the order of commits may be missing.
        13 => Sweep { since: i64 },
        /// Experiments or maintenance notices were created, changed or archived.
        14 => DefinitionsChanged,
        /// Cached data of devices is stale (`freshness`). `all`: data of all devices; `tags` is empty.
        15 => Stale { all: bool, tags: Vec<u64> },
        /// Groups of shared subscriptions of an app, or their members, changed.
        16 => SharesChanged { app: AppId },
        /// How long messages wait on the sending gateway, to named recipients and to topics. Repeated while they wait;
        /// 0 when they do not any more.
        17 => Load { named_us: u64, topics_us: u64 },
        /// Items were added or changed.
        18 => Items(report: ItemReport),
        /// Preferences of users and devices changed, or time zones of devices.
        19 => PreferencesChanged { app: AppId, users: Vec<UserId>, devices: Vec<DeviceId> },
        /// The sender wants live figures for some seconds, and those of these apps. Sent to nodes that know it only.
        20 => AskFigures { apps: Vec<AppId> },
        /// Answers `AskFigures`, once a second.
        21 => Figures { report: Bytes },
        /// The sender has a live tail open and wants the events that its filter selects, for some seconds. Sent to nodes that
        /// know it only.
        22 => AskTail { tail: Bytes },
        /// Answers `AskTail`, at most four times a second for each tail.
        23 => Tail { report: Bytes },
    }
}

/// A message, and its recipients on the receiving node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressed {
    pub message: Arc<Message>,
    pub part: Part,
}

/// What happened to the same items of some users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemReport {
    pub app: AppId,
    pub users: Vec<UserId>,
    pub event: ItemEvent,
    /// At most [`noroshi_types::limits::ITEM_IDS_MAX`].
    pub ids: Vec<NotificationId>,
    /// Other items changed too.
    pub more: bool,
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
    record.write_fields(&mut out);
    out.end(record.kind());
}

/// The numbers of `Record::Deliver`, `Part::Users` and `Part::Devices`, which a test pins.
const DELIVER: u8 = 1;
const PART_USERS: u8 = 1;
const PART_DEVICES: u8 = 2;

/// Appends a message for named users or devices: `named` starts with the `sole` ones.
pub fn encode_named<'a>(
    message: &Message,
    users: bool,
    named: impl ExactSizeIterator<Item = &'a str>,
    sole: usize,
    out: &mut Vec<u8>,
) {
    let mut out = Writer::new(out, HEAD_BYTES);
    message.write(&mut out);
    out.u8(if users { PART_USERS } else { PART_DEVICES }).u32(count(sole)).texts(named);
    write_category(message, &mut out);
    out.end(DELIVER);
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
        match Record::read_fields(kind, &mut Reader::new(body)) {
            Ok(Some(Record::Stale { tags, .. })) if tags.len() > STALE_TAGS_MAX => decoded.malformed += 1,
            Ok(Some(record)) => decoded.records.push(record),
            Ok(None) => decoded.unknown += 1,
            Err(Malformed) => decoded.malformed += 1,
        }
        rest = behind;
    }
    decoded
}

fn split_record(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[1..].try_into().ok()?);
    let (body, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((head[0], body, behind))
}

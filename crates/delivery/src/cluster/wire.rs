//! The protocol between nodes: the contents of a bus message, called a frame.
//!
//! ```text
//!   frame  = version (1 byte), then records to the end
//!   record = kind (1 byte), length (4 bytes, little-endian), body
//! ```
//!
//! A rolling upgrade mixes versions. A record of an unknown kind is skipped and counted, bytes behind the known end of a
//! body belong to a newer version and are ignored, and a frame of another version is not read at all. Nothing unreadable is
//! guessed: the store has it.
//!
//! Pure: no clock, no IO. Frames come from nodes of the same cell, but are not trusted: every length is checked before an
//! allocation, and every id by its own rules.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{
    AppId, CloseReason, Condition, DeviceId, Message, NotificationId, Presence, Timestamp, Topic,
    TopicPosition, UserId, limits,
};

use crate::cluster::codec::{Malformed, Reader, Writer};
use crate::edge::Session;

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
    Turn {
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
    Ask {
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
        Record::Turn { number } => {
            out.u64(*number);
            kind::TURN
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
        Record::Ask { number, question } => {
            out.u64(*number);
            write_question(&mut out, question);
            kind::ASK
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
    pub(super) const TURN: u8 = 2;
    pub(super) const REPLACED: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const CLOSE_APP: u8 = 5;
    pub(super) const SUBSCRIBE: u8 = 6;
    pub(super) const UNSUBSCRIBE: u8 = 7;
    pub(super) const ASK: u8 = 8;
    pub(super) const ANSWER: u8 = 9;
    pub(super) const APPS_CHANGED: u8 = 10;
    pub(super) const CREDENTIALS_CHANGED: u8 = 11;
    pub(super) const WAKE_PUSH: u8 = 12;
    pub(super) const SWEEP: u8 = 13;
    pub(super) const DEFINITIONS_CHANGED: u8 = 14;
    pub(super) const STALE: u8 = 15;
    pub(super) const SHARES_CHANGED: u8 = 16;
}

const PART_USERS: u8 = 1;
const PART_DEVICES: u8 = 2;
const PART_TOPIC: u8 = 3;
const PART_CONDITION: u8 = 4;
const PART_EVERYONE: u8 = 5;

const HAS_TOPIC: u8 = 1;
const HAS_NOTIFICATION: u8 = 2;
const HAS_DATA: u8 = 4;
const PUSH_WAITS: u8 = 8;
/// An older node ignores this and delivers at once.
const WAITS_FOR_USE: u8 = 16;

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
        kind::TURN => Record::Turn { number: body.u64()? },
        kind::REPLACED => Record::Replaced { app: app(body)?, device: device(body)?, below: body.u64()? },
        kind::CLOSE => Record::Close { app: app(body)?, device: device(body)?, reason: reason(body)? },
        kind::CLOSE_APP => Record::CloseApp { app: app(body)?, reason: reason(body)? },
        kind::SUBSCRIBE => {
            Record::Subscribe { app: app(body)?, device: device(body)?, topics: topics(body)? }
        }
        kind::UNSUBSCRIBE => {
            Record::Unsubscribe { app: app(body)?, device: device(body)?, topics: topics(body)? }
        }
        kind::ASK => Record::Ask { number: body.u64()?, question: read_question(body)? },
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

fn write_message(out: &mut Writer<'_>, message: &Message) {
    let has = |yes: bool, bit: u8| if yes { bit } else { 0 };
    let flags = has(message.topic.is_some(), HAS_TOPIC)
        | has(message.notification.is_some(), HAS_NOTIFICATION)
        | has(message.data.is_some(), HAS_DATA)
        | has(message.push_waits, PUSH_WAITS)
        | has(message.waits_for_use, WAITS_FOR_USE);
    out.u8(flags).u8(message.when as u8).u8(message.urgency as u8).raw(message.id.as_bytes());
    out.u32(message.app.0).u64(message.sent_at.0).u64(message.expires_at.0);
    if let Some(TopicPosition { topic, position }) = &message.topic {
        out.text(topic.as_str()).u32(position.epoch.0).u64(position.offset);
    }
    for json in [&message.notification, &message.data].into_iter().flatten() {
        out.long_text(json.as_str());
    }
}

fn read_message(body: &mut Reader<'_>) -> Result<Message, Malformed> {
    let flags = body.u8()?;
    let when = noroshi_types::When::from_code(body.u8()?).ok_or(Malformed)?;
    let urgency = noroshi_types::Urgency::from_code(body.u8()?).ok_or(Malformed)?;
    let id = NotificationId::from_bytes(body.array()?);
    let (app, sent_at, expires_at) = (app(body)?, Timestamp(body.u64()?), Timestamp(body.u64()?));
    let topic = match flags & HAS_TOPIC {
        0 => None,
        _ => {
            let topic = topic(body.text()?)?;
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
    })
}

fn write_part(out: &mut Writer<'_>, part: &Part) {
    match part {
        Part::Users { users, sole } => {
            out.u8(PART_USERS).u32(count(*sole)).texts(users.iter().map(UserId::as_str));
        }
        Part::Devices { devices, sole } => {
            out.u8(PART_DEVICES).u32(count(*sole)).texts(devices.iter().map(DeviceId::as_str));
        }
        Part::Topic(topic) => {
            out.u8(PART_TOPIC).text(topic.as_str());
        }
        Part::Condition(condition) => {
            out.u8(PART_CONDITION).text(condition.as_str());
        }
        Part::Everyone => {
            out.u8(PART_EVERYONE);
        }
    }
}

fn read_part(body: &mut Reader<'_>) -> Result<Part, Malformed> {
    Ok(match body.u8()? {
        PART_USERS => {
            let sole = body.u32()? as usize;
            Part::Users { users: body.texts(limits::TARGETS_MAX, user)?, sole }
        }
        PART_DEVICES => {
            let sole = body.u32()? as usize;
            Part::Devices { devices: body.texts(limits::TARGETS_MAX, device_id)?, sole }
        }
        PART_TOPIC => Part::Topic(topic(body.text()?)?),
        PART_CONDITION => Part::Condition(Condition::parse(body.text()?).map_err(|_| Malformed)?),
        PART_EVERYONE => Part::Everyone,
        _ => return Err(Malformed),
    })
}

fn write_question(out: &mut Writer<'_>, question: &Question) {
    match question {
        Question::Sessions { app, users } => {
            out.u8(1).u32(app.0).texts(users.iter().map(UserId::as_str));
        }
        Question::Devices { app, devices } => {
            out.u8(2).u32(app.0).texts(devices.iter().map(DeviceId::as_str));
        }
        Question::TopicSessions { app, topics } => {
            out.u8(3).u32(app.0).texts(topics.iter().map(Topic::as_str));
        }
        Question::SetPresence { app, device, presence } => {
            out.u8(4).u32(app.0).text(device.as_str()).u8(presence_code(*presence));
        }
        Question::Generations { app, devices } => {
            out.u8(5).u32(app.0).texts(devices.iter().map(DeviceId::as_str));
        }
    }
}

fn read_question(body: &mut Reader<'_>) -> Result<Question, Malformed> {
    Ok(match body.u8()? {
        1 => Question::Sessions { app: app(body)?, users: body.texts(limits::TARGETS_MAX, user)? },
        2 => Question::Devices { app: app(body)?, devices: body.texts(limits::TARGETS_MAX, device_id)? },
        3 => Question::TopicSessions { app: app(body)?, topics: topics(body)? },
        4 => Question::SetPresence { app: app(body)?, device: device(body)?, presence: read_presence(body)? },
        5 => Question::Generations { app: app(body)?, devices: body.texts(limits::TARGETS_MAX, device_id)? },
        _ => return Err(Malformed),
    })
}

fn write_answer(out: &mut Writer<'_>, answer: &Answer) {
    match answer {
        Answer::Sessions(all) => {
            out.u8(1).u32(count(all.len()));
            for sessions in all {
                out.u32(count(sessions.len()));
                for session in sessions {
                    out.text(session.device.as_str()).u8(presence_code(session.presence));
                }
            }
        }
        Answer::Counts(counts) => {
            out.u8(2).u32(count(counts.len()));
            for count in counts {
                out.u64(*count);
            }
        }
        Answer::Done(done) => {
            out.u8(3).u8(u8::from(*done));
        }
    }
}

fn read_answer(body: &mut Reader<'_>) -> Result<Answer, Malformed> {
    Ok(match body.u8()? {
        1 => Answer::Sessions(body.list(limits::TARGETS_MAX, 4, |body| {
            body.list(usize::MAX, 3, |body| {
                Ok(Session { device: device(body)?, presence: read_presence(body)? })
            })
        })?),
        2 => Answer::Counts(body.list(limits::TARGETS_MAX, 8, Reader::u64)?),
        3 => Answer::Done(body.u8()? != 0),
        _ => return Err(Malformed),
    })
}

fn app(body: &mut Reader<'_>) -> Result<AppId, Malformed> {
    body.u32().map(AppId)
}

fn device(body: &mut Reader<'_>) -> Result<DeviceId, Malformed> {
    body.text().and_then(device_id)
}

fn device_id(text: &str) -> Result<DeviceId, Malformed> {
    DeviceId::parse(text).map_err(|_| Malformed)
}

fn user(text: &str) -> Result<UserId, Malformed> {
    UserId::parse(text).map_err(|_| Malformed)
}

fn topic(text: &str) -> Result<Topic, Malformed> {
    match text == limits::EVERYONE_TOPIC {
        true => Ok(Topic::everyone()),
        false => Topic::parse_any(text).map_err(|_| Malformed),
    }
}

/// Topics of one device, or of a page of the API.
fn topics(body: &mut Reader<'_>) -> Result<Vec<Topic>, Malformed> {
    body.texts(limits::TARGETS_MAX, topic)
}

fn reason(body: &mut Reader<'_>) -> Result<CloseReason, Malformed> {
    let name = body.text()?;
    CloseReason::ALL.into_iter().find(|reason| reason.as_str() == name).ok_or(Malformed)
}

fn presence_code(presence: Presence) -> u8 {
    match presence {
        Presence::Offline => 0,
        Presence::Idle => 1,
        Presence::Active => 2,
    }
}

fn read_presence(body: &mut Reader<'_>) -> Result<Presence, Malformed> {
    let code = body.u8()?;
    let all = [Presence::Offline, Presence::Idle, Presence::Active];
    all.into_iter().find(|presence| presence_code(*presence) == code).ok_or(Malformed)
}

/// Lists are far shorter: the API accepts 10,000 targets.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

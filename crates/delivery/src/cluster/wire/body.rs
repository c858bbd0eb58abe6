//! The values inside of records: messages, parts, questions, answers and ids.
//!
//! Each `read_` function accepts what its `write_` function wrote, ignores what a newer version appended, and checks
//! ids by their own rules.

use noroshi_types::{
    AppId, CloseReason, Condition, DeviceId, Message, NotificationId, Presence, Timestamp, Topic,
    TopicPosition, UserId, limits,
};

use super::{Answer, Part, Question};
use crate::cluster::codec::{Malformed, Reader, Writer};
use crate::edge::Session;

pub(super) const PART_USERS: u8 = 1;
pub(super) const PART_DEVICES: u8 = 2;
const PART_TOPIC: u8 = 3;
const PART_CONDITION: u8 = 4;
const PART_EVERYONE: u8 = 5;

const HAS_TOPIC: u8 = 1;
const HAS_NOTIFICATION: u8 = 2;
const HAS_DATA: u8 = 4;
const PUSH_WAITS: u8 = 8;
/// An older node ignores this and delivers at once.
const WAITS_FOR_USE: u8 = 16;

pub(super) fn write_message(out: &mut Writer<'_>, message: &Message) {
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

pub(super) fn read_message(body: &mut Reader<'_>) -> Result<Message, Malformed> {
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

pub(super) fn write_part(out: &mut Writer<'_>, part: &Part) {
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

pub(super) fn read_part(body: &mut Reader<'_>) -> Result<Part, Malformed> {
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

pub(super) fn write_question(out: &mut Writer<'_>, question: &Question) {
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

pub(super) fn read_question(body: &mut Reader<'_>) -> Result<Question, Malformed> {
    Ok(match body.u8()? {
        1 => Question::Sessions { app: app(body)?, users: body.texts(limits::TARGETS_MAX, user)? },
        2 => Question::Devices { app: app(body)?, devices: body.texts(limits::TARGETS_MAX, device_id)? },
        3 => Question::TopicSessions { app: app(body)?, topics: topics(body)? },
        4 => Question::SetPresence { app: app(body)?, device: device(body)?, presence: read_presence(body)? },
        5 => Question::Generations { app: app(body)?, devices: body.texts(limits::TARGETS_MAX, device_id)? },
        _ => return Err(Malformed),
    })
}

pub(super) fn write_answer(out: &mut Writer<'_>, answer: &Answer) {
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

pub(super) fn read_answer(body: &mut Reader<'_>) -> Result<Answer, Malformed> {
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

pub(super) fn app(body: &mut Reader<'_>) -> Result<AppId, Malformed> {
    body.u32().map(AppId)
}

pub(super) fn device(body: &mut Reader<'_>) -> Result<DeviceId, Malformed> {
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
pub(super) fn topics(body: &mut Reader<'_>) -> Result<Vec<Topic>, Malformed> {
    body.texts(limits::TARGETS_MAX, topic)
}

pub(super) fn reason(body: &mut Reader<'_>) -> Result<CloseReason, Malformed> {
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
pub(super) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

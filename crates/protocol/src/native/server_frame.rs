//! Parses frames of the service, for our own clients (`noroshi listen`, the load generator). Unknown fields
//! are ignored and unknown types reported, since the service may be newer. Everything possible is borrowed: a
//! load generator parses a frame for every delivery it measures.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One frame; text without escapes is borrowed.
#[derive(Debug, Clone)]
pub enum ServerFrame<'a> {
    /// The session began.
    Ready { device: Cow<'a, str>, session: Cow<'a, str>, ping_s: u64 },
    /// A notification.
    Msg(Msg<'a>),
    /// What a topic had missed was sent.
    Recovered { topic: Cow<'a, str>, complete: bool },
    /// Items of the user were added or changed; `event` names what happened, `unread` counts afterwards.
    Items { event: Cow<'a, str>, unread: u64 },
    /// A frame of the client was rejected.
    Error { code: Cow<'a, str>, message: Cow<'a, str> },
    /// The connection is about to be closed.
    Close { reason: Cow<'a, str>, reconnect: bool, after_ms: u64 },
    /// The answer to a ping.
    Pong,
    /// A type that a newer service added.
    Unknown(Cow<'a, str>),
}

/// A notification.
#[derive(Debug, Clone)]
pub struct Msg<'a> {
    pub id: Cow<'a, str>,
    pub topic: Option<Cow<'a, str>>,
    pub epoch: Option<Cow<'a, str>>,
    pub offset: Option<u64>,
    pub notification: Option<&'a RawValue>,
    pub data: Option<&'a RawValue>,
    /// Whether the service expects an ack of `id`.
    pub ack: bool,
    /// RFC 3339.
    pub sent_at: Cow<'a, str>,
}

/// Why a text is not a frame of the service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerFrameError {
    #[error("not a JSON object of the service: {0}")]
    Malformed(String),
    #[error("`{field}` is missing in a frame of type `{frame}`")]
    Missing { frame: &'static str, field: &'static str },
}

/// Borrowed if possible: serde always copies `Option<Cow<str>>`.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The union of the fields of all types.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    topic: Option<Text<'a>>,
    #[serde(borrow)]
    epoch: Option<Text<'a>>,
    offset: Option<u64>,
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    ack: bool,
    #[serde(borrow)]
    sent_at: Option<Text<'a>>,
    #[serde(borrow)]
    device: Option<Text<'a>>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
    ping_s: Option<u64>,
    complete: Option<bool>,
    #[serde(borrow)]
    event: Option<Text<'a>>,
    unread: Option<u64>,
    #[serde(borrow)]
    code: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    reconnect: Option<bool>,
    after_ms: Option<u64>,
}

pub fn parse_server_frame(text: &str) -> Result<ServerFrame<'_>, ServerFrameError> {
    let fields: Fields<'_> =
        serde_json::from_str(text).map_err(|error| ServerFrameError::Malformed(error.to_string()))?;
    Ok(match &*fields.t {
        "msg" => ServerFrame::Msg(Msg {
            id: required("msg", "id", fields.id)?.0,
            topic: fields.topic.map(|text| text.0),
            epoch: fields.epoch.map(|text| text.0),
            offset: fields.offset,
            notification: fields.notification,
            data: fields.data,
            ack: fields.ack,
            sent_at: required("msg", "sent_at", fields.sent_at)?.0,
        }),
        "ready" => ServerFrame::Ready {
            device: required("ready", "device", fields.device)?.0,
            session: required("ready", "session", fields.session)?.0,
            ping_s: required("ready", "ping_s", fields.ping_s)?,
        },
        "recovered" => ServerFrame::Recovered {
            topic: required("recovered", "topic", fields.topic)?.0,
            complete: required("recovered", "complete", fields.complete)?,
        },
        "items" => ServerFrame::Items {
            event: required("items", "event", fields.event)?.0,
            unread: required("items", "unread", fields.unread)?,
        },
        "error" => ServerFrame::Error {
            code: required("error", "code", fields.code)?.0,
            message: required("error", "message", fields.message)?.0,
        },
        "close" => ServerFrame::Close {
            reason: required("close", "reason", fields.reason)?.0,
            reconnect: required("close", "reconnect", fields.reconnect)?,
            after_ms: fields.after_ms.unwrap_or(0),
        },
        "pong" => ServerFrame::Pong,
        _ => ServerFrame::Unknown(fields.t),
    })
}

fn required<T>(frame: &'static str, field: &'static str, value: Option<T>) -> Result<T, ServerFrameError> {
    value.ok_or(ServerFrameError::Missing { frame, field })
}

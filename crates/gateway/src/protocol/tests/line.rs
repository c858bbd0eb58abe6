//! A small protocol of text lines over TCP, for tests only: the shortest complete adapter.
//!
//! ```text
//!   client: PING          server: PONG
//!   client: AUTH token    server: OK, or ERR and the end
//!   client: SUB topic     server: OK, or ERR code
//!   client: ACK id
//!                         server: MSG id data, for each message
//! ```
//!
//! It touches this file, two lines in [`crate::protocol::registry`], and its name in [`crate::wire::Protocol`] and
//! [`crate::wire::Speaks`].

use std::convert::Infallible;
use std::io::Write as _;

use bytes::Bytes;
use noroshi_delivery::rules::Reason;
use noroshi_types::{CloseReason, NotificationId, Topic};

use crate::config::Config;
use crate::protocol::adapter::{Adapter, Cause, Offered};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Reply};
use crate::session::login::OpenedSession;
use crate::session::request::{BoxedRequest, ClientRequest};
use crate::session::verification::close_reason;
use crate::wire::dispatch::Dispatch;

/// The longest line.
const LINE_BYTES_MAX: usize = 4_096;

/// On one connection: a line that is not complete yet.
#[derive(Default)]
pub(crate) struct Line {
    partial: Vec<u8>,
}

pub(crate) enum Request {
    LogIn,
    Subscribe(Topic),
    Subscribed(Vec<(Topic, Reason)>),
}

impl ClientRequest for Request {
    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Subscribe(topic) => vec![topic.as_str().into()],
            Request::LogIn | Request::Subscribed(_) => Vec::new(),
        }
    }
}

impl Adapter for Line {
    type Request = Request;
    type Done = Infallible;

    /// Up to the end of one line.
    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let consumed = end.map_or(bytes.len(), |end| end + 1);
        self.partial.extend_from_slice(&bytes[..consumed]);
        if self.partial.len() > LINE_BYTES_MAX {
            cx.close(CloseReason::TooBig);
        } else if end.is_some() && cx.take_frame(None) {
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned();
            self.handle_line(cx, line.trim_end());
        }
        consumed
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, _: &OpenedSession) -> Vec<u8> {
        cx.send("OK\n");
        Vec::new()
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn, Reply::Verified(Ok(identity))) => cx.attach(identity, Vec::new(), None),
            (Request::LogIn, Reply::Verified(Err(refused))) => cx.close(close_reason(&refused)),
            (Request::Subscribe(topic), Reply::Decided(decided)) => {
                let (topics, denied) = decided.split(vec![topic]);
                let request: Option<BoxedRequest> = Some(Box::new(Request::Subscribed(denied)));
                cx.push(Effect::Subscribe { topics, since: Vec::new(), request });
            }
            (Request::Subscribed(denied), Reply::Subscribed(result)) => match result {
                Err((code, _)) => cx.send(format!("ERR {code}\n")),
                Ok(()) if !denied.is_empty() => cx.send("ERR topic_forbidden\n"),
                Ok(()) => cx.send("OK\n"),
            },
            _ => {}
        }
    }

    fn offer(&mut self, _: &Encoding<'_>, dispatch: &Dispatch, _: Cause, head: &mut Vec<u8>) -> Offered {
        let message = &dispatch.message;
        let data = message.data.as_ref().map_or("", |data| data.as_str());
        // Writing to a vector does not fail.
        let _ = writeln!(head, "MSG {} {data}", message.id);
        Offered::Send { shared: Bytes::new(), acknowledged: false }
    }

    fn message_bytes_max(&self, _: &Config) -> usize {
        LINE_BYTES_MAX
    }

    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, _: u64) {
        cx.send(format!("ERR {}\n", reason.as_str()));
    }
}

impl Line {
    fn handle_line(&mut self, cx: &mut Context<'_>, line: &str) {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        match (command, cx.session.is_some()) {
            ("PING", _) => cx.send("PONG\n"),
            ("AUTH", false) => cx.verify(Some(argument.into()), None, Request::LogIn),
            ("SUB", true) => match Topic::parse_subscription(argument) {
                Ok(topic) => cx.authorize(Request::Subscribe(topic)),
                Err(_) => cx.send("ERR bad_topic\n"),
            },
            ("ACK", true) => match NotificationId::parse(argument) {
                Ok(id) => cx.push(Effect::Acknowledge(vec![id])),
                Err(_) => cx.send("ERR bad_id\n"),
            },
            _ => cx.close(CloseReason::BadMessage),
        }
    }
}

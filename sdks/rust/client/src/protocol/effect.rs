//! What the caller of a machine carries out, and what it reports.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::error::Error;
use crate::event::Event;
use crate::message::Message;
use crate::state::Transport;
use crate::token::TokenReason;
use crate::types::{ItemCounts, ItemsChanged};

#[derive(Debug)]
pub(crate) enum Effect {
    /// Opens a connection. `opened`, `frame`, `heard` and `ended` report what happens to it.
    Dial(Dial),
    /// Writes a frame to the open WebSocket.
    Send { attempt: u64, frame: String },
    /// Ends a connection. Nothing is reported about it any more.
    Hangup { attempt: u64 },
    /// Asks the application for a token. `token_arrived` has the answer.
    AskToken { n: u64, reason: TokenReason, previous: Option<String> },
    /// Ends a request for a token.
    CancelToken { n: u64 },
    /// Sends an HTTP request. `answered` has the answer.
    Request(Request),
    /// The result of a call.
    Done { n: u64, result: Result<Outcome, Error> },
    /// Hands a message to the application. `settled` has the result. The machine passes one message at a time.
    Pass(Message),
    /// Reports another event to the application.
    Tell(Event),
    /// Stores the reports that wait, for the next process.
    Keep(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) attempt: u64,
    pub(crate) transport: Transport,
    /// Of SSE, whose request has the token, the topics and the last handled message.
    pub(crate) token: Option<String>,
    pub(crate) topics: Vec<String>,
    pub(crate) last_event_id: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) n: u64,
    pub(crate) method: http::Method,
    /// Escaped.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) token: String,
    /// JSON.
    pub(crate) body: Option<String>,
}

/// What a call returned.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The body of an answer.
    Body(Vec<u8>),
    Me(Arc<RawValue>),
    /// None: the device does not participate.
    Variant(Option<Box<RawValue>>),
    Counts(ItemCounts),
    Changed(ItemsChanged),
}

/// What an HTTP request returned.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

/// How a connection ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The WebSocket close code.
    pub(crate) code: Option<u16>,
    /// The HTTP status and the problem code of a stream that did not begin.
    pub(crate) status: Option<u16>,
    pub(crate) problem: Option<String>,
    /// Of the HTTP answer.
    pub(crate) retry_after: Option<Duration>,
}

//! Server-sent events: the same session as on a WebSocket, in one direction. Acks, presence and subscriptions go
//! through the consumer API.
//!
//! An adapter without state of its own, as [`super::native`]. A stream that cannot begin is answered in HTTP.

use std::time::Duration;

use noroshi_auth::Refused;
use noroshi_protocol::{native, sse};
use noroshi_types::{CloseReason, ItemsNotice, NotificationId, Recovered, Topic};

use super::adapter::Adapter;
use super::context::Context;
use super::effect::{Effect, Refusal, Reply, TopicNotice};
use crate::config::Config;
use crate::session::login::OpenedSession;
use crate::session::request::{BoxedRequest, ClientRequest};
use crate::session::verification::close_reason;
use crate::wire::gzip;

/// After which time a client shall reconnect; each gets a different one.
const RETRY: Duration = Duration::from_secs(2);

/// The query of an event stream.
pub(crate) struct Stream {
    pub(crate) topics: Vec<Topic>,
    pub(crate) resume: Option<NotificationId>,
    pub(crate) asks_gzip: bool,
}

pub(crate) struct Events;

/// A log-in whose token is verified.
pub(crate) struct Request {
    topics: Vec<Topic>,
    resume: Option<NotificationId>,
}

impl ClientRequest for Request {}

impl Events {
    /// The log-in of a request for a stream.
    pub(crate) fn request(stream: Stream) -> BoxedRequest {
        Box::new(Request { topics: stream.topics, resume: stream.resume })
    }
}

impl Adapter for Events {
    type Request = Request;
    type Done = std::convert::Infallible;

    /// The stream begins.
    fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        let retry_ms = u64::try_from(RETRY.as_millis()).unwrap_or_default() + cx.jitter(1_000);
        let (mut head, mut retry) = (Vec::with_capacity(288), Vec::with_capacity(16));
        sse::push_response_head(&mut head, begun.asks_gzip);
        sse::push_retry(&mut retry, retry_ms);
        match begun.asks_gzip {
            true => {
                head.extend_from_slice(&gzip::HEAD);
                cx.send(head);
                cx.push(Effect::BeginGzip);
                cx.send(retry);
            }
            false => {
                head.extend_from_slice(&retry);
                cx.send(head);
            }
        }
        cx.push(Effect::DetectVanishedPeer);
        Vec::new()
    }

    fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        let status = match refusal.reason {
            CloseReason::QuotaExceeded => 429,
            CloseReason::Revoked => 401,
            _ => 400,
        };
        cx.push(Effect::RefuseInHttp(status, Box::new(refusal.clone())));
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        let Reply::Verified(answer) = reply else { return };
        match answer {
            Ok(identity) => cx.attach(identity, request.topics, request.resume),
            Err(Refused::Busy) => cx.close(CloseReason::Overloaded),
            Err(refused) => {
                let (status, code) = match refused {
                    Refused::Expired => (401, "expired"),
                    Refused::TooManyFailures { .. } => (429, "too_many_requests"),
                    _ => (401, "unauthorized"),
                };
                let text = match refused {
                    Refused::Missing => "a token is needed".to_owned(),
                    Refused::Expired => CloseReason::Expired.explain().to_owned(),
                    _ => refused.to_string(),
                };
                let refusal = Refusal { code, text, reason: close_reason(&refused), after_s: None };
                cx.push(Effect::RefuseInHttp(status, Box::new(refusal)));
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        cx.set_timeout(cx.now.tick_after(cx.config().ping_interval));
        cx.push(Effect::SendKeepAlive);
    }

    fn handle_recovered(&mut self, cx: &mut Context<'_>, recovered: &Recovered) {
        send(cx, "recovered", |json| native::recovered(json, recovered));
    }

    fn handle_items(&mut self, cx: &mut Context<'_>, notice: &ItemsNotice) {
        send(cx, "items", |json| native::items(json, notice));
    }

    fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        let TopicNotice { code, topic, reason } = *notice;
        send(cx, "error", |json| native::topic_error(json, code, topic, reason.code(), reason.text()));
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.client_message_bytes
    }

    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        send(cx, "close", |json| native::close(json, reason, reconnect_after_ms));
    }
}

/// A JSON object as an event that is named by its type.
fn send(cx: &mut Context<'_>, event: &str, write: impl FnOnce(&mut Vec<u8>)) {
    let mut json = Vec::new();
    write(&mut json);
    let mut bytes = Vec::with_capacity(json.len() + 32);
    sse::named(event, &json, &mut bytes);
    cx.send(bytes);
}

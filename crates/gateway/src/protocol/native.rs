//! The native protocol: JSON in text frames of a WebSocket.
//!
//! An adapter without state of its own: it is made for each call ([`super::registry`]), so a native connection stores
//! none. Messages to the device are the same bytes for all connections and are written without it.
//!
//! A frame that cannot be parsed is answered with an error frame and the connection continues: the allowance of frames
//! a second bounds how often. A frame that is not allowed in the connection's state closes it.

use crate::session::phase::Ping;
use noroshi_delivery::rules::Reason;
use noroshi_protocol::native::{self, ClientFrame};
use noroshi_protocol::ws::{self, Input, Opcode};
use noroshi_types::{CloseReason, NotificationId, Position, SessionId, Topic};

use super::adapter::Adapter;
use super::context::Context;
use super::effect::{Attach, Effect, Refusal, Reply, TopicNotice};
use crate::config::Config;
use crate::io::timer::ticks;
use crate::session::login::OpenedSession;
use crate::session::phase::Phase;
use crate::session::verification::close_reason;
use crate::wire::Protocol;

mod requests;

pub(crate) use requests::Request;

pub(crate) struct Native;

impl Adapter for Native {
    type Request = Request;
    type Done = std::convert::Infallible;

    const PROTOCOL: Option<Protocol> = Some(Protocol::Native);

    fn handle_message(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match (input, cx.facts.phase) {
            // The frame waits for the outcome of the log-in.
            (Input::Text(text), Phase::LoggingIn) => cx.push(Effect::KeepEarly(text.into())),
            (Input::Text(text), _) => self.handle_text(cx, text),
            _ => {
                send_error(cx, "bad_message", "messages are JSON in text frames");
                cx.close(CloseReason::BadMessage);
            }
        }
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        let (session, interval) = (&begun.session, cx.config().ping_interval.as_secs());
        let mut ready = Vec::with_capacity(128);
        native::ready(&mut ready, &session.device, SessionId(session.address.generation), interval);
        send(cx, &ready);
        Vec::new()
    }

    fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        send_error(cx, refusal.code, &refusal.text);
        cx.close(refusal.reason);
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn, Reply::Verified(Ok(identity))) => {
                let attach = Attach { identity, topics: Vec::new(), resume: None };
                cx.push(Effect::Attach(Box::new(attach)));
            }
            (Request::LogIn, Reply::Verified(Err(refused))) => cx.close(close_reason(&refused)),
            (Request::Subscribe { topics, since }, Reply::Decided(decided)) => {
                let (topics, denied) = decided.split(topics);
                subscribe(cx, topics, since, denied);
            }
            (Request::Subscribed { denied }, Reply::Subscribed(result)) => {
                for (topic, reason) in &denied {
                    let (code, text) = ("topic_forbidden", reason.text());
                    self.handle_topic_notice(cx, &TopicNotice { code, topic, reason: reason.code(), text });
                }
                if let Err((code, text)) = result {
                    send_error(cx, code, &text);
                }
            }
            (Request::Unsubscribe { topics }, Reply::Decided(_)) => cx.push(Effect::Unsubscribe(topics)),
            (Request::RenewToken, Reply::Renewed(Err(why))) => send_error(cx, why.code(), &why.to_string()),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let (interval, timeout) = (cx.config().ping_interval, cx.config().ping_timeout);
        let (tick, timeout) = (cx.now.tick, ticks(timeout));
        if *cx.timers.ping == Ping::None {
            *cx.timers.ping = Ping::Sent;
            cx.set_timeout(tick.saturating_add(timeout));
            cx.send(ws::frame(Opcode::Ping, &[]));
        } else if *cx.timers.ping == Ping::Answered {
            *cx.timers.ping = Ping::None;
            let next = cx.now.tick_after(interval).saturating_sub(timeout);
            cx.set_timeout(next.max(tick + 1));
        } else {
            cx.close(CloseReason::PingTimeout);
        }
    }

    fn handle_recovered(&mut self, cx: &mut Context<'_>, topic: &Topic, complete: bool) {
        let mut json = Vec::new();
        native::recovered(&mut json, topic, complete);
        send(cx, &json);
    }

    fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        let mut json = Vec::new();
        native::topic_error(&mut json, notice.code, notice.topic, notice.reason, notice.text);
        send(cx, &json);
    }

    /// A device that was asked to reconnect elsewhere confirms messages until it disconnects.
    fn late_confirmations(&self, input: &Input<'_>) -> Vec<NotificationId> {
        match input {
            Input::Text(text) => match native::parse_client_frame(text) {
                Ok(ClientFrame::Ack { ids }) => ids,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.client_message_bytes
    }

    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        let mut json = Vec::new();
        native::close(&mut json, reason, reconnect_after_ms);
        send(cx, &json);
    }
}

impl Native {
    fn handle_text(&mut self, cx: &mut Context<'_>, text: &str) {
        let frame = match native::parse_client_frame(text) {
            Ok(frame) => frame,
            Err(error) => return send_error(cx, error.code(), &error.to_string()),
        };
        match (cx.facts.phase, frame) {
            (Phase::AwaitToken, ClientFrame::Connect { token }) => {
                let (token, app) = (Some(token.as_str().into()), None);
                cx.push(Effect::Verify { token, app, request: Request::LogIn.into() });
            }
            (Phase::AwaitToken, _) => {
                send_error(cx, "not_connected", "the first frame is \"connect\" with a token");
                cx.close(CloseReason::BadMessage);
            }
            (_, frame) if cx.session.is_some() => handle_open_frame(cx, frame),
            _ => {}
        }
    }
}

/// A frame on an open connection.
fn handle_open_frame(cx: &mut Context<'_>, frame: ClientFrame) {
    match frame {
        ClientFrame::Ack { ids } => cx.push(Effect::Confirm(ids)),
        ClientFrame::Presence(presence) => cx.push(Effect::SetPresence(presence)),
        ClientFrame::Ping => {
            let mut pong = Vec::new();
            native::pong(&mut pong);
            send(cx, &pong);
        }
        ClientFrame::Sub { topics, since } => {
            cx.push(Effect::Authorize(Request::Subscribe { topics, since }.into()));
        }
        ClientFrame::Unsub { topics } => {
            cx.push(Effect::Authorize(Request::Unsubscribe { topics }.into()));
        }
        ClientFrame::Token { token } => {
            let request = Request::RenewToken.into();
            cx.push(Effect::RenewToken { token: token.as_str().into(), request });
        }
        ClientFrame::Connect { .. } => {
            let text = "this connection has its session; renew with \"token\"";
            send_error(cx, "already_connected", text);
        }
    }
}

fn subscribe(
    cx: &mut Context<'_>,
    topics: Vec<Topic>,
    since: Vec<(Topic, Position)>,
    denied: Vec<(Topic, Reason)>,
) {
    let request = Some(Request::Subscribed { denied }.into());
    cx.push(Effect::Subscribe { topics, since, request });
}

/// An error frame; the connection continues.
fn send_error(cx: &mut Context<'_>, code: &str, message: &str) {
    let mut json = Vec::new();
    native::error(&mut json, code, message);
    send(cx, &json);
}

fn send(cx: &mut Context<'_>, json: &[u8]) {
    cx.send(ws::text_frame(json));
}

//! The native protocol: JSON in text frames of a WebSocket.
//!
//! An adapter without state of its own: it is made for each call ([`super::registry`]), so a native connection stores
//! none. Messages to the device are the same bytes for all connections and are written without it.
//!
//! A frame that cannot be parsed is answered with an error frame and the connection continues: the allowance of frames
//! a second bounds how often. A frame that is not allowed in the connection's state closes it.

use noroshi_protocol::native::{self, ClientFrame};
use noroshi_protocol::ws::{self, Input, Opcode};
use noroshi_types::{CloseReason, ItemsNotice, NotificationId, Recovered, SessionId};

use super::adapter::Adapter;
use super::context::Context;
use super::effect::{Effect, Refusal, Reply, TopicNotice};
use crate::config::Config;
use crate::session::login::OpenedSession;
use crate::session::phase::Phase;
use crate::session::verification::close_reason;

pub(crate) type Request = super::command::Request<(), ()>;

pub(crate) struct Native;

impl Adapter for Native {
    type Request = Request;
    type Done = std::convert::Infallible;

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
        let id = SessionId(session.address.generation);
        send(cx, |json| native::ready(json, &session.device, id, interval));
        Vec::new()
    }

    fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        send_error(cx, refusal.code, &refusal.text);
        cx.close(refusal.reason);
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn(()), Reply::Verified(Ok(identity))) => cx.attach(identity, Vec::new(), None),
            (Request::LogIn(()), Reply::Verified(Err(refused))) => cx.close(close_reason(&refused)),
            (request, Reply::Decided(decided)) => request.perform(cx, &decided),
            (Request::Subscribed { denied, .. }, Reply::Subscribed(result)) => {
                for (topic, reason) in &denied {
                    let (code, reason) = ("topic_forbidden", *reason);
                    self.handle_topic_notice(cx, &TopicNotice { code, topic, reason });
                }
                if let Err((code, text)) = result {
                    send_error(cx, code, &text);
                }
            }
            (Request::RenewToken { .. }, Reply::Renewed(Err(why))) => {
                send_error(cx, why.code(), &why.to_string());
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if cx.needs_ping() {
            cx.send(ws::frame(Opcode::Ping, &[]));
        }
    }

    fn handle_recovered(&mut self, cx: &mut Context<'_>, recovered: &Recovered) {
        send(cx, |json| native::recovered(json, recovered));
    }

    fn handle_items(&mut self, cx: &mut Context<'_>, notice: &ItemsNotice) {
        send(cx, |json| native::items(json, notice));
    }

    fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        let TopicNotice { code, topic, reason } = *notice;
        send(cx, |json| native::topic_error(json, code, topic, reason.code(), reason.text()));
    }

    /// A device that was asked to reconnect elsewhere acknowledges messages until it disconnects.
    fn late_acknowledgements(&self, input: &Input<'_>) -> Vec<NotificationId> {
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
        send(cx, |json| native::close(json, reason, reconnect_after_ms));
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
                cx.verify(Some(token.as_str().into()), None, Request::LogIn(()));
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
        ClientFrame::Ack { ids } => cx.push(Effect::Acknowledge(ids)),
        ClientFrame::Presence(presence) => cx.push(Effect::SetPresence(presence)),
        ClientFrame::Ping => send(cx, native::pong),
        ClientFrame::Sub { topics, since } => {
            cx.authorize(Request::Subscribe { topics, since, reply: () });
        }
        ClientFrame::Unsub { topics } => cx.authorize(Request::Unsubscribe { topics }),
        ClientFrame::Token { token } => cx.renew_token(token.as_str(), Request::RenewToken { reply: () }),
        ClientFrame::Connect { .. } => {
            let text = "this connection has its session; renew with \"token\"";
            send_error(cx, "already_connected", text);
        }
    }
}

/// An error frame; the connection continues.
fn send_error(cx: &mut Context<'_>, code: &str, message: &str) {
    send(cx, |json| native::error(json, code, message));
}

fn send(cx: &mut Context<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut json = Vec::with_capacity(128);
    write(&mut json);
    cx.send(ws::text_frame(&json));
}

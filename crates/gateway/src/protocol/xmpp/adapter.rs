//! The adapter of XMPP: bytes to the conversation, and its actions to effects.

use crate::session::phase::Ping;
use std::ops::ControlFlow;

use bytes::Bytes;
use noroshi_protocol::ws::{self, Input as Message};
use noroshi_protocol::xmpp::{self, Action, Input};
use noroshi_types::{CloseReason, Presence};

use super::job::Done;
use super::{Request, Xmpp, service};
use crate::config::Config;
use crate::io::timer::ticks;
use crate::io::tls::TlsSession;
use crate::protocol::adapter::{Adapter, Cause, Offered, Opening};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Reply};
use crate::protocol::services::Services;
use crate::rate::Rate;
use crate::session::login::OpenedSession;
use crate::session::phase::Phase;
use crate::session::registry::Session;
use crate::wire::dispatch::Dispatch;
use crate::wire::{Protocol, Speaks};

impl Adapter for Xmpp {
    type Request = Request;
    type Done = Done;

    const PROTOCOL: Option<Protocol> = Some(Protocol::Xmpp);
    /// An end without `</stream:stream>` suspends the session.
    const ANNOUNCES_END: bool = true;
    const WRITES_MARKED_FIRST: bool = true;

    fn open(opening: &Opening<'_>) -> Option<Self> {
        let has_starttls = opening.config.xmpp.starttls.is_some();
        Some(Xmpp::new(opening.framing, opening.is_tls, has_starttls))
    }

    fn handle_open(&mut self, cx: &mut Context<'_>) {
        self.refill_frames(cx);
    }

    /// One element, or a part of one.
    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        let limits = cx.config().xmpp.protocol.xml;
        let mut framer = std::mem::take(&mut self.framer);
        let result = framer.feed(bytes, &limits, &mut |input| {
            let rate = self.conformance_rate(cx.services, cx.session.is_some());
            if cx.take_frame(rate) {
                self.speak(cx, |conversation, pcx, out| conversation.receive(pcx, input, out));
            }
            ControlFlow::Break(())
        });
        match result {
            Ok(consumed) if self.begins_tls => {
                start_tls(cx, consumed == bytes.len());
                bytes.len()
            }
            Ok(consumed) => {
                self.framer = framer;
                consumed
            }
            Err(error) => {
                self.speak(cx, |conversation, pcx, out| conversation.receive_error(pcx, error, out));
                bytes.len()
            }
        }
    }

    /// One element (RFC 7395 §3.3).
    fn handle_message(&mut self, cx: &mut Context<'_>, input: Message<'_>) {
        match input {
            Message::Text(text) => {
                self.speak(cx, |conversation, pcx, out| {
                    conversation.receive(pcx, Input::Element(text), out);
                });
            }
            // RFC 7395 §3.2
            _ => cx.close(CloseReason::BadMessage),
        }
    }

    fn handle_tls(&mut self, _: &mut Context<'_>) {
        self.begins_tls = false;
        self.conversation.encrypted();
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        self.begin_session(cx, begun);
        Vec::new()
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        self.handle_outcome(cx, request, reply);
    }

    fn handle_done(&mut self, cx: &mut Context<'_>, done: Done) {
        match done {
            Done::Answered { request, answer } => self.answer(cx, request, answer),
            Done::Checked(result) => self.handle_checked(cx, result),
        }
    }

    /// A client that is there answers a ping.
    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let (interval, timeout) = (cx.config().ping_interval, cx.config().ping_timeout);
        if cx.facts.phase != Phase::Open {
            cx.clear_timeout();
        } else if *cx.timers.ping == Ping::None {
            *cx.timers.ping = Ping::Sent;
            cx.set_timeout(cx.now.tick.saturating_add(ticks(timeout)));
            self.speak(cx, |conversation, pcx, out| conversation.push_ping(pcx.config, &mut out.bytes));
        } else if *cx.timers.ping == Ping::Answered {
            *cx.timers.ping = Ping::None;
            let next = cx.now.tick_after(interval).saturating_sub(ticks(timeout));
            cx.set_timeout(next.max(cx.now.tick + 1));
        } else {
            cx.close(CloseReason::PingTimeout);
        }
    }

    /// Reminds the client to confirm stanzas that were sent some time ago.
    fn handle_deadline(&mut self, cx: &mut Context<'_>) {
        cx.clear_deadline();
        self.speak(cx, |conversation, pcx, out| conversation.remind(pcx, out));
    }

    fn handle_stanza(&mut self, cx: &mut Context<'_>, stanza: &Bytes) {
        self.speak(cx, |conversation, pcx, out| conversation.deliver_relayed(pcx, stanza, out));
    }

    fn handle_predecessor_gone(&mut self, cx: &mut Context<'_>) {
        self.look_for_session(cx);
    }

    fn offer(&mut self, encoding: &Encoding<'_>, dispatch: &Dispatch, _: Cause, _: &mut Vec<u8>) -> Offered {
        self.offer_message(encoding, dispatch)
    }

    fn finish_offers(&mut self, config: &Config, out: &mut Vec<u8>) {
        self.conversation.push_checkpoint(&config.xmpp.protocol, out);
    }

    fn handle_caught_up(&mut self) -> Vec<noroshi_types::NotificationId> {
        (self.repeats, self.resumed) = (false, false);
        Vec::new()
    }

    fn wants_retained(&self) -> bool {
        !self.resumed
    }

    /// A receipt and a count.
    fn frames_granted(&self) -> u32 {
        2
    }

    fn frame_rate(&self, services: &Services, has_session: bool) -> Option<Rate> {
        self.conformance_rate(services, has_session)
    }

    fn may_resume(&self, services: &Services, session: &Session) -> bool {
        let parking = &service(services).parking;
        let id = self.resuming.as_ref().map(|resuming| &resuming.id);
        id.is_none_or(|id| parking.is_held_by(session.device_key, id, session.holder()))
    }

    fn is_resumable_as(&self, id: &str) -> bool {
        self.conversation.resume_id() == Some(id)
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.xmpp.protocol.xml.element_bytes_max
    }

    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, _: u64) {
        self.send_close(cx, reason);
    }

    fn end(self, cx: &mut Context<'_>) -> Option<Self> {
        self.leave(cx);
        None
    }
}

/// `clean`: no plaintext follows the request.
fn start_tls(cx: &mut Context<'_>, clean: bool) {
    // RFC 6120 §5.3.1: anybody could have inserted it.
    if !clean {
        return cx.close(CloseReason::ProtocolError);
    }
    let config = cx.config().xmpp.starttls.as_ref().map(|acceptor| acceptor.config(Speaks::Xmpp));
    let session = match config.map(TlsSession::new) {
        Some(Ok(session)) => return cx.push(Effect::StartTls(Box::new(session))),
        Some(Err(error)) => error.to_string(),
        None => "there is no certificate".to_owned(),
    };
    tracing::warn!(error = session, "STARTTLS failed");
    cx.push(Effect::Abort(CloseReason::Internal));
}

impl Xmpp {
    pub(super) fn act(&mut self, cx: &mut Context<'_>, action: Action) {
        match action {
            Action::StartTls => self.begins_tls = true,
            Action::Authenticate { user, app, token } => {
                self.authenticate(cx, &user, app.as_deref(), token.as_str());
            }
            Action::FindKeys { user, .. } => self.find_keys(cx, &user),
            Action::Refused(why) => cx.report_refusal(why),
            Action::LogIn { resource, .. } => self.log_in(cx, &resource),
            Action::Resume { id, .. } => self.resume(cx, id),
            Action::Presence(presence) => self.set_presence(cx, presence),
            Action::Acknowledge(ids) => {
                cx.push(Effect::Confirm(ids));
                cx.push(Effect::MakeRoom);
            }
            // The log-in of the client that resumes reads the backlog from its beginning, which has them.
            Action::Redeliver(_) => {}
            Action::Subscribe { topic, durable, request } => {
                cx.push(Effect::Authorize(Request::Subscribe { topic, durable, request }.into()));
            }
            Action::Unsubscribe { topic, durable, request } => {
                cx.push(Effect::Authorize(Request::Unsubscribe { topic, durable, request }.into()));
            }
            Action::Items { topic, id, max, request } => {
                cx.push(Effect::Authorize(Request::Items { topic, id, max, request }.into()));
            }
            Action::Publish { topic, data, request } => {
                cx.push(Effect::Authorize(Request::Publish { topic, data, request }.into()));
            }
            Action::Create { topic, request } => {
                cx.push(Effect::Authorize(Request::Create { topic, request }.into()));
            }
            Action::Subscriptions { topic, request } => self.list_subscriptions(cx, topic, request),
            Action::Affiliation { topic, request } => self.answer_affiliation(cx, &topic, request),
            Action::Archive { query, request } => self.query_archive(cx, query, request),
            Action::DescribeTopic { request } => self.answer(cx, request, xmpp::Answer::Done),
            Action::Close(reason) => close_stream(cx, reason),
            other => self.act_for_account(cx, other),
        }
    }

    fn set_presence(&mut self, cx: &mut Context<'_>, presence: Presence) {
        if cx.session.is_none() {
            return;
        }
        cx.push(Effect::SetPresence(presence));
        if presence != Presence::Offline && std::mem::take(&mut self.passed_over) {
            self.repeats = true;
            cx.push(Effect::Reread(None));
        }
    }
}

/// The conversation has closed its stream.
fn close_stream(cx: &mut Context<'_>, reason: CloseReason) {
    // RFC 7395 §3.6: the WebSocket ends after its stream.
    if reason == CloseReason::PeerClosed && cx.facts.framing.is_websocket() {
        let mut frame = Vec::new();
        ws::push_close(&mut frame, 1_000, "");
        cx.send(frame);
    }
    cx.close(reason);
}

//! The adapter of XMPP: bytes to the conversation, and its actions to effects.

use std::ops::ControlFlow;

use bytes::Bytes;
use noroshi_protocol::ws::{self, Input as Message};
use noroshi_protocol::xmpp::{Action, Answer, Delivery, Input, Refusal, Request as Query};
use noroshi_types::rule::Action as Ruled;
use noroshi_types::{CloseReason, Presence};

use super::job::Done;
use super::{DELAYED, Xmpp, framing_of, service};
use crate::config::Config;
use crate::io::tls::TlsSession;
use crate::protocol::adapter::{Adapter, Cause, Offered};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Reply};
use crate::protocol::services::Services;
use crate::rate::Rate;
use crate::session::login::OpenedSession;
use crate::session::permission::Decided;
use crate::session::phase::Phase;
use crate::session::registry::Session;
use crate::session::request::{ClientRequest, name_bytes};
use crate::session::verification::close_reason;
use crate::wire::Speaks;
use crate::wire::dispatch::Dispatch;

/// Requests that wait for an outcome.
pub(crate) enum Request {
    LogIn,
    /// Carries out an action of the conversation, after topic rules have decided, or after the effects before this one.
    Act(Action),
    /// The table of accounts learns of the session, behind the actions that the client sent with its log-in.
    AttachAccount,
    /// Answers, behind the effects before this one.
    Answer {
        request: Query,
        answer: Box<Answer>,
    },
}

impl ClientRequest for Request {
    fn action(&self) -> Ruled {
        match self {
            Request::Act(Action::Publish { .. } | Action::Create { .. }) => Ruled::Publish,
            _ => Ruled::Subscribe,
        }
    }

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Act(
                Action::Subscribe { topic, .. }
                | Action::Items { topic, .. }
                | Action::Publish { topic, .. }
                | Action::Create { topic, .. },
            ) => vec![topic.as_str().into()],
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Act(Action::Publish { topic, data, request }) => {
                name_bytes(topic.as_str()) + data.as_str().len() + request.held_bytes()
            }
            Request::Act(
                Action::Subscribe { topic, request, .. }
                | Action::Unsubscribe { topic, request, .. }
                | Action::Create { topic, request }
                | Action::Items { topic, request, .. },
            ) => name_bytes(topic.as_str()) + request.held_bytes(),
            _ => 0,
        }
    }
}

impl Adapter for Xmpp {
    type Request = Request;
    type Done = Done;

    /// An end without `</stream:stream>` suspends the session.
    const ANNOUNCES_END: bool = true;
    const WRITES_MARKED_FIRST: bool = true;

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
        match (request, reply) {
            (Request::LogIn, Reply::Verified(answer)) => {
                self.authenticated(cx, answer.map_err(|refused| close_reason(&refused)), false);
            }
            (Request::Act(action), Reply::Continue) => self.act(cx, action),
            (Request::Act(action), Reply::Decided(decided)) => self.perform(cx, action, decided),
            (Request::AttachAccount, Reply::Continue) => self.attach_account(cx),
            (Request::Answer { request, answer }, Reply::Continue) => self.answer(cx, request, *answer),
            _ => {}
        }
    }

    fn handle_done(&mut self, cx: &mut Context<'_>, done: Done) {
        match done {
            Done::Answered { request, answer } => self.answer(cx, request, answer),
            Done::Checked(result) => self.handle_checked(cx, result),
        }
    }

    /// A client that is there answers a ping.
    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if cx.facts.phase != Phase::Open {
            cx.clear_timeout();
        } else if cx.needs_ping() {
            self.speak(cx, |conversation, pcx, out| conversation.push_ping(pcx.config, &mut out.bytes));
        }
    }

    /// Reminds the client to acknowledge stanzas that were sent some time ago.
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
        let message = &dispatch.message;
        let is_own = message.topic.as_ref().is_none_or(|place| place.topic.is_everyone());
        let is_open = self.conversation.is_open();
        // RFC 6121 §4.5: an unavailable client gets no messages for the device itself; XEP-0160 §3: it gets them when
        // it is available again.
        if !is_open || (is_own && self.conversation.presence() == Presence::Offline) {
            self.passed_over |= message.wants_ack();
            return Offered::Pass { acknowledged: false };
        }
        if self.repeats && self.conversation.is_unacknowledged(message.id) {
            return Offered::Pass { acknowledged: false };
        }
        let config = &encoding.config.xmpp.protocol;
        let delayed = encoding.now.saturating_since(message.sent_at) >= DELAYED;
        let bytes = dispatch.xmpp(config, framing_of(encoding.framing), delayed);
        match self.conversation.deliver(config, message.id, message.wants_ack(), bytes) {
            Delivery::Write => Offered::Send { shared: bytes.clone(), acknowledged: false },
            Delivery::Full => Offered::Full,
        }
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
                cx.push(Effect::Acknowledge(ids));
                cx.push(Effect::MakeRoom);
            }
            // The log-in of the client that resumes reads the backlog from its beginning, which has them.
            Action::Redeliver(_) => {}
            ruled @ (Action::Subscribe { .. }
            | Action::Unsubscribe { .. }
            | Action::Items { .. }
            | Action::Publish { .. }
            | Action::Create { .. }) => cx.authorize(Request::Act(ruled)),
            Action::Subscriptions { topic, request } => self.list_subscriptions(cx, topic, request),
            Action::Affiliation { topic, request } => self.answer_affiliation(cx, &topic, request),
            Action::Archive { query, request } => self.query_archive(cx, query, request),
            Action::DescribeTopic { request } => self.answer(cx, request, Answer::Done),
            Action::Close(reason) => close_stream(cx, reason),
            other => self.act_for_account(cx, other),
        }
    }

    /// Topic rules have decided about an action.
    fn perform(&mut self, cx: &mut Context<'_>, action: Action, decided: Decided) {
        match action {
            Action::Unsubscribe { topic, durable, request } => self.unsubscribe(cx, topic, durable, request),
            Action::Publish { topic, data, request } => {
                let allowed = cx.publishes(&topic, &decided);
                self.publish(cx, topic, data, request, allowed);
            }
            Action::Create { topic, request } => {
                let allowed = cx.publishes(&topic, &decided);
                self.create(cx, topic, request, allowed);
            }
            Action::Subscribe { topic, request, .. } | Action::Items { topic, request, .. }
                if decided.denies(topic.as_str()) =>
            {
                self.answer(cx, request, Answer::Refused(Refusal::Forbidden));
            }
            Action::Subscribe { topic, durable, request } => {
                self.subscribe(cx, topic, durable, decided.rules, request);
            }
            Action::Items { topic, id, max, request } => self.query_items(cx, topic, id, max, request),
            _ => {}
        }
    }

    pub(super) fn answer(&mut self, cx: &mut Context<'_>, request: Query, answer: Answer) {
        self.speak(cx, |conversation, pcx, out| conversation.answer(pcx, request, answer, out));
    }

    /// Answers a request behind the effects before this one.
    pub(super) fn answer_later(&mut self, cx: &mut Context<'_>, request: Query, answer: Answer) {
        cx.continue_with(Request::Answer { request, answer: Box::new(answer) });
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

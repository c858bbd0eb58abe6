//! One connection's state machine: converts the client's elements to [`Action`](super::Action)s and bytes,
//! and the session core's answers to elements. It uses neither clock nor store.
//!
//! Phases only advance: header → negotiation (TLS, SASL, each followed by a new header; or SASL2) →
//! authenticated → open → closed. While a log-in is being answered, input is buffered in `opening`, within
//! limits. Unexpected input never panics: a client's is answered as the specification requires, a caller's is
//! ignored.

use bytes::Bytes;
use noroshi_types::{CloseReason, DeviceId, NotificationId};

use super::action::{Delivery, Output};
use super::config::{Config, Context, Framing, Security};
use super::encode::push_framed;
use super::error::{StanzaError, StreamError};
use super::jid;
use super::management::{Keep, Management, Suspended};
use super::namespace as ns;
use super::presence::Show;
use super::xml::write::{push_empty, push_end, push_start, push_text};
use super::xml::{Element, Input, Scope, XmlError, parse_element};

mod answer;
mod archive;
mod authentication;
mod binding;
mod disco;
mod negotiation;
mod nodes;
mod opening;
mod personal;
mod pubsub;
mod registration;
mod session;
mod stanza;
mod stream;

pub use binding::resource_of;
use opening::Opening;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A stream header is due.
    Header,
    /// Features were offered.
    Negotiating,
    /// TLS is starting.
    Encrypting,
    /// A SASL challenge was sent.
    Challenged,
    /// A log-in is being verified by the caller.
    Verifying,
    /// The client must bind a resource or resume a session.
    Authenticated,
    /// The session is being started by the caller.
    Attaching,
    Open,
    Closed,
}

/// The authenticated client.
#[derive(Debug)]
struct Identity {
    device: DeviceId,
    /// `local@domain`, with `/resource` once bound.
    jid: Box<str>,
    /// Where `/resource` starts.
    bare_len: usize,
}

impl Identity {
    fn new(device: DeviceId, domain: &str) -> Self {
        let jid = format!("{}@{domain}", jid::escape_local(device.as_str()));
        Self { device, bare_len: jid.len(), jid: jid.into() }
    }

    fn bare(&self) -> &str {
        &self.jid[..self.bare_len]
    }
}

#[derive(Debug)]
pub struct Conversation {
    phase: Phase,
    framing: Framing,
    security: Security,
    /// The number of failed log-ins.
    failures: u8,
    /// Our header of the current stream was sent.
    opened: bool,
    show: Show,
    /// The client's app is in the background (XEP-0352).
    inactive: bool,
    /// It has a roster and contacts (`accounts`), unlike a device.
    account: bool,
    scope: Scope,
    identity: Option<Box<Identity>>,
    /// Present until the session is open.
    opening: Option<Box<Opening>>,
    /// Present once stanzas need acknowledgement.
    management: Option<Box<Management>>,
}

// An idle session also holds 40 bytes, the device's name and its address; with stream management 144 bytes
// and its id.
const _: () = assert!(size_of::<Conversation>() <= 64);
const _: () = assert!(size_of::<Identity>() <= 40);
const _: () = assert!(size_of::<Management>() <= 144);

impl Conversation {
    pub fn new(framing: Framing, security: Security) -> Self {
        Self {
            phase: Phase::Header,
            framing,
            security,
            failures: 0,
            opened: false,
            show: Show::Unavailable,
            inactive: false,
            account: false,
            scope: Scope::default(),
            identity: None,
            opening: None,
            management: None,
        }
    }

    /// Declares whether the client that logs in is an account of [`Accounts`](super::Accounts) instead of a
    /// device. Call it before `keys` or `authenticated`.
    pub fn set_account(&mut self, account: bool) {
        self.account = account;
    }

    /// The account's name.
    pub fn account(&self) -> Option<&str> {
        self.identity.as_ref().filter(|_| self.account).map(|identity| identity.device.as_str())
    }

    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// The number of failed log-ins on this connection.
    pub fn failures(&self) -> u8 {
        self.failures
    }

    /// The client's full address, once bound.
    pub fn address(&self) -> Option<&str> {
        self.identity.as_ref().filter(|it| it.jid.len() > it.bare_len).map(|it| &*it.jid)
    }

    /// The client's address without resource.
    fn bare(&self) -> &str {
        self.identity.as_ref().map_or("", |identity| identity.bare())
    }

    /// Handles one element of the client.
    pub fn receive(&mut self, cx: &Context<'_>, input: Input<'_>, out: &mut Output) {
        match (self.phase, input) {
            (Phase::Closed, _) | (_, Input::Whitespace) => {}
            (_, Input::Close) => self.handle_peers_end(out),
            (Phase::Verifying | Phase::Attaching, Input::Header(text) | Input::Element(text)) => {
                if !self.opening().buffer_early(cx.config, text) {
                    let error = (
                        StreamError::PolicyViolation,
                        "too many bytes were sent before the log-in was answered",
                    );
                    self.end(cx, Some(error), CloseReason::RateLimited, out, |_| {});
                }
            }
            (_, Input::Header(text)) => self.handle_header(cx, text, out),
            (_, Input::Element(text)) => self.handle_element(cx, text, out),
        }
    }

    /// Handles malformed XML.
    pub fn receive_error(&mut self, cx: &Context<'_>, error: XmlError, out: &mut Output) {
        if self.phase != Phase::Closed {
            let text = error.to_string();
            self.end(cx, Some((error.condition(), &text)), error.reason(), out, |_| {});
        }
    }

    /// Ends the stream on behalf of the service. `redirect`: another server to use, `host:port`, or its
    /// address for a WebSocket.
    pub fn close(&mut self, cx: &Context<'_>, reason: CloseReason, redirect: Option<&str>, out: &mut Output) {
        if self.phase == Phase::Closed {
            return;
        }
        match redirect {
            Some(to) => self.redirect(cx, reason, to, out),
            None => {
                let error = super::close::stream_error(reason).map(|error| (error, reason.explain()));
                self.end(cx, error, reason, out, |_| {});
            }
        }
    }

    /// Registers a notification that is about to be written; `bytes` is the output of `encode::message`.
    pub fn deliver(
        &mut self,
        config: &Config,
        id: NotificationId,
        wants_ack: bool,
        bytes: &Bytes,
    ) -> Delivery {
        if self.phase != Phase::Open {
            return Delivery::Full;
        }
        let counts = self.management.as_ref().is_some_and(|it| it.counts);
        if !counts && !wants_ack {
            return Delivery::Write;
        }
        let management = self.management.get_or_insert_default();
        if management.unacknowledged() >= config.unacked_max {
            return Delivery::Full;
        }
        let keep = if wants_ack { Keep::Stored } else { Keep::Passing };
        management.push(wants_ack.then_some(id), keep, config.unacked_bytes_max, || bytes.clone());
        Delivery::Write
    }

    /// Registers a stanza of [`Accounts`](super::Accounts) that is about to be written.
    pub fn deliver_relayed(&mut self, cx: &Context<'_>, bytes: &Bytes, out: &mut Output) {
        if self.phase == Phase::Open {
            self.push_stanza(cx, out, |out| out.extend_from_slice(bytes));
        }
    }

    /// Appends an acknowledgement request, if one is needed and none is pending. Call it once after each
    /// write.
    pub fn push_checkpoint(&mut self, config: &Config, out: &mut Vec<u8>) {
        let Some(management) = self.management.as_mut().filter(|_| self.phase == Phase::Open) else { return };
        let counts = management.counts;
        if let Some(count) = management.ask() {
            self.push_question(config, counts, count, out);
        }
    }

    /// Whether unacknowledged stanzas were sent without an acknowledgement request: the caller should call
    /// [`Conversation::remind`] soon.
    pub fn wants_checkpoint(&self) -> bool {
        self.phase == Phase::Open && self.management.as_ref().is_some_and(|it| it.is_due_later())
    }

    /// Sends the request after some time since [`Conversation::wants_checkpoint`].
    pub fn remind(&mut self, cx: &Context<'_>, out: &mut Output) {
        self.ask_to_acknowledge(cx.config, out);
    }

    /// Appends a ping that every live client answers, for idle connections.
    pub fn push_ping(&mut self, config: &Config, out: &mut Vec<u8>) {
        if self.phase != Phase::Open {
            return;
        }
        let management = self.management.get_or_insert_default();
        let (counts, count) = (management.counts, management.ask_anyway());
        self.push_question(config, counts, count, out);
    }

    /// XEP-0198 §4 or XEP-0199 §4.2.
    fn push_question(&self, config: &Config, counts: bool, count: u32, out: &mut Vec<u8>) {
        push_framed(out, self.framing, |out| {
            if counts {
                return push_empty(out, "r", &[("xmlns", ns::SM)]);
            }
            let (id, client) = (format!("{}{count}", stanza::QUESTION), self.framing.client());
            let to = self.address().unwrap_or_default();
            let attributes =
                [("xmlns", client), ("from", &*config.domain), ("to", to), ("type", "get"), ("id", &id)];
            push_start(out, "iq", &attributes);
            push_empty(out, "ping", &[("xmlns", ns::PING)]);
            push_end(out, "iq");
        });
    }

    /// Like [`Conversation::close`] for a client that may resume; returns the state to keep.
    pub fn close_suspended(
        &mut self,
        cx: &Context<'_>,
        reason: CloseReason,
        out: &mut Output,
    ) -> Option<Box<Suspended>> {
        let before = self.phase;
        let suspended = self.suspend();
        self.phase = before;
        self.close(cx, reason, None, out);
        suspended
    }

    /// Whether a notification was sent and is not acknowledged.
    pub fn is_unacknowledged(&self, id: NotificationId) -> bool {
        self.management.as_ref().is_some_and(|management| management.holds(id))
    }

    /// The id for resuming the session, while it is resumable.
    pub fn resume_id(&self) -> Option<&str> {
        self.management.as_ref().filter(|it| it.can_resume())?.resume_id.as_deref()
    }

    /// Closes a broken connection. Returns the state to keep if the client may resume.
    pub fn suspend(&mut self) -> Option<Box<Suspended>> {
        let is_open = std::mem::replace(&mut self.phase, Phase::Closed) == Phase::Open;
        let management = self.management.take().filter(|it| is_open && it.can_resume())?;
        let identity = self.identity.take()?;
        Some(Box::new(Suspended {
            device: identity.device.clone(),
            jid: identity.jid.clone(),
            framing: self.framing,
            management,
            show: self.show,
            inactive: self.inactive,
        }))
    }

    fn opening(&mut self) -> &mut Opening {
        self.opening.get_or_insert_default()
    }

    fn handle_element(&mut self, cx: &Context<'_>, text: &str, out: &mut Output) {
        // Only a stream header replaces the scope, and that is not an element.
        let scope = std::mem::take(&mut self.scope);
        let inherited = (self.framing == Framing::Stream).then_some(&scope);
        match parse_element(text, inherited, &cx.config.xml) {
            Ok(tree) => self.handle_root(cx, tree.root(), out),
            Err(error) => self.receive_error(cx, error, out),
        }
        self.scope = scope;
    }

    fn handle_root(&mut self, cx: &Context<'_>, root: Element<'_>, out: &mut Output) {
        if self.framing == Framing::WebSocket && root.namespace() == ns::FRAMING {
            return match root.name() {
                "open" => self.handle_open(cx, root, out),
                "close" => self.handle_peers_end(out),
                _ => self.fail(
                    cx,
                    StreamError::UnsupportedStanzaType,
                    "only `open` and `close` exist in this namespace (RFC 7395 §3.3)",
                    out,
                ),
            };
        }
        match self.phase {
            Phase::Header => self.fail(cx, StreamError::BadFormat, "the stream must be opened first", out),
            Phase::Negotiating | Phase::Challenged => self.negotiate(cx, root, out),
            // Unencrypted input may not be from the client.
            Phase::Encrypting => {
                self.fail(cx, StreamError::PolicyViolation, "only TLS may follow `starttls`", out)
            }
            Phase::Authenticated => self.handle_unbound(cx, root, out),
            Phase::Open => self.handle_stanza(cx, root, out),
            Phase::Verifying | Phase::Attaching | Phase::Closed => {}
        }
    }

    /// Processes buffered input until the next pending answer.
    fn take_early(&mut self, cx: &Context<'_>, out: &mut Output) {
        let Some(opening) = &mut self.opening else { return };
        let mut early = std::mem::take(&mut opening.early).into_iter();
        opening.early_bytes = 0;
        if self.phase == Phase::Open {
            self.opening = None;
        }
        while let Some(text) = early.next() {
            let is_header = text.starts_with("<?xml") || text.starts_with("<stream:stream");
            let input = if is_header { Input::Header(&text) } else { Input::Element(&text) };
            self.receive(cx, input, out);
            if matches!(self.phase, Phase::Verifying | Phase::Attaching) {
                let opening = self.opening();
                early.by_ref().for_each(|text| opening.restore_early(text));
            }
        }
    }
}

#[cfg(test)]
mod tests;

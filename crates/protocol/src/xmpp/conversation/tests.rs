//! A scripted client sends and receives text, and the test answers as the session core would.

use std::ops::ControlFlow;

use noroshi_types::{CloseReason, DeviceId};

use super::*;
use crate::xmpp::action::Action;
use crate::xmpp::answer::Answer;
use crate::xmpp::xml::Framer;

mod authentication;
mod binding;
mod negotiation;
mod random;
mod session;

pub(super) const HEADER: &str = "<?xml version='1.0'?><stream:stream to='x.example' version='1.0' \
    xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
/// The service's response header; there is no randomness in tests.
pub(super) const OUR_HEADER: &str = "<?xml version='1.0'?><stream:stream xmlns='jabber:client' \
    xmlns:stream='http://etherx.jabber.org/streams' id='07070707070707070707070707070707' from='x.example' \
    version='1.0' xml:lang='en'>";

pub(super) fn device() -> DeviceId {
    DeviceId::parse("d1").unwrap()
}

pub(super) struct Peer {
    pub(super) config: Config,
    pub(super) conversation: Conversation,
    framer: Framer,
    pub(super) actions: Vec<Action>,
    pub(super) now_ms: u32,
    /// The number of further elements that it may send.
    pub(super) granted: u32,
}

impl Peer {
    pub(super) fn new(framing: Framing, security: Security) -> Self {
        let config = Config { scram: true, ..Config::new("x.example") };
        let conversation = Conversation::new(framing, security);
        Self { config, conversation, framer: Framer::new(), actions: Vec::new(), now_ms: 0, granted: 0 }
    }

    pub(super) fn secure() -> Self {
        Self::new(Framing::Stream, Security::Encrypted)
    }

    /// Logged in and bound as `d1@x.example/r`.
    pub(super) fn open() -> Self {
        let mut peer = Self::secure();
        peer.log_in("r");
        peer
    }

    pub(super) fn log_in(&mut self, resource: &str) {
        self.say(HEADER);
        self.prove();
        self.say(HEADER);
        self.say(&format!(
            "<iq type='set' id='b'><bind xmlns='{}'><resource>{resource}</resource></bind></iq>",
            ns::BIND
        ));
        assert!(matches!(self.take()[..], [Action::LogIn { .. }]));
        self.tell(|conversation, cx, out| conversation.logged_in(cx, out));
        assert!(self.conversation.is_open());
    }

    /// With PLAIN.
    pub(super) fn prove(&mut self) {
        self.say(&format!("<auth xmlns='{}' mechanism='PLAIN'>{}</auth>", ns::SASL, base64("\0d1\0t")));
        assert!(matches!(self.take()[..], [Action::Authenticate { .. }]));
        let said = self.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
        assert_eq!(said, "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'></success>");
    }

    /// Makes a call and returns its output as text.
    pub(super) fn tell(&mut self, call: impl FnOnce(&mut Conversation, &Context<'_>, &mut Output)) -> String {
        String::from_utf8(self.call(call)).unwrap()
    }

    /// Makes a call and returns its bytes; its actions are appended to the others.
    pub(super) fn call(
        &mut self,
        call: impl FnOnce(&mut Conversation, &Context<'_>, &mut Output),
    ) -> Vec<u8> {
        let random = |bytes: &mut [u8]| bytes.fill(7);
        let cx = Context { config: &self.config, random: &random, now_ms: self.now_ms };
        let mut out = Output::default();
        call(&mut self.conversation, &cx, &mut out);
        self.actions.extend(out.actions);
        self.granted += out.requests;
        out.bytes
    }

    /// On a stream: sends text.
    pub(super) fn say(&mut self, text: &str) -> String {
        String::from_utf8(self.send_bytes(text.as_bytes())).unwrap()
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut framer = std::mem::take(&mut self.framer);
        let limits = self.config.xml;
        let said = self.call(|conversation, cx, out| {
            let result = framer.feed(bytes, &limits, &mut |input| {
                conversation.receive(cx, input, out);
                ControlFlow::Continue(())
            });
            if let Err(error) = result {
                conversation.receive_error(cx, error, out);
            }
        });
        self.framer = framer;
        said
    }

    /// On a WebSocket: sends a text frame and returns the texts of the response frames.
    pub(super) fn say_frame(&mut self, text: &str) -> Vec<String> {
        frames(&self.call(|conversation, cx, out| conversation.receive(cx, Input::Element(text), out)))
    }

    pub(super) fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The request of the only action.
    pub(super) fn request(&mut self) -> crate::xmpp::action::Request {
        match self.take().pop() {
            Some(
                Action::Subscribe { request, .. }
                | Action::Unsubscribe { request, .. }
                | Action::Subscriptions { request, .. }
                | Action::Items { request, .. }
                | Action::Create { request, .. }
                | Action::Affiliation { request, .. }
                | Action::Node { request, .. }
                | Action::Publish { request, .. }
                | Action::Register { request, .. }
                | Action::Unregister { request }
                | Action::Archive { request, .. }
                | Action::Account { request: Some(request), .. },
            ) => request,
            other => panic!("no request: {other:?}"),
        }
    }

    pub(super) fn answer(&mut self, answer: Answer) -> String {
        let request = self.request();
        self.tell(|conversation, cx, out| conversation.answer(cx, request, answer, out))
    }

    /// Asserts that the connection ends for `reason`.
    pub(super) fn assert_closed(&mut self, reason: CloseReason) {
        assert!(self.conversation.is_closed());
        let actions = self.take();
        assert!(matches!(actions.last(), Some(Action::Close(known)) if *known == reason), "{actions:?}");
    }
}

/// The texts of a server's WebSocket frames.
pub(super) fn frames(bytes: &[u8]) -> Vec<String> {
    let mut decoder = crate::ws::Decoder::new();
    let mut texts = Vec::new();
    let result = decoder.feed(crate::ws::Role::Client, &mut bytes.to_vec(), 1 << 20, &mut |input| {
        match input {
            crate::ws::Input::Text(text) => texts.push(text.to_owned()),
            other => panic!("{other:?}"),
        }
        ControlFlow::Continue(())
    });
    assert_eq!(result, Ok(()));
    assert!(decoder.is_idle());
    texts
}

/// The service's own capabilities among its features (XEP-0115).
pub(super) fn capabilities(said: &str) -> String {
    let begin = "<c xmlns='http://jabber.org/protocol/caps' ";
    format!("{begin}{}/>", between(said, begin, "/>"))
}

pub(super) fn base64(text: &str) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}

pub(super) fn unbase64(text: &str) -> String {
    use ::base64::Engine as _;
    String::from_utf8(::base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
}

/// The text between two markers.
pub(super) fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {text}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} in {rest}")).0
}

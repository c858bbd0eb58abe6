//! Whatever an XMPP client sends and however the session core answers, the conversation neither panics nor
//! exceeds its limits, and its output is XML that a client can parse. Lines that start with a control byte
//! are the session core's, the others the client's; the first byte chooses framing and configuration.

#![no_main]

use std::ops::ControlFlow;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use noroshi_protocol::ws;
use noroshi_protocol::xmpp::config::{Config, Context, Framing, Security};
use noroshi_protocol::xmpp::xml::{Limits, Scope, parse_element};
use noroshi_protocol::xmpp::{
    Action, Answer, Conversation, Framer, Input, Output, Refusal, Resumed, Suspended,
};
use noroshi_types::{CloseReason, DeviceId, NotificationId};

struct Peer {
    config: Config,
    framing: Framing,
    conversation: Conversation,
    framer: Framer,
    asked: Vec<Action>,
    kept: Option<Box<Suspended>>,
}

impl Peer {
    fn call(&mut self, call: impl FnOnce(&mut Conversation, &Context<'_>, &mut Output)) {
        let cx = Context { config: &self.config, random: &|bytes| bytes.fill(7), now_ms: 0 };
        let mut out = Output::default();
        call(&mut self.conversation, &cx, &mut out);
        self.check(&out.bytes);
        self.asked.extend(out.actions);
    }

    /// Checks that the output consists of whole elements that the client's parser accepts.
    fn check(&self, output: &[u8]) {
        let scope = Scope::default();
        let check = |text: &str, scope| {
            assert!(parse_element(text, scope, &Limits::default()).is_ok(), "{text}");
            ControlFlow::Continue(())
        };
        match self.framing {
            Framing::WebSocket => {
                let result =
                    ws::Decoder::new().feed(ws::Role::Client, &mut output.to_vec(), 1 << 20, &mut |input| {
                        let ws::Input::Text(text) = input else { panic!("{input:?}") };
                        check(text, None)
                    });
                assert_eq!(result, Ok(()));
            }
            Framing::Stream => {
                let result = Framer::new().feed(output, &Limits::default(), &mut |input| match input {
                    Input::Element(text) => check(text, Some(&scope)),
                    _ => ControlFlow::Continue(()),
                });
                assert_eq!(result, Ok(output.len()));
            }
        }
    }

    fn send(&mut self, text: &[u8]) {
        if self.framing == Framing::WebSocket {
            let Ok(text) = std::str::from_utf8(text) else { return };
            return self.call(|it, cx, out| it.receive(cx, Input::Element(text), out));
        }
        let (mut framer, limits) = (std::mem::take(&mut self.framer), self.config.xml);
        self.call(|it, cx, out| {
            let result = framer.feed(text, &limits, &mut |input| {
                it.receive(cx, input, out);
                ControlFlow::Continue(())
            });
            if let Err(error) = result {
                it.receive_error(cx, error, out);
            }
        });
        self.framer = framer;
    }

    /// The session core's turn.
    fn answer(&mut self, how: u8) {
        let device = DeviceId::parse("d1").expect("it is one");
        match how {
            0 => self.call(|it, cx, out| it.authenticated(cx, device, out)),
            1 => self.call(|it, cx, out| it.logged_in(cx, out)),
            2 => self.call(|it, cx, out| it.refused(cx, CloseReason::Unauthorized, out)),
            3 => self.call(|it, cx, out| it.keys(cx, None, out)),
            4 => {
                let resumed = self.kept.take().map_or(Resumed::Gone { handled: None }, Resumed::Yes);
                self.call(|it, cx, out| it.resumed(cx, resumed, out));
            }
            5 => self.conversation.encrypted(),
            6 => {
                for action in std::mem::take(&mut self.asked) {
                    if let Action::Subscribe { request, .. }
                    | Action::Publish { request, .. }
                    | Action::Node { request, .. } = action
                    {
                        self.call(|it, cx, out| it.answer(cx, request, Answer::Done, out));
                    } else if let Action::Account { request: Some(request), .. } = action {
                        let refused = Answer::Refused(Refusal::Unavailable);
                        self.call(|it, cx, out| it.answer(cx, request, refused, out));
                    }
                }
            }
            7 => {
                let id = NotificationId::from_bytes([1; 16]);
                let bytes = Bytes::from_static(b"<message/>");
                self.conversation.deliver(&self.config, id, true, &bytes);
                let mut out = Vec::new();
                self.conversation.push_checkpoint(&self.config, &mut out);
                self.check(&out);
            }
            8 => {
                self.kept = self.conversation.suspend();
                self.conversation = Conversation::new(self.framing, Security::Encrypted);
                self.framer = Framer::new();
            }
            _ => self.call(|it, cx, out| it.close(cx, CloseReason::Drain, Some("a'<:1"), out)),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [options, bytes @ ..] = bytes else { return };
    let framing = if options & 1 == 0 { Framing::Stream } else { Framing::WebSocket };
    let security = if options & 2 == 0 { Security::Encrypted } else { Security::StartTls };
    let mut config = Config { scram: true, unacked_max: 8, early_max: 8, ..Config::new("x.example") };
    config.registration = options & 8 != 0;
    let mut conversation = Conversation::new(framing, security);
    conversation.set_account(options & 4 != 0);
    let mut peer =
        Peer { config, framing, conversation, framer: Framer::new(), asked: Vec::new(), kept: None };
    for line in bytes.split(|byte| *byte == b'\n') {
        match line {
            [how @ 0..=9, ..] => peer.answer(*how),
            text => peer.send(text),
        }
    }
});

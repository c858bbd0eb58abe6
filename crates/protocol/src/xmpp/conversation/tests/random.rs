//! Arbitrary input from both sides in any order: no panic, bounded memory, and well-formed XML as output.

use bytes::Bytes;
use noroshi_types::NotificationId;
use proptest::prelude::*;

use super::*;
use crate::native::Token;
use crate::xmpp::action::{Credentials, Resumed};
use crate::xmpp::error::Refusal;
use crate::xmpp::management::Suspended;

#[derive(Debug, Clone)]
enum Said {
    Element(String),
    Authenticated,
    Keys(bool),
    LoggedIn,
    Refused(CloseReason),
    Resumed(bool),
    Encrypted,
    Answer,
    Deliver(u8),
    Checkpoint,
    Ping,
    Suspend,
    Close(CloseReason),
}

fn element() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        HEADER,
        "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='x.example' version='1.0'/>",
        "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>",
        "</stream:stream>",
        " ",
        "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AGQxAHQ=</auth>",
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'/>",
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-1'>biwsbj1kMSxyPWFiYw==</auth>",
        "<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>AGQxAHQ=</response>",
        "<response xmlns='urn:xmpp:sasl:2'>Yz1iaXdz</response>",
        "<abort xmlns='urn:xmpp:sasl:2'/>",
        "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>AGQxAHQ=</initial-response>\
         <bind xmlns='urn:xmpp:bind:0'><tag>t</tag><enable xmlns='urn:xmpp:sm:3' resume='1'/></bind></authenticate>",
        "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>AGQxAHQ=</initial-response>\
         <resume xmlns='urn:xmpp:sm:3' previd='x' h='1'/></authenticate>",
        "<iq type='set' id='b' xmlns='jabber:client'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
        "<resume xmlns='urn:xmpp:sm:3' previd='x' h='0'/>",
        "<enable xmlns='urn:xmpp:sm:3' resume='true'/>",
        "<r xmlns='urn:xmpp:sm:3'/>",
        "<a xmlns='urn:xmpp:sm:3' h='0'/>",
        "<a xmlns='urn:xmpp:sm:3' h='2'/>",
        "<presence xmlns='jabber:client'/>",
        "<presence xmlns='jabber:client' type='unavailable'/>",
        "<inactive xmlns='urn:xmpp:csi:0'/>",
        "<iq xmlns='jabber:client' type='result' id='noroshi-1'/>",
        "<iq xmlns='jabber:client' type='get' id='g'><query xmlns='jabber:iq:roster'/></iq>",
        "<iq xmlns='jabber:client' type='get' id='g' to='other@x.example'><q xmlns='u'/></iq>",
        "<iq xmlns='jabber:client' type='set' id='g' to='pubsub.x.example'><pubsub \
         xmlns='http://jabber.org/protocol/pubsub'><subscribe node='n' jid='d1@x.example'/></pubsub></iq>",
        "<iq xmlns='jabber:client' type='get' id='g' to='pubsub.x.example'><pubsub \
         xmlns='http://jabber.org/protocol/pubsub'><items node='n'/></pubsub></iq>",
        "<iq xmlns='jabber:client' type='set' id='g' to='pubsub.x.example'><pubsub \
         xmlns='http://jabber.org/protocol/pubsub'><create node='n'/></pubsub></iq>",
        "<iq xmlns='jabber:client' type='set' id='g' to='pubsub.x.example'><pubsub \
         xmlns='http://jabber.org/protocol/pubsub#owner'><delete node='n'/></pubsub></iq>",
        "<iq xmlns='jabber:client' type='set' id='g'><enable xmlns='urn:xmpp:push:0' jid='b@x.example/r'/></iq>",
        "<message xmlns='jabber:client' to='pubsub.x.example'><x xmlns='jabber:x:data' type='submit'/></message>",
        "<message xmlns='jabber:client' to='other@x.example'><body>&lt;</body></message>",
        "<message xmlns='jabber:client'><received xmlns='urn:xmpp:receipts' id='01890a5d-ac96-774b-bcce-b302099a8057'/></message>",
        "<iq xmlns='jabber:client' type='set' id='g'><query xmlns='jabber:iq:register'><username>u</username>\
         <password>p</password></query></iq>",
    ]);
    prop_oneof![
        20 => fixed.prop_map(str::to_owned),
        1 => "[<>/a-c='\" &;!?\\[\\]]{0,20}",
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let reason = || prop::sample::select(CloseReason::ALL.to_vec());
    prop_oneof![
        20 => element().prop_map(Said::Element),
        4 => Just(Said::Authenticated),
        2 => any::<bool>().prop_map(Said::Keys),
        4 => Just(Said::LoggedIn),
        1 => reason().prop_map(Said::Refused),
        2 => any::<bool>().prop_map(Said::Resumed),
        1 => Just(Said::Encrypted),
        3 => Just(Said::Answer),
        4 => any::<u8>().prop_map(Said::Deliver),
        2 => Just(Said::Checkpoint),
        1 => Just(Said::Ping),
        1 => prop_oneof![3 => Just(Said::Suspend), 1 => reason().prop_map(Said::Close)],
    ]
}

fn play(peer: &mut Peer, framing: Framing, step: Said, kept: &mut Option<Box<Suspended>>) -> Vec<u8> {
    let bytes = Bytes::from_static(b"<message/>");
    match step {
        Said::Element(text) if framing == Framing::WebSocket => {
            peer.call(|it, cx, out| it.receive(cx, Input::Element(&text), out))
        }
        Said::Element(text) => peer.send_bytes(text.as_bytes()),
        Said::Authenticated => peer.call(|it, cx, out| it.authenticated(cx, device(), out)),
        Said::Keys(known) => {
            let password = Credentials::Password { device: device(), password: Token::new("t") };
            peer.call(|it, cx, out| it.keys(cx, known.then_some(password), out))
        }
        Said::LoggedIn => peer.call(|it, cx, out| it.logged_in(cx, out)),
        Said::Refused(reason) => peer.call(|it, cx, out| it.refused(cx, reason, out)),
        Said::Resumed(yes) => {
            let resumed = match kept.take().filter(|_| yes) {
                Some(suspended) => Resumed::Yes(suspended),
                None => Resumed::Gone { handled: Some(3) },
            };
            peer.call(|it, cx, out| it.resumed(cx, resumed, out))
        }
        Said::Encrypted => {
            peer.conversation.encrypted();
            Vec::new()
        }
        Said::Answer => {
            let actions = peer.take();
            let mut out = Vec::new();
            for action in actions {
                let request = match action {
                    Action::Subscribe { request, .. }
                    | Action::Items { request, .. }
                    | Action::Create { request, .. }
                    | Action::Node { request, .. }
                    | Action::Register { request, .. }
                    | Action::Account { request: Some(request), .. } => request,
                    _ => continue,
                };
                let answer = Answer::Refused(Refusal::Forbidden);
                out.extend(peer.call(|it, cx, out| it.answer(cx, request, answer, out)));
            }
            out
        }
        Said::Deliver(n) => {
            let id = NotificationId::from_bytes([n; 16]);
            peer.conversation.deliver(&peer.config, id, n % 2 == 0, &bytes);
            Vec::new()
        }
        Said::Checkpoint => {
            let mut out = Vec::new();
            peer.conversation.push_checkpoint(&peer.config, &mut out);
            out
        }
        Said::Ping => {
            let mut out = Vec::new();
            peer.conversation.push_ping(&peer.config, &mut out);
            out
        }
        Said::Suspend => {
            let suspended = peer.conversation.suspend();
            *kept = suspended.or(kept.take());
            // The client reconnects.
            peer.conversation = Conversation::new(framing, Security::Encrypted);
            Vec::new()
        }
        Said::Close(reason) => peer.call(|it, cx, out| it.close(cx, reason, None, out)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_input_in_any_order_keeps_the_invariants(
        steps in prop::collection::vec(said(), 0..80),
        websocket in any::<bool>(),
        account in any::<bool>(),
        tls in any::<bool>(),
    ) {
        let framing = if websocket { Framing::WebSocket } else { Framing::Stream };
        let mut peer = Peer::new(framing, if tls { Security::StartTls } else { Security::Encrypted });
        peer.conversation.set_account(account);
        peer.config.registration = account;
        (peer.config.unacked_max, peer.config.unacked_bytes_max) = (10, 100);
        let mut kept = None;
        for step in steps {
            let out = play(&mut peer, framing, step, &mut kept);
            let elements = if websocket { frames(&out) } else { elements(&out) };
            for element in elements {
                let scope = Scope::default();
                let inherited = (!websocket).then_some(&scope);
                prop_assert!(parse_element(&element, inherited, &Default::default()).is_ok(), "{}", element);
            }
            if let Some(management) = &peer.conversation.management {
                // One entry per stored byte or pending notification, and one for other stanzas in between.
                prop_assert!(management.held_bytes() <= 100 + 2 * (10 + 100) * 64);
            }
            if let Some(opening) = &peer.conversation.opening {
                prop_assert!(opening.early.len() <= peer.config.early_max);
            }
            if peer.conversation.is_closed() {
                prop_assert!(peer.conversation.opening.is_none() && peer.conversation.management.is_none());
            }
        }
    }
}

/// The elements that a client's framer reads from a stream.
fn elements(bytes: &[u8]) -> Vec<String> {
    let mut heard = Vec::new();
    let result = Framer::new().feed(bytes, &Default::default(), &mut |input| {
        if let Input::Element(text) = input {
            heard.push(text.to_owned());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(result, Ok(bytes.len()));
    heard
}

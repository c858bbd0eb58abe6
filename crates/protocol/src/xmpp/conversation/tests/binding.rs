//! Resources and stream management: RFC 6120 §7, XEP-0198.

use bytes::Bytes;
use noroshi_types::{NotificationId, Presence};

use super::authentication::authenticate;
use super::*;
use crate::xmpp::action::{Delivery, Resumed};
use crate::xmpp::management::Suspended;

fn id(n: u8) -> NotificationId {
    NotificationId::from_bytes([n; 16])
}

fn deliver(peer: &mut Peer, n: u8) -> Delivery {
    let bytes = Bytes::from(format!("<message id='{n}'/>"));
    peer.conversation.deliver(&peer.config, id(n), true, &bytes)
}

fn checkpoint(peer: &mut Peer) -> String {
    let mut out = Vec::new();
    peer.conversation.push_checkpoint(&peer.config, &mut out);
    String::from_utf8(out).unwrap()
}

fn unbound() -> Peer {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.prove();
    peer.say(HEADER);
    peer
}

#[test]
fn resource_is_bound_after_the_log_in() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.prove();
    let said = peer.say(HEADER);
    assert_eq!(
        said.strip_prefix(OUR_HEADER).map(|it| it.replace(&capabilities(&said), "")).as_deref(),
        Some(
            "<stream:features><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>\
             <session xmlns='urn:ietf:params:xml:ns:xmpp-session'><optional/></session>\
             <sm xmlns='urn:xmpp:sm:3'/><csi xmlns='urn:xmpp:csi:0'/><ver xmlns='urn:xmpp:features:rosterver'/></stream:features>"
        )
    );
    assert_eq!(peer.say("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"), "");
    let [Action::LogIn { device: it, .. }] = &peer.take()[..] else { panic!("no log-in") };
    assert_eq!(it, &device());
    let said = peer.tell(|conversation, cx, out| conversation.logged_in(cx, out));
    assert_eq!(
        said,
        "<iq type='result' id='b' to='d1@x.example/0707070707070707'><bind \
         xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>d1@x.example/0707070707070707</jid></bind></iq>"
    );
    let said = peer.say("<iq type='set' id='c'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
    assert!(said.contains("<not-allowed "), "{said}");
    let said = peer.say("<iq type='set' id='s'><session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></iq>");
    assert_eq!(said, "<iq type='result' id='s' to='d1@x.example/0707070707070707'></iq>");
}

#[test]
fn stanzas_before_binding_are_rejected() {
    for text in [
        "<presence/>",
        "<message to='a@x.example'/>",
        "<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>",
        "<iq type='get' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'/>",
    ] {
        let mut peer = unbound();
        let said = peer.say(text);
        assert!(said.contains("<stream:error><not-authorized "), "{text}: {said}");
        peer.assert_closed(CloseReason::BadMessage);
    }
}

#[test]
fn invalid_resource_is_rejected() {
    let mut peer = unbound();
    let long = "x".repeat(1_024);
    for text in ["&#9;", &long] {
        let said = peer.say(&format!(
            "<iq type='set' id='b'><bind xmlns='{}'><resource>{text}</resource></bind></iq>",
            ns::BIND
        ));
        assert!(said.contains("<error type='modify'><bad-request "), "{said}");
    }
    assert!(peer.take().is_empty());
}

#[test]
fn rejected_bind_is_reported() {
    let bind = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>";
    let mut peer = unbound();
    peer.say(bind);
    let said = peer.tell(|conversation, cx, out| conversation.refused(cx, CloseReason::Overloaded, out));
    assert!(said.contains("id='b'") && said.contains("<resource-constraint "), "{said}");
    peer.say(bind);
    let said = peer.tell(|conversation, cx, out| conversation.refused(cx, CloseReason::Replaced, out));
    assert!(said.contains("<stream:error><conflict "), "{said}");
    peer.assert_closed(CloseReason::Replaced);
}

#[test]
fn early_input_is_processed_in_order() {
    // Everything at once, as XEP-0305 does.
    let mut peer = Peer::secure();
    let said = peer.say(&format!(
        "{HEADER}<auth xmlns='{}' mechanism='PLAIN'>{}</auth>{HEADER}\
         <iq type='set' id='b'><bind xmlns='{}'><resource>r</resource></bind></iq>\
         <iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq><presence/>",
        ns::SASL,
        base64("\0d1\0t"),
        ns::BIND
    ));
    assert!(said.ends_with("</stream:features>"), "{said}");
    peer.take();
    let said = peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
    assert!(said.starts_with("<success ") && said.contains("<bind "), "{said}");
    assert!(matches!(peer.take()[..], [Action::LogIn { .. }]));
    let said = peer.tell(|conversation, cx, out| conversation.logged_in(cx, out));
    let order = ["id='b'", "id='p'", "<presence "].map(|what| said.find(what).expect(what));
    assert!(order.is_sorted(), "{said}");
    assert!(matches!(peer.take()[..], [Action::Presence(Presence::Active)]));
    assert!(peer.conversation.opening.is_none());
}

#[test]
fn early_input_is_bounded() {
    for text in ["<presence/>".repeat(65), format!("<a>{}</a>", "x".repeat(9_000)).repeat(2)] {
        let mut peer = unbound();
        peer.say("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
        let said = peer.say(&text);
        assert!(said.contains("<policy-violation "), "{said}");
        peer.assert_closed(CloseReason::RateLimited);
    }
}

#[test]
fn stanzas_are_counted_in_both_directions() {
    let mut peer = Peer::open();
    assert_eq!(peer.say("<r xmlns='urn:xmpp:sm:3'/>"), failed("unexpected-request"));
    assert_eq!(peer.say("<a xmlns='urn:xmpp:sm:3' h='0'/>"), failed("unexpected-request"));
    assert_eq!(peer.say("<enable xmlns='urn:xmpp:sm:3'/>"), "<enabled xmlns='urn:xmpp:sm:3'/>");
    assert_eq!(peer.say("<enable xmlns='urn:xmpp:sm:3'/>"), failed("unexpected-request"));
    peer.say("<presence/><iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>");
    assert_eq!(peer.say("<r xmlns='urn:xmpp:sm:3'/>"), "<a xmlns='urn:xmpp:sm:3' h='2'/>");
    peer.take();
    // Its presence and the answer to its ping are 1 and 2.
    assert_eq!([deliver(&mut peer, 1), deliver(&mut peer, 2)], [Delivery::Write; 2]);
    assert_eq!(checkpoint(&mut peer), "<r xmlns='urn:xmpp:sm:3'/>");
    assert_eq!(checkpoint(&mut peer), "", "one is under way");
    peer.say("<a xmlns='urn:xmpp:sm:3' h='2'/>");
    assert!(peer.take().is_empty());
    peer.say("<a xmlns='urn:xmpp:sm:3' h='4'/>");
    assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if *ids == [id(1), id(2)]));
    let said = peer.say("<a xmlns='urn:xmpp:sm:3' h='5'/>");
    assert_eq!(
        said,
        "<stream:error><undefined-condition xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>\
         <text xmlns='urn:ietf:params:xml:ns:xmpp-streams' xml:lang='en'>more stanzas were acknowledged than sent</text>\
         <handled-count-too-high xmlns='urn:xmpp:sm:3' h='5' send-count='4'/></stream:error></stream:stream>"
    );
    peer.assert_closed(CloseReason::BadMessage);
}

fn failed(condition: &str) -> String {
    format!(
        "<failed xmlns='urn:xmpp:sm:3'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></failed>"
    )
}

#[test]
fn ping_acknowledges_without_stream_management() {
    let mut peer = Peer::open();
    assert_eq!(checkpoint(&mut peer), "");
    deliver(&mut peer, 1);
    assert_eq!(
        checkpoint(&mut peer),
        "<iq from='x.example' to='d1@x.example/r' type='get' id='noroshi-1'><ping xmlns='urn:xmpp:ping'/></iq>"
    );
    deliver(&mut peer, 2);
    assert_eq!(checkpoint(&mut peer), "");
    peer.say("<iq type='result' id='noroshi-2' to='x.example'/>");
    assert!(peer.take().is_empty(), "nobody asked that");
    // A client without ping support returns an error, which also acknowledges that it read everything.
    let said = peer.say("<iq type='error' id='noroshi-1'><error type='cancel'/></iq>");
    assert!(said.contains("id='noroshi-2'"), "{said}");
    assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if *ids == [id(1)]));
    assert_eq!(checkpoint(&mut peer), "", "it was asked for the second at once");
    peer.say("<iq type='result' id='noroshi-2' to='x.example'/>");
    assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if *ids == [id(2)]));
    assert!(peer.conversation.management.is_none(), "nothing is kept for nothing");
}

#[test]
fn silent_client_is_pinged() {
    let ping = |peer: &mut Peer| {
        let mut out = Vec::new();
        peer.conversation.push_ping(&peer.config, &mut out);
        String::from_utf8(out).unwrap()
    };
    let mut peer = Peer::open();
    assert!(ping(&mut peer).contains("<ping "));
    peer.say("<iq type='result' id='noroshi-0'/>");
    assert!(peer.conversation.management.is_none());
    peer.say("<enable xmlns='urn:xmpp:sm:3'/>");
    assert_eq!(ping(&mut peer), "<r xmlns='urn:xmpp:sm:3'/>");
    assert_eq!(ping(&mut Peer::secure()), "", "before a session the caller's own time-out counts");
}

#[test]
fn client_that_acknowledges_nothing_gets_no_more_notifications() {
    for enable in ["", "<enable xmlns='urn:xmpp:sm:3' resume='true'/>"] {
        let mut peer = Peer::open();
        peer.config.unacked_max = 3;
        peer.say(enable);
        for n in 1..=3 {
            assert_eq!(deliver(&mut peer, n), Delivery::Write);
        }
        assert_eq!(deliver(&mut peer, 4), Delivery::Full);
        peer.say(&PING.repeat(4));
        assert!(peer.conversation.is_open(), "it may not have heard a request yet");
        peer.now_ms = peer.config.unacked_timeout_ms;
        let said = peer.say(PING);
        if enable.is_empty() {
            assert!(peer.conversation.is_open());
        } else {
            assert!(said.contains("<resource-constraint "), "{said}");
            peer.assert_closed(CloseReason::SlowConsumer);
        }
    }
}

const PING: &str = "<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>";
const REQUEST: &str = "<r xmlns='urn:xmpp:sm:3'/>";

#[test]
fn responses_count_towards_acknowledgement_requests() {
    let mut peer = Peer::open();
    peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    // A client that sends many requests and answers each ping after reading. It takes all day.
    let mut sent = 0;
    for _ in 0..1_000 {
        let said = peer.say(&PING.repeat(10));
        sent += 10;
        peer.now_ms += 1_000;
        if said.contains(REQUEST) {
            let again = peer.say(&format!("<a xmlns='urn:xmpp:sm:3' h='{sent}'/>"));
            assert_eq!(again, "");
        }
    }
    assert!(peer.conversation.is_open() && peer.conversation.resume_id().is_some());
    assert_eq!(peer.granted, 1_000 / 4, "one for every 32 of them, and for each the answer is free");
}

#[test]
fn burst_does_not_end_a_responsive_stream() {
    let mut peer = Peer::open();
    peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    let stanza = bytes::Bytes::from_static(b"<message from='o@x.example'/>");
    for n in 0..10_000 {
        let said = peer.tell(|conversation, cx, out| conversation.deliver_relayed(cx, &stanza, out));
        assert_eq!(said.contains(REQUEST), n == 31, "one request at a time: {said}");
    }
    assert!(peer.conversation.resume_id().is_none(), "what was not kept could not be sent again");
    assert_eq!(deliver(&mut peer, 1), Delivery::Full);
    assert_eq!(peer.say("<a xmlns='urn:xmpp:sm:3' h='32'/>"), REQUEST);
    peer.say("<a xmlns='urn:xmpp:sm:3' h='10000'/>");
    assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if ids.is_empty()), "there is room now");
    assert_eq!(deliver(&mut peer, 1), Delivery::Write);
    assert!(peer.conversation.resume_id().is_some());
}

#[test]
fn few_stanzas_are_acknowledged_by_timer() {
    let mut peer = Peer::open();
    let remind = |peer: &mut Peer| peer.tell(|conversation, cx, out| conversation.remind(cx, out));
    peer.say(PING);
    assert!(!peer.conversation.wants_checkpoint(), "it does not count");
    peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    assert!(!peer.conversation.wants_checkpoint());
    peer.say(PING);
    assert!(peer.conversation.wants_checkpoint());
    assert_eq!(remind(&mut peer), REQUEST);
    assert!(!peer.conversation.wants_checkpoint());
    assert_eq!(remind(&mut peer), "", "one is under way");
    peer.say("<a xmlns='urn:xmpp:sm:3' h='1'/>");
    assert!(!peer.conversation.wants_checkpoint());
    // Also resent stanzas on another connection.
    peer.say(PING);
    let suspended = peer.conversation.suspend().expect("it can be resumed");
    let mut peer = unbound();
    peer.say("<resume xmlns='urn:xmpp:sm:3' previd='07070707070707070707070707070707' h='1'/>");
    peer.tell(|conversation, cx, out| conversation.resumed(cx, Resumed::Yes(suspended), out));
    assert!(peer.conversation.is_open() && peer.conversation.wants_checkpoint());
}

/// A session with stream management whose connection broke after messages 1, 2 and 3.
fn broken() -> Box<Suspended> {
    let mut peer = Peer::open();
    peer.config.resume_prefix = "n1-".into();
    peer.config.resume_location = Some("n1.x.example:5222".into());
    assert_eq!(
        peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true' max='9'/>"),
        "<enabled xmlns='urn:xmpp:sm:3' id='n1-07070707070707070707070707070707' resume='true' max='300' \
         location='n1.x.example:5222'/>"
    );
    peer.say("<presence><show>away</show></presence>");
    peer.config.unacked_bytes_max = 180;
    for n in 1..=3 {
        assert_eq!(deliver(&mut peer, n), Delivery::Write);
    }
    let suspended = peer.conversation.suspend().expect("it can be resumed");
    assert!(peer.conversation.is_closed() && peer.conversation.suspend().is_none());
    assert_eq!((suspended.id(), suspended.handled()), ("n1-07070707070707070707070707070707", 1));
    suspended
}

const RESUME: &str = "<resume xmlns='urn:xmpp:sm:3' previd='n1-07070707070707070707070707070707' h='2'/>";

#[test]
fn session_is_resumed() {
    for sasl2 in [false, true] {
        let mut peer = if sasl2 { Peer::secure() } else { unbound() };
        if sasl2 {
            peer.say(HEADER);
            peer.say(&authenticate(&format!("<bind xmlns='urn:xmpp:bind:0'/>{RESUME}")));
            peer.take();
            peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
        } else {
            peer.say(RESUME);
        }
        let [Action::Resume { id: name, .. }] = &peer.take()[..] else { panic!("nothing to resume") };
        assert_eq!(&**name, "n1-07070707070707070707070707070707");
        let said = peer.tell(|conversation, cx, out| conversation.resumed(cx, Resumed::Yes(broken()), out));
        let resumed = "<resumed xmlns='urn:xmpp:sm:3' previd='n1-07070707070707070707070707070707' h='1'/>";
        // Its presence and 1 are acknowledged; 2 is cached, 3 exceeded the limit.
        let again = "<message id='2'/><message id='3'/>";
        let expected = match sasl2 {
            false => format!("{resumed}{again}"),
            true => format!(
                "<success xmlns='urn:xmpp:sasl:2'><authorization-identifier>d1@x.example/r</authorization-identifier>\
                 {resumed}</success>{again}"
            ),
        };
        assert_eq!(said, expected);
        let actions = peer.take();
        let [Action::Acknowledge(ids), Action::Presence(Presence::Idle)] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(*ids, [id(1)]);
        assert_eq!(peer.conversation.address(), Some("d1@x.example/r"));
        assert_eq!(checkpoint(&mut peer), "<r xmlns='urn:xmpp:sm:3'/>");
        peer.say("<a xmlns='urn:xmpp:sm:3' h='4'/>");
        assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if *ids == [id(2), id(3)]));
    }
}

#[test]
fn uncached_notifications_are_read_again() {
    let mut peer = Peer::open();
    peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    peer.config.unacked_bytes_max = 20;
    deliver(&mut peer, 1);
    deliver(&mut peer, 2);
    let suspended = peer.conversation.suspend().unwrap();
    let mut peer = unbound();
    peer.say("<resume xmlns='urn:xmpp:sm:3' previd='x' h='0'/>");
    peer.take();
    let said = peer.tell(|conversation, cx, out| conversation.resumed(cx, Resumed::Yes(suspended), out));
    assert!(said.ends_with("<message id='1'/>"), "{said}");
    assert!(matches!(&peer.take()[..], [Action::Redeliver(ids), Action::Presence(_)] if *ids == [id(2)]));
}

#[test]
fn missing_session_is_reported() {
    let other = || {
        let mut suspended = broken();
        suspended.device = DeviceId::parse("d2").unwrap();
        suspended
    };
    let framed = || Box::new(Suspended { framing: Framing::WebSocket, ..*broken() });
    for gone in [Resumed::Gone { handled: Some(7) }, Resumed::Yes(other()), Resumed::Yes(framed())] {
        let handled = if matches!(gone, Resumed::Gone { .. }) { " h='7'" } else { "" };
        let mut peer = unbound();
        peer.say(RESUME);
        peer.take();
        let said = peer.tell(|conversation, cx, out| conversation.resumed(cx, gone, out));
        let expected = failed("item-not-found").replace("sm:3'>", &format!("sm:3'{handled}>"));
        assert_eq!(said, expected);
        peer.say("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
        assert!(matches!(peer.take()[..], [Action::LogIn { .. }]), "a new one begins");
    }
}

#[test]
fn sasl2_binds_if_resumption_fails() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.say(&authenticate(&format!("{RESUME}<bind xmlns='urn:xmpp:bind:0'/>")));
    peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
    peer.take();
    let gone = Resumed::Gone { handled: None };
    assert_eq!(peer.tell(|conversation, cx, out| conversation.resumed(cx, gone, out)), "");
    assert!(matches!(peer.take()[..], [Action::LogIn { .. }]));
    let said = peer.tell(|conversation, cx, out| conversation.logged_in(cx, out));
    let (failed, bound) = (said.find("<failed xmlns='urn:xmpp:sm:3'>"), said.find("<bound "));
    assert!(failed.is_some() && failed < bound, "{said}");
}

#[test]
fn invalid_resumption_ends_the_stream() {
    let mut peer = unbound();
    peer.say(&RESUME.replace("h='2'", "h='5'"));
    peer.take();
    let said = peer.tell(|conversation, cx, out| conversation.resumed(cx, Resumed::Yes(broken()), out));
    assert!(said.contains("<handled-count-too-high xmlns='urn:xmpp:sm:3' h='5' send-count='4'/>"), "{said}");
    let mut peer = unbound();
    assert_eq!(peer.say("<resume xmlns='urn:xmpp:sm:3' previd='x'/>"), failed("bad-request"));
    assert_eq!(peer.say("<enable xmlns='urn:xmpp:sm:3'/>"), failed("unexpected-request"));
    let mut peer = Peer::secure();
    peer.say(HEADER);
    assert_eq!(peer.say(RESUME), failed("unexpected-request"), "only after the log-in (XEP-0198 §5)");
}

#[test]
fn only_broken_connections_are_resumed() {
    let mut peer = Peer::open();
    assert!(peer.conversation.suspend().is_none(), "nobody asked for it");
    let mut peer = Peer::open();
    peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true'/></stream:stream>");
    assert!(peer.conversation.suspend().is_none(), "it said good-bye");
    let mut peer = Peer::open();
    peer.config.resume_max_s = 0;
    assert_eq!(peer.say("<enable xmlns='urn:xmpp:sm:3' resume='true'/>"), "<enabled xmlns='urn:xmpp:sm:3'/>");
    assert!(peer.conversation.suspend().is_none());
}

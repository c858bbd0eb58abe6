//! Start, encryption and end of streams: RFC 6120 §4, §5, RFC 7395.

use super::*;

#[test]
fn stream_starts_with_features() {
    let mut peer = Peer::secure();
    let said = peer.say(HEADER);
    let features = said.strip_prefix(OUR_HEADER).unwrap();
    assert_eq!(
        features,
        "<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>\
         <mechanism>SCRAM-SHA-256</mechanism><mechanism>SCRAM-SHA-1</mechanism><mechanism>PLAIN</mechanism>\
         </mechanisms><authentication xmlns='urn:xmpp:sasl:2'>\
         <mechanism>SCRAM-SHA-256</mechanism><mechanism>SCRAM-SHA-1</mechanism><mechanism>PLAIN</mechanism>\
         <inline><bind xmlns='urn:xmpp:bind:0'><inline><feature var='urn:xmpp:sm:3'/>\
         <feature var='urn:xmpp:csi:0'/></inline></bind><sm xmlns='urn:xmpp:sm:3'/></inline></authentication>\
         </stream:features>"
    );
    assert_eq!(peer.say("</stream:stream>"), "</stream:stream>");
    peer.assert_closed(CloseReason::PeerClosed);
    assert_eq!(peer.say("<iq/>"), "", "nothing is heard after the end");
}

#[test]
fn credentials_require_tls() {
    let mut peer = Peer::new(Framing::Stream, Security::StartTls);
    let said = peer.say(HEADER);
    assert!(said.ends_with(
        "<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>"
    ), "{said}");
    let said = peer.say("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AGEAYg==</auth>");
    assert!(said.contains("<encryption-required/>"), "{said}");
    assert_eq!(
        peer.say("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
        "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
    );
    assert!(matches!(peer.take()[..], [Action::StartTls]));
    peer.conversation.encrypted();
    let said = peer.say(HEADER);
    assert!(said.starts_with(OUR_HEADER) && said.contains("PLAIN") && !said.contains("starttls"), "{said}");
}

#[test]
fn plaintext_after_starttls_is_ignored() {
    let mut peer = Peer::new(Framing::Stream, Security::StartTls);
    peer.say(HEADER);
    let said = peer.say("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/><iq/>");
    assert!(said.contains("<policy-violation"), "{said}");
    peer.assert_closed(CloseReason::BadMessage);
}

#[test]
fn unoffered_starttls_fails() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    assert_eq!(
        peer.say("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
        "<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/></stream:stream>"
    );
    peer.assert_closed(CloseReason::BadMessage);
}

#[test]
fn every_invalid_header_has_its_condition() {
    let check = |text: &str, condition: &str, reason: CloseReason| {
        let mut peer = Peer::secure();
        let said = peer.say(text);
        let error = format!("<stream:error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>");
        assert!(said.starts_with(OUR_HEADER) && said.contains(&error), "{text}: {said}");
        assert!(said.ends_with("</stream:error></stream:stream>"), "{said}");
        peer.assert_closed(reason);
    };
    let bad = CloseReason::BadMessage;
    check(&HEADER.replace("x.example", "y.example"), "host-unknown", bad);
    check(&HEADER.replace("x.example", "d1@x.example"), "host-unknown", bad);
    check(&HEADER.replace("to='x.example'", ""), "host-unknown", bad);
    check(&HEADER.replace("version='1.0' xmlns", "xmlns"), "unsupported-version", bad);
    check(&HEADER.replace("version='1.0' xmlns", "version='0.9' xmlns"), "unsupported-version", bad);
    check(&HEADER.replace("jabber:client", "jabber:server"), "invalid-namespace", bad);
    check(&HEADER.replace(" xmlns='jabber:client'", ""), "invalid-namespace", bad);
    check(&HEADER.replace("etherx", "other"), "not-well-formed", bad);
    check("<iq/>", "bad-format", bad);
    check("<!DOCTYPE x>", "restricted-xml", bad);
    check("\u{FEFF}", "bad-format", bad);
    check("GET / HTTP/1.1\r\n", "bad-format", bad);
    check(&format!("<stream:stream {}", "x".repeat(70_000)), "policy-violation", CloseReason::TooBig);
    check(&format!("{HEADER}{HEADER}"), "bad-format", bad);
    check(&format!("{HEADER}<message to='a@x.example'/>"), "not-authorized", CloseReason::Unauthorized);
    check(&format!("{HEADER}<hello xmlns='urn:x'/>"), "unsupported-stanza-type", bad);
    check(&format!("{HEADER}<a>&b;</a>"), "restricted-xml", bad);
    check(&format!("{HEADER}<a></b>"), "not-well-formed", bad);
    check(&format!("{HEADER}x"), "bad-format", bad);
}

#[test]
fn newer_versions_are_answered_with_ours() {
    for version in ["1.0", "1.1", "2.0", "10.0"] {
        let mut peer = Peer::secure();
        let said = peer.say(&HEADER.replace("version='1.0' xmlns", &format!("version='{version}' xmlns")));
        assert!(said.starts_with(OUR_HEADER) && said.contains("features"), "{version}: {said}");
    }
}

#[test]
fn response_header_is_addressed_to_the_client() {
    let mut peer = Peer::secure();
    let said = peer.say(&HEADER.replace("to='x.example'", "to='X.example.' from='d1@x.example'"));
    assert!(said.contains(" from='x.example' to='d1@x.example' "), "{said}");
}

#[test]
fn websocket_carries_one_element_per_frame() {
    let mut peer = Peer::new(Framing::WebSocket, Security::Encrypted);
    let open = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='x.example' version='1.0'/>";
    let said = peer.say_frame(open);
    assert_eq!(
        said[0],
        "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' id='07070707070707070707070707070707' \
         from='x.example' version='1.0' xml:lang='en'/>"
    );
    let features =
        "<stream:features xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'><mechanisms";
    assert!(said[1].starts_with(features), "{}", said[1]);
    peer.say_frame(&format!("<auth xmlns='{}' mechanism='PLAIN'>{}</auth>", ns::SASL, base64("\0d1\0t")));
    peer.take();
    let said = peer.call(|conversation, cx, out| conversation.authenticated(cx, device(), out));
    assert_eq!(frames(&said), ["<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'></success>"]);
    assert_eq!(peer.say_frame(open).len(), 2);
    let bind = format!("<iq xmlns='jabber:client' type='set' id='b'><bind xmlns='{}'/></iq>", ns::BIND);
    peer.say_frame(&bind);
    peer.take();
    peer.call(|conversation, cx, out| conversation.logged_in(cx, out));
    assert_eq!(peer.conversation.address(), Some("d1@x.example/0707070707070707"));
    let said =
        peer.say_frame("<iq xmlns='jabber:client' type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>");
    assert_eq!(
        said,
        ["<iq xmlns='jabber:client' type='result' id='p' to='d1@x.example/0707070707070707'></iq>"]
    );
    let said = peer.say_frame("<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>");
    assert!(said[0].contains("unsupported-stanza-type"), "a frame inherits nothing: {said:?}");
    assert!(
        said[0].starts_with("<stream:error xmlns:stream='http://etherx.jabber.org/streams'>"),
        "{said:?}"
    );
    assert_eq!(said[1], "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>");
    peer.assert_closed(CloseReason::BadMessage);
}

#[test]
fn websocket_ends_with_close() {
    let mut peer = Peer::new(Framing::WebSocket, Security::Encrypted);
    peer.say_frame("<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='x.example' version='1.0'/>");
    let close = "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>";
    assert_eq!(peer.say_frame(close), [close]);
    peer.assert_closed(CloseReason::PeerClosed);
    for bad in ["<stream:stream/>", "<?xml version='1.0'?><a/>", "<a", "<a/><b/>", ""] {
        let mut peer = Peer::new(Framing::WebSocket, Security::Encrypted);
        let said = peer.say_frame(bad);
        assert!(said[0].starts_with("<open ") && said[1].starts_with("<stream:error "), "{said:?}");
        assert_eq!(said[2], close);
        peer.assert_closed(CloseReason::BadMessage);
    }
}

#[test]
fn every_close_reason_has_its_stream_error() {
    for reason in CloseReason::ALL {
        let mut peer = Peer::open();
        let said = peer.tell(|conversation, cx, out| conversation.close(cx, reason, None, out));
        match crate::xmpp::close::stream_error(reason) {
            Some(error) => assert!(
                said.starts_with(&format!("<stream:error><{} xmlns=", error.as_str()))
                    && said.contains("</text>"),
                "{said}"
            ),
            None => assert_eq!(said, "</stream:stream>"),
        }
        peer.assert_closed(reason);
        let said = peer.tell(|conversation, cx, out| conversation.close(cx, reason, None, out));
        assert_eq!(said, "");
    }
}

#[test]
fn draining_server_redirects() {
    let drain = |peer: &mut Peer, to: &str| {
        let close = |it: &mut Conversation, cx: &Context<'_>, out: &mut Output| {
            it.close(cx, CloseReason::Drain, Some(to), out);
        };
        String::from_utf8_lossy(&peer.call(close)).into_owned()
    };
    let mut peer = Peer::open();
    assert_eq!(
        drain(&mut peer, "[2001:db8::1]:5222"),
        "<stream:error><see-other-host xmlns='urn:ietf:params:xml:ns:xmpp-streams'>[2001:db8::1]:5222\
         </see-other-host></stream:error></stream:stream>"
    );
    peer.assert_closed(CloseReason::Drain);
    let mut peer = Peer::secure();
    assert!(drain(&mut peer, "a:1").starts_with(OUR_HEADER), "an error follows a header");
    let mut peer = Peer::new(Framing::WebSocket, Security::Encrypted);
    let said = drain(&mut peer, "wss://y.example/xmpp");
    assert!(
        said.ends_with(
            "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing' see-other-uri='wss://y.example/xmpp'/>"
        ),
        "{said}"
    );
}

//! Stanzas on an open stream: RFC 6120 §8, RFC 6121, XEP-0030, XEP-0060 and others.

use std::sync::Arc;

use noroshi_types::{NotificationId, Presence, Topic, When};

use super::*;
use crate::xmpp::accounts::Command;
use crate::xmpp::archive::{ArchivePage, ArchivePlace, Archived};
use crate::xmpp::encode::tests::{ID, notification};
use crate::xmpp::error::Refusal;

mod accounts;
mod topics;

fn iq(kind: &str, to: &str, inside: &str) -> String {
    let to = if to.is_empty() { String::new() } else { format!(" to='{to}'") };
    format!("<iq type='{kind}' id='i'{to}>{inside}</iq>")
}

/// The response: `result …`, or the error condition and its detail.
fn answer(said: &str) -> String {
    if let Some((_, inside)) = said.split_once("type='result'") {
        let (attributes, inside) = inside.split_once('>').unwrap();
        assert!(attributes.contains("id='i'") && attributes.contains("to='d1@x.example/r'"), "{said}");
        return format!("result {}", inside.strip_suffix("</iq>").unwrap());
    }
    let error = between(said, "<error type=", "</error>");
    let names = error.split('<').skip(1).map(|it| it.split([' ', '/']).next().unwrap());
    // Every error has a text (RFC 6120 §8.3.2).
    assert_eq!(names.clone().filter(|name| *name == "text").count(), 1, "{said}");
    names.filter(|name| !["", "text"].contains(name)).collect::<Vec<_>>().join(" ")
}

/// The only action, if it is a command of an account.
fn asked(actions: &[Action]) -> Option<&Command> {
    let [Action::Account { command, .. }] = actions else { return None };
    Some(command)
}

fn pubsub(peer: &mut Peer, kind: &str, inside: &str) -> String {
    peer.say(&iq(kind, "pubsub.x.example", &format!("<pubsub xmlns='{}'>{inside}</pubsub>", ns::PUBSUB)))
}

/// A session bound as an account.
fn account() -> Peer {
    let mut peer = Peer::secure();
    peer.conversation.set_account(true);
    peer.log_in("r");
    peer
}

#[test]
fn every_request_gets_a_response() {
    let check = |kind: &str, to: &str, inside: &str, expected: &str| {
        let mut peer = Peer::open();
        let said = peer.say(&iq(kind, to, inside));
        assert_eq!(answer(&said), expected, "{kind} {to} {inside}");
        assert!(peer.take().is_empty());
        if !to.is_empty() {
            assert!(said.contains(&format!(" from='{to}' ")), "{said}");
        }
    };
    let ping = "<ping xmlns='urn:xmpp:ping'/>";
    for to in ["", "d1@x.example", "d1@x.example/r", "x.example", "pubsub.x.example"] {
        check("get", to, ping, "result ");
    }
    check("get", "", "<query xmlns='jabber:iq:roster'/>", "result <query xmlns='jabber:iq:roster'/>");
    check(
        "get",
        "d1@x.example",
        "<query xmlns='jabber:iq:roster' ver=''/>",
        "result <query xmlns='jabber:iq:roster' ver='0'/>",
    );
    check("get", "", "<query xmlns='jabber:iq:roster' ver='0'/>", "result ");
    check("set", "", "<query xmlns='jabber:iq:roster'><item jid='a@b'/></query>", "not-allowed");
    check("set", "x.example", "<session xmlns='urn:ietf:params:xml:ns:xmpp-session'/>", "result ");
    check("set", "", "<enable xmlns='urn:xmpp:carbons:2'/>", "service-unavailable");
    check("get", "", "<vCard xmlns='vcard-temp'/>", "service-unavailable");
    // XEP-0092
    let version = "<query xmlns='jabber:iq:version'/>";
    let version_query = format!("<name>Noroshi</name><version>{}</version>", env!("CARGO_PKG_VERSION"));
    check(
        "get",
        "x.example",
        version,
        &format!("result <query xmlns='jabber:iq:version'>{version_query}</query>"),
    );
    check("set", "x.example", version, "service-unavailable");
    check("get", "pubsub.x.example", version, "service-unavailable");
    check("get", "x.example", "<query xmlns='jabber:iq:register'/>", "service-unavailable");
    check("get", "pubsub.x.example", "<x xmlns='u'/>", "service-unavailable");
    check("get", "other@x.example", ping, "service-unavailable");
    check("get", "a@y.example", ping, "remote-server-not-found");
    check("get", "y.example", ping, "remote-server-not-found");
    check("get", "", "", "bad-request");
    check("get", "", &ping.repeat(2), "bad-request");
    check("fetch", "", ping, "bad-request");
}

#[test]
fn invalid_stanzas_are_rejected() {
    let mut peer = Peer::open();
    let said = peer.say("<iq type='get'><ping xmlns='urn:xmpp:ping'/></iq>");
    assert!(said.contains("<bad-request "), "an id is required: {said}");
    let said = peer.say(&iq("get", "a@b@c", "<ping xmlns='urn:xmpp:ping'/>"));
    assert!(said.contains("<jid-malformed ") && !said.contains("a@b@c"), "{said}");
    assert_eq!(peer.say("<message type='error' to='@'/><iq type='result' id='x'/>"), "");
    assert!(peer.conversation.is_open());
    for from in ["d1@x.example", "D1@X.example/r"] {
        assert_eq!(peer.say(&format!("<presence from='{from}' type='unavailable'/>")), "");
    }
    for from in ["d2@x.example", "d1@x.example/q", "x.example", "@"] {
        let mut peer = Peer::open();
        let said = peer.say(&format!("<presence from='{from}'/>"));
        assert!(said.contains("<invalid-from "), "{from}: {said}");
        peer.assert_closed(CloseReason::BadMessage);
    }
    for text in ["<hello/>", "<iq xmlns='jabber:server' type='get' id='x'/>", "<stream:features/>"] {
        let mut peer = Peer::open();
        assert!(peer.say(text).contains("<unsupported-stanza-type "), "{text}");
    }
}

#[test]
fn presence_controls_delivery() {
    let mut peer = Peer::open();
    let presence = |peer: &mut Peer, text: &str| {
        let said = peer.say(text);
        let actions = peer.take();
        let presences = actions.iter().map(|action| match action {
            Action::Presence(presence) => *presence,
            other => panic!("{other:?}"),
        });
        (said, presences.collect::<Vec<_>>())
    };
    let (said, presences) =
        presence(&mut peer, "<presence id='a'><status>&lt;hi</status><x xmlns='u'/></presence>");
    assert_eq!(
        said,
        "<presence from='d1@x.example/r' to='d1@x.example/r' id='a'><status>&lt;hi</status></presence>"
    );
    assert_eq!(presences, [Presence::Active]);
    assert_eq!(presence(&mut peer, "<presence/>").1, [], "nothing changed");
    assert_eq!(presence(&mut peer, "<presence><show>xa</show></presence>").1, [Presence::Idle]);
    assert_eq!(presence(&mut peer, "<presence/>").1, [Presence::Active]);
    assert_eq!(
        presence(&mut peer, "<inactive xmlns='urn:xmpp:csi:0'/>"),
        (String::new(), vec![Presence::Idle])
    );
    assert_eq!(
        presence(&mut peer, "<active xmlns='urn:xmpp:csi:0'/>"),
        (String::new(), vec![Presence::Active])
    );
    assert_eq!(presence(&mut peer, "<presence><priority>-1</priority></presence>").1, [Presence::Offline]);
    assert_eq!(presence(&mut peer, "<presence/>").1, [Presence::Active]);
    assert_eq!(
        presence(&mut peer, "<presence type='unavailable'/>"),
        (String::new(), vec![Presence::Offline])
    );
    let (said, presences) =
        presence(&mut peer, "<presence type='here'/><presence><priority>x</priority></presence>");
    assert_eq!((said.matches("<bad-request ").count(), presences), (2, vec![]));
    for kind in ["subscribe", "subscribed", "unsubscribe", "unsubscribed", "probe", "unavailable"] {
        let text = format!("<presence type='{kind}' to='other@x.example'/>");
        assert_eq!(presence(&mut peer, &text), (String::new(), vec![]));
    }
}

#[test]
fn receipt_acknowledges_a_notification() {
    let mut peer = Peer::open();
    let receipt =
        format!("<message to='x.example' id='m'><received xmlns='urn:xmpp:receipts' id='{ID}'/></message>");
    assert_eq!(peer.say(&receipt), "");
    let id = NotificationId::parse(ID).unwrap();
    assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if *ids == [id]));
    assert_eq!(peer.say("<message to='pubsub.x.example' type='headline'><received xmlns='urn:xmpp:receipts' id='x'/></message>"), "");
    assert!(peer.take().is_empty());
    // Stream management does not acknowledge it again.
    peer.say("<enable xmlns='urn:xmpp:sm:3'/>");
    peer.conversation.deliver(&peer.config, id, true, &bytes::Bytes::new());
    peer.say(&receipt);
    peer.take();
    peer.say("<a xmlns='urn:xmpp:sm:3' h='1'/>");
    assert!(peer.take().is_empty());
}

#[test]
fn devices_have_no_contacts() {
    let mut peer = Peer::open();
    for (to, condition) in [
        ("other@x.example", "service-unavailable"),
        ("x.example", "service-unavailable"),
        ("d1@x.example", "service-unavailable"),
        ("a@y.example", "remote-server-not-found"),
    ] {
        let said = peer.say(&format!("<message id='i' type='chat' to='{to}'><body>hi</body></message>"));
        assert_eq!(answer(&said), condition, "{to}");
        assert_eq!(
            peer.say(&format!("<message type='headline' to='{to}'/><message type='error' to='{to}'/>")),
            ""
        );
    }
    assert!(peer.take().is_empty());
}

#[test]
fn archive_is_sent_in_pages() {
    let mut peer = Peer::open();
    let form = answer(&peer.say(&iq("get", "", "<query xmlns='urn:xmpp:mam:2'/>")));
    assert!(form.contains("<field type='jid-single' var='with'/>"), "{form}");
    let query = "<query xmlns='urn:xmpp:mam:2' queryid='q'><set xmlns='http://jabber.org/protocol/rsm'><max>7</max></set></query>";
    peer.say(&iq("set", "d1@x.example", query));
    let [Action::Archive { query: asked, .. }] = &peer.actions[..] else { panic!("{:?}", peer.actions) };
    assert_eq!((asked.max, &asked.place), (7, &ArchivePlace::First));
    let message = notification(When::Stored, None, r#"{"title":"t"}"#);
    let page = ArchivePage::new(&asked.clone(), vec![Archived::new(&peer.config, &message)], 2, 4);
    let said = peer.answer(Answer::Archive(page));
    let (message, end) = said.split_once("</result><no-store ").expect("a result");
    let begin = format!(
        "<message from='d1@x.example' to='d1@x.example/r'><result xmlns='urn:xmpp:mam:2' queryid='q' id='{ID}'>\
         <forwarded xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' stamp='1970-01-01T00:00:00.000Z'/>\
         <message xmlns='jabber:client' from='x.example' "
    );
    assert!(message.starts_with(&begin), "{message}");
    let last = format!("<first index='2'>{ID}</first><last>{ID}</last><count>4</count></set></fin></iq>");
    assert!(end.ends_with(&last) && end.contains("<fin xmlns='urn:xmpp:mam:2' complete='true'>"), "{end}");
    peer.say(&iq("set", "", query));
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::NotFound))), "item-not-found");
    let long = format!("<query xmlns='urn:xmpp:mam:2' queryid='{}'/>", "q".repeat(129));
    assert_eq!(answer(&peer.say(&iq("set", "", &long))), "bad-request");
    // Only the own archive.
    for to in ["o@x.example", "x.example", "pubsub.x.example"] {
        assert_eq!(answer(&peer.say(&iq("set", to, query))), "service-unavailable", "{to}");
    }
    let info = answer(&peer.say(&iq("get", "", "<query xmlns='http://jabber.org/protocol/disco#info'/>")));
    assert!(info.contains("<feature var='urn:xmpp:mam:2'/>"), "{info}");
}

#[test]
fn nothing_follows_the_end_of_the_stream() {
    let mut peer = Peer::open();
    peer.say("<enable xmlns='urn:xmpp:sm:3'/>");
    peer.say(&iq("set", "", "<query xmlns='urn:xmpp:mam:2'/>"));
    let [Action::Archive { query, .. }] = &peer.actions[..] else { panic!("{:?}", peer.actions) };
    let message = || Archived::new(&peer.config, &notification(When::Stored, None, r#"{"title":"t"}"#));
    let page = ArchivePage::new(query, vec![message(), message()], 0, 2);
    // A client that acknowledges nothing is closed at the first of them.
    (peer.config.unacked_max, peer.config.unacked_timeout_ms) = (0, 0);
    let said = peer.answer(Answer::Archive(page));
    assert_eq!(said.matches("</result>").count(), 1, "{said}");
    assert!(said.ends_with("</stream:error></stream:stream>"), "{said}");
    peer.assert_closed(CloseReason::SlowConsumer);
}

#[test]
fn archive_has_preferences() {
    let prefs = |inside: &str| format!("<prefs xmlns='urn:xmpp:mam:2' {inside}</prefs>");
    let always =
        "result <prefs xmlns='urn:xmpp:mam:2' default='always'><always></always><never></never></prefs>";
    // A device's inbox cannot be configured.
    let mut peer = Peer::open();
    assert_eq!(answer(&peer.say(&iq("get", "", "<prefs xmlns='urn:xmpp:mam:2'/>"))), always);
    assert_eq!(answer(&peer.say(&iq("set", "", &prefs("default='always'>")))), always);
    let refused = answer(&peer.say(&iq("set", "", &prefs("default='never'>"))));
    assert_eq!(refused, "feature-not-implemented");
    assert_eq!(answer(&peer.say(&iq("set", "", &prefs(">")))), "bad-request");
    assert!(peer.take().is_empty());
    let mut peer = account();
    peer.say(&iq("get", "", "<prefs xmlns='urn:xmpp:mam:2'/>"));
    assert!(matches!(asked(&peer.take()), Some(Command::ArchiveRules(None))));
    peer.say(&iq("set", "", &prefs("default='roster'>")));
    assert!(matches!(asked(&peer.take()), Some(Command::ArchiveRules(Some(_)))));
}

#[test]
fn service_describes_itself() {
    let mut peer = Peer::open();
    let mut ask = |to: &str, kind: &str, node: &str| {
        let query = format!("<query xmlns='http://jabber.org/protocol/disco#{kind}'{node}/>");
        answer(&peer.say(&iq("get", to, &query)))
    };
    let info = ask("x.example", "info", "");
    assert!(info.contains("<identity category='server' type='im' name='Noroshi'/>"), "{info}");
    assert!(info.contains("<feature var='msgoffline'/>") && !info.contains("jabber:iq:register"), "{info}");
    let items = ask("x.example", "items", "");
    assert!(items.contains("<item jid='pubsub.x.example' name='Topics'/>"), "{items}");
    let info = ask("", "info", "");
    assert!(info.contains("<identity category='account' type='registered'/>"), "{info}");
    let info = ask("pubsub.x.example", "info", "");
    assert!(info.contains("<feature var='http://jabber.org/protocol/pubsub#subscribe'/>"), "{info}");
    let info = ask("pubsub.x.example", "info", " node='news'");
    assert!(
        info.contains(" node='news'>") && info.contains("<identity category='pubsub' type='leaf'/>"),
        "{info}"
    );
    for (to, node) in [("x.example", "x"), ("", "x"), ("pubsub.x.example", "a+b")] {
        assert_eq!(ask(to, "items", &format!(" node='{node}'")), "item-not-found");
    }
}

#[test]
fn service_announces_its_capabilities() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.prove();
    let features = capabilities(&peer.say(HEADER));
    let [node, ver] = ["node='", "ver='"].map(|name| between(&features, name, "'").to_owned());
    assert!(features.contains(" hash='sha-1' "), "{features}");
    let mut peer = Peer::open();
    let mut ask = |to: &str, kind: &str, node: &str| {
        let query = format!("<query xmlns='http://jabber.org/protocol/disco#{kind}' node='{node}'/>");
        answer(&peer.say(&iq("get", to, &query)))
    };
    let announced = format!("{node}#{ver}");
    let info = ask("x.example", "info", &announced);
    assert!(info.contains(&format!(" node='{announced}'><identity category='server' ")), "{info}");
    assert!(info.contains("<feature var='http://jabber.org/protocol/caps'/>"), "{info}");
    // XEP-0115 §5.4: the client's hash of the response equals the announced one.
    let mut said: Vec<&str> =
        info.split("<feature var='").skip(1).map(|it| it.split_once('\'').unwrap().0).collect();
    said.sort_unstable();
    let text = format!("server/im//Noroshi<{}<", said.join("<"));
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    assert_eq!(::base64::Engine::encode(&::base64::engine::general_purpose::STANDARD, hash), ver);
    for (to, kind, node) in [
        ("x.example", "items", &*announced),
        ("x.example", "info", &*format!("{node}#x")),
        ("x.example", "info", &*node),
        ("", "info", &announced),
    ] {
        assert_eq!(ask(to, kind, node), "item-not-found", "{to} {kind} {node}");
    }
}

#[test]
fn registration_is_available_if_enabled() {
    let mut peer = Peer::secure();
    peer.config.registration = true;
    let said = peer.say(HEADER);
    assert!(said.contains("<register xmlns='http://jabber.org/features/iq-register'/>"), "{said}");
    let said = peer.say("<iq type='get' id='i' to='x.example'><query xmlns='jabber:iq:register'/></iq>");
    assert!(said.contains("<username/><password/></query>"), "{said}");
    let register = "<iq type='set' id='i'><query xmlns='jabber:iq:register'><username>u</username><password>p</password></query></iq>";
    peer.say(register);
    assert!(matches!(&peer.actions[..], [Action::Register { user, password, .. }]
        if &**user == "u" && password.as_str() == "p"));
    assert_eq!(peer.answer(Answer::Done), "<iq type='result' id='i'></iq>");
    peer.say(register);
    assert!(peer.answer(Answer::Refused(Refusal::Conflict)).contains("<error type='cancel'><conflict "));
    assert!(peer.say(&register.replace("<password>p</password>", "")).contains("<not-acceptable "));
    let mut peer = Peer::open();
    peer.config.registration = true;
    let said = peer.say("<iq type='get' id='i'><query xmlns='jabber:iq:register'/></iq>");
    assert!(said.contains("<registered/><username>d1</username>"), "{said}");
    peer.say("<iq type='set' id='i'><query xmlns='jabber:iq:register'><remove/></query></iq>");
    assert!(matches!(peer.actions[..], [Action::Unregister { .. }]));
    assert_eq!(answer(&peer.answer(Answer::Done)), "result ");
}

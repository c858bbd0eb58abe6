//! Stanzas on an open stream: RFC 6120 §8, RFC 6121, XEP-0030, XEP-0060 and others.

use std::sync::Arc;

use noroshi_types::{NotificationId, Presence, Topic, When};

use super::*;
use crate::xmpp::archive::{ArchivePage, ArchivePlace, Archived};
use crate::xmpp::encode::tests::{ID, notification};
use crate::xmpp::refusal::Refusal;

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
fn receipt_confirms_a_notification() {
    let mut peer = Peer::open();
    let receipt =
        format!("<message to='x.example' id='m'><received xmlns='urn:xmpp:receipts' id='{ID}'/></message>");
    assert_eq!(peer.say(&receipt), "");
    let id = NotificationId::parse(ID).unwrap();
    assert!(matches!(&peer.take()[..], [Action::Acknowledge(ids)] if *ids == [id]));
    assert_eq!(peer.say("<message to='pubsub.x.example' type='headline'><received xmlns='urn:xmpp:receipts' id='x'/></message>"), "");
    assert!(peer.take().is_empty());
    // Stream management does not confirm it again.
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

/// A session bound as an account.
fn account() -> Peer {
    let mut peer = Peer::secure();
    peer.conversation.set_account(true);
    peer.log_in("r");
    peer
}

#[test]
fn stanzas_of_accounts_are_relayed() {
    let mut peer = account();
    let said = peer.say(
        "<message id='i' type='chat' to='Other@x.example/q' xml:lang='en' x='y'><body>a&amp;b</body>\
         <p:z xmlns:p='u' p:v='1'><w xmlns='jabber:client'/></p:z></message>",
    );
    assert_eq!(said, "");
    let [Action::Relay { to, stanza, .. }] = &peer.actions[..] else { panic!("{:?}", peer.actions) };
    assert_eq!((&*to.bare, to.resource.as_deref()), ("other@x.example", Some("q")));
    assert_eq!(
        std::str::from_utf8(&stanza.addressed("d1@x.example/r", &to.asked)).unwrap(),
        "<message xmlns='jabber:client' from='d1@x.example/r' to='Other@x.example/q' type='chat' id='i' \
         xml:lang='en'><body>a&amp;b</body><z xmlns='u' xmlns:a0='u' a0:v='1'><w xmlns='jabber:client'></w></z></message>"
    );
    let said = peer.answer(Answer::Refused(Refusal::Unavailable));
    assert_eq!(
        said,
        "<message type='error' id='i' from='Other@x.example/q' to='d1@x.example/r'><error type='cancel'>\
         <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>\
         <text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas' xml:lang='en'>nothing at this address handles such a stanza</text>\
         </error></message>"
    );
    // Itself, and one of its own resources.
    for text in
        ["<message><body>x</body></message>", "<iq type='get' id='x' to='d1@x.example/q'><q xmlns='u'/></iq>"]
    {
        peer.say(text);
        assert!(
            matches!(&peer.take()[..], [Action::Relay { to, .. }] if &*to.bare == "d1@x.example"),
            "{text}"
        );
    }
    // Stanzas that are never answered request no answer.
    for text in
        ["<presence type='subscribe' to='o@x.example'/>", "<iq type='result' id='x' to='o@x.example/q'/>"]
    {
        peer.say(text);
        assert!(matches!(&peer.take()[..], [Action::Relay { request: None, .. }]), "{text}");
    }
    peer.say("<presence><priority>1</priority></presence>");
    assert!(matches!(&peer.take()[..], [Action::Presence(_), Action::Announce(_)]));
    assert!(peer.say("<presence type='x' to='o@x.example'/>").contains("<bad-request "));
    let stanza = bytes::Bytes::from_static(b"<message xmlns='jabber:client'/>");
    let said = peer.tell(|conversation, cx, out| conversation.deliver_relayed(cx, &stanza, out));
    assert_eq!(said, "<message xmlns='jabber:client'/>");
}

#[test]
fn account_reads_and_changes_its_roster() {
    let mut peer = account();
    peer.say(&iq("get", "", "<query xmlns='jabber:iq:roster' ver='v'/>"));
    assert!(matches!(&peer.actions[..], [Action::Roster { known: Some(known), .. }] if &**known == "v"));
    assert_eq!(answer(&peer.answer(Answer::Done)), "result ", "it has that version");
    peer.say(&iq("get", "", "<query xmlns='jabber:iq:roster'/>"));
    assert!(matches!(&peer.actions[..], [Action::Roster { known: None, .. }]));
    let said = peer.answer(Answer::Content(bytes::Bytes::from_static(b"<query/>")));
    assert!(said.ends_with("><query/></iq>"), "{said}");
    let mut set = |items: &str| {
        let said = peer.say(&iq("set", "", &format!("<query xmlns='jabber:iq:roster'>{items}</query>")));
        let condition = if said.is_empty() { said } else { answer(&said) };
        (condition, peer.take().len())
    };
    let group = |name: &str| format!("<item jid='o@x.example'><group>a</group><group>{name}</group></item>");
    assert_eq!(set("<item jid='o@x.example'/>").1, 1);
    assert_eq!(set("<item jid='o@x.example' subscription='remove'/>").1, 1);
    // RFC 6121 §2.3.3
    for (items, condition) in [
        ("".to_owned(), "bad-request"),
        ("<item/>".to_owned(), "bad-request"),
        ("<item jid='o@x.example'/><item jid='p@x.example'/>".to_owned(), "bad-request"),
        (group("a"), "bad-request"),
        (group(""), "not-acceptable"),
        (group(&"g".repeat(1_024)), "not-acceptable"),
        (format!("<item jid='o@x.example' name='{}'/>", "n".repeat(1_024)), "not-acceptable"),
        ("<item jid='d1@x.example'/>".to_owned(), "not-allowed"),
    ] {
        assert_eq!(set(&items), (condition.to_owned(), 0), "{items}");
    }
    let said = peer.say(&iq("get", "o@x.example", "<query xmlns='jabber:iq:roster'/>"));
    assert_eq!(answer(&said), "forbidden");
}

#[test]
fn account_is_described_to_permitted_accounts() {
    let mut peer = account();
    let ask = |kind: &str| {
        iq("get", "o@x.example", &format!("<query xmlns='http://jabber.org/protocol/disco#{kind}'/>"))
    };
    peer.say(&ask("info"));
    assert!(matches!(&peer.actions[..], [Action::Describe { owner, .. }] if &**owner == "o@x.example"));
    let said = peer.answer(Answer::Done);
    assert!(said.contains(" from='o@x.example'") && said.contains("<identity category='account' "), "{said}");
    peer.say(&ask("items"));
    let known = answer(&peer.answer(Answer::Done));
    // XEP-0030 §8
    peer.say(&ask("items"));
    let unknown = answer(&peer.answer(Answer::Refused(Refusal::Unavailable)));
    assert_eq!(unknown, "result <query xmlns='http://jabber.org/protocol/disco#items'/>");
    assert_eq!(known.replace("></query>", "/>"), unknown);
    peer.say(&ask("info"));
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::Unavailable))), "service-unavailable");
    // A device gets the same answer about every account.
    let mut device = Peer::open();
    assert_eq!(answer(&device.say(&ask("items"))), unknown);
    assert_eq!(answer(&device.say(&ask("info"))), "service-unavailable");
    assert!(device.take().is_empty());
}

#[test]
fn account_publishes_personal_events() {
    let mut peer = account();
    let pubsub = |inside: &str| format!("<pubsub xmlns='{}'>{inside}</pubsub>", ns::PUBSUB);
    peer.say(&iq("set", "", &pubsub("<publish node='m'><item id='1'><x xmlns='u'/></item></publish>")));
    assert!(matches!(&peer.take()[..], [Action::PublishPersonal { .. }]));
    peer.say(&iq("get", "o@x.example", &pubsub("<items node='m'/>")));
    assert!(matches!(&peer.take()[..], [Action::PersonalItems { owner, .. }] if &**owner == "o@x.example"));
    for (kind, to, inside, condition) in [
        ("set", "", "<publish><item><x xmlns='u'/></item></publish>", "bad-request nodeid-required"),
        ("set", "", "<publish node='m'><item/></publish>", "bad-request item-required"),
        ("set", "o@x.example", "<publish node='m'><item><x xmlns='u'/></item></publish>", "forbidden"),
        ("set", "", "<subscribe node='m' jid='d1@x.example'/>", "feature-not-implemented"),
    ] {
        let said = peer.say(&iq(kind, to, &pubsub(inside)));
        assert!(condition.split(' ').all(|word| said.contains(&format!("<{word} "))), "{said}");
    }
    let query = "<query xmlns='http://jabber.org/protocol/disco#info'><feature var='m+notify'/><feature var='n'/></query>";
    peer.say(&format!("<iq type='result' id='capabilities' to='x.example'>{query}</iq>"));
    assert!(matches!(&peer.take()[..], [Action::Want(nodes)] if nodes.len() == 1 && &*nodes[0] == "m"));
    let said = peer.say(&iq("get", "", "<query xmlns='http://jabber.org/protocol/disco#info'/>"));
    assert!(
        said.contains("<identity category='pubsub' type='pep'/>") && said.contains("#auto-subscribe"),
        "{said}"
    );
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

/// A namespace is declared once but written at each element that uses it.
#[test]
fn relayed_stanza_is_limited_after_serialization() {
    let declared = format!("xmlns:p='{}'", "n".repeat(10_000));
    let mut peer = account();
    for inside in ["<p:a/>".repeat(1_000), "<a p:b='' p:c='' p:d=''/>".repeat(500)] {
        for (text, expected) in [
            (format!("<message id='i' to='o@x.example' {declared}>{inside}</message>"), "policy-violation"),
            (format!("<presence id='i' to='o@x.example' {declared}>{inside}</presence>"), "policy-violation"),
            (format!("<presence id='i' {declared}>{inside}</presence>"), "policy-violation"),
            (
                iq("set", "o@x.example/q", &format!("<x xmlns='u' {declared}>{inside}</x>")),
                "policy-violation",
            ),
            (
                iq("set", "", &format!("<vCard xmlns='vcard-temp' {declared}>{inside}</vCard>")),
                "not-acceptable",
            ),
            (
                iq(
                    "set",
                    "",
                    &format!(
                        "<pubsub xmlns='{}' {declared}><publish node='n'><item>{inside}</item></publish></pubsub>",
                        ns::PUBSUB
                    ),
                ),
                "not-acceptable payload-too-big",
            ),
        ] {
            assert_eq!(answer(&peer.say(&text)), expected, "{}", &text[..40]);
            let action = peer.take().into_iter().find(|action| !matches!(action, Action::Presence(_)));
            assert!(action.is_none(), "{action:?}");
        }
        // RFC 6120 §8.3.1
        let error = format!("<message type='error' to='o@x.example' {declared}>{inside}</message>");
        assert_eq!(peer.say(&error), "");
        assert!(peer.take().is_empty());
    }
}

/// A quote takes six bytes in an attribute.
#[test]
fn relayed_attributes_are_limited() {
    let mut peer = account();
    let long = "'".repeat(256);
    for attribute in ["id", "xml:lang", "type"] {
        let said =
            peer.say(&format!("<message {attribute}=\"{long}\" to='o@x.example'><body>x</body></message>"));
        assert!(said.contains("<policy-violation "), "{attribute}: {said}");
        assert!(peer.take().is_empty());
    }
    let said = peer.say(&format!("<presence id=\"{long}\" type='subscribe' to='o@x.example'/>"));
    assert!(said.contains("<policy-violation "), "{said}");
    assert!(peer.take().is_empty());
    let said = peer.say(&format!("<presence id=\"{}\" type='subscribe' to='o@x.example'/>", &long[1..]));
    assert_eq!(said, "");
    assert!(matches!(&peer.take()[..], [Action::Relay { .. }]));
}

/// XEP-0060 §7.1.5, §6.3: a node of an account shadows the topic of the same name, whatever the request.
#[test]
fn requests_with_options_reach_nodes_too() {
    use crate::xmpp::accounts::NodeRequest;
    let mut peer = account();
    let publish = "<publish node='chat/1'><item><json xmlns='urn:xmpp:json:0'>1</json></item></publish>";
    for more in ["<publish-options/>", "<x xmlns='u'/><publish-options/>", "<other/><publish-options/>"] {
        pubsub(&mut peer, "set", &format!("{publish}{more}"));
        let actions = peer.take();
        let [Action::Node { command: NodeRequest::Publish { has_options, .. }, topic: Ok(_), .. }] =
            &actions[..]
        else {
            panic!("{actions:?}")
        };
        assert!(has_options, "{more}");
    }
    pubsub(&mut peer, "set", publish);
    let actions = peer.take();
    let [Action::Node { command: NodeRequest::Publish { has_options: false, .. }, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    pubsub(&mut peer, "set", "<subscribe node='chat/1' jid='d1@x.example'/><options/>");
    let actions = peer.take();
    let [Action::Node { command, topic: Err(refused), .. }] = &actions[..] else { panic!("{actions:?}") };
    assert!(matches!(command, NodeRequest::Subscribe { has_options: true, .. }));
    assert_eq!(*refused, (StanzaError::FeatureNotImplemented, "unsupported subscription-options"));
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
    assert!(matches!(&peer.take()[..], [Action::ArchiveRules { rules: None, .. }]));
    peer.say(&iq("set", "", &prefs("default='roster'>")));
    assert!(matches!(&peer.take()[..], [Action::ArchiveRules { rules: Some(_), .. }]));
}

#[test]
fn account_enables_carbons() {
    let mut peer = account();
    for (name, expected) in [("enable", true), ("disable", false)] {
        peer.say(&iq("set", "", &format!("<{name} xmlns='urn:xmpp:carbons:2'/>")));
        assert!(matches!(&peer.actions[..], [Action::Copy { wanted, .. }] if *wanted == expected));
        assert_eq!(answer(&peer.answer(Answer::Done)), "result ");
    }
    let disco = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
    let feature = "<feature var='urn:xmpp:carbons:2'/>";
    assert!(answer(&peer.say(&iq("get", "x.example", disco))).contains(feature));
    assert!(
        !answer(&Peer::open().say(&iq("get", "x.example", disco))).contains(feature),
        "a device does not"
    );
}

#[test]
fn account_has_a_vcard() {
    let mut peer = account();
    peer.say(&iq("get", "", "<vCard xmlns='vcard-temp'/>"));
    assert!(matches!(&peer.actions[..], [Action::Card { owner: None, .. }]));
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::NotFound))), "item-not-found");
    peer.say(&iq("set", "d1@x.example", "<vCard xmlns='vcard-temp'><FN>A&amp;B</FN></vCard>"));
    assert!(matches!(&peer.actions[..], [Action::PutCard { .. }]));
    assert_eq!(answer(&peer.answer(Answer::Done)), "result ");
    peer.say(&iq("get", "O@x.example", "<vCard xmlns='vcard-temp'/>"));
    assert!(
        matches!(&peer.actions[..], [Action::Card { owner: Some(owner), .. }] if &**owner == "o@x.example")
    );
    let card = bytes::Bytes::from_static(b"<vCard xmlns='vcard-temp'></vCard>");
    let said = peer.answer(Answer::Content(card));
    assert!(said.contains("from='O@x.example'") && said.contains("<vCard xmlns='vcard-temp'>"), "{said}");
    let said = peer.say(&iq("set", "o@x.example", "<vCard xmlns='vcard-temp'/>"));
    assert_eq!(answer(&said), "forbidden");
    let info = answer(&peer.say(&iq("get", "", "<query xmlns='http://jabber.org/protocol/disco#info'/>")));
    assert!(info.contains("<feature var='vcard-temp'/>"), "{info}");
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

fn pubsub(peer: &mut Peer, kind: &str, inside: &str) -> String {
    peer.say(&iq(kind, "pubsub.x.example", &format!("<pubsub xmlns='{}'>{inside}</pubsub>", ns::PUBSUB)))
}

#[test]
fn topic_subscriptions_are_durable_or_temporary() {
    for (jid, forever) in [("d1@x.example", true), ("D1@x.example", true), ("d1@x.example/r", false)] {
        let mut peer = Peer::open();
        let canonical = jid.to_lowercase();
        assert_eq!(pubsub(&mut peer, "set", &format!("<subscribe node='news' jid='{jid}'/>")), "");
        assert!(matches!(&peer.actions[..], [Action::Subscribe { topic, durable, .. }]
            if topic.as_str() == "news" && *durable == forever));
        assert_eq!(
            answer(&peer.answer(Answer::Done)),
            format!(
                "result <pubsub xmlns='http://jabber.org/protocol/pubsub'><subscription node='news' jid='{canonical}' \
             subscription='subscribed'/></pubsub>"
            )
        );
        pubsub(&mut peer, "set", &format!("<unsubscribe node='news' jid='{jid}'/>"));
        assert!(matches!(&peer.actions[..], [Action::Unsubscribe { durable, .. }] if *durable == forever));
        assert_eq!(answer(&peer.answer(Answer::Done)), "result ");
        pubsub(&mut peer, "set", &format!("<unsubscribe node='news' jid='{jid}'/>"));
        let said = peer.answer(Answer::Refused(Refusal::NotSubscribed));
        assert_eq!(answer(&said), "unexpected-request not-subscribed");
        assert!(said.contains("<error type='cancel'>"), "XEP-0060 §6.2.3.2: {said}");
    }
}

#[test]
fn every_invalid_pubsub_request_has_its_condition() {
    let check = |kind: &str, inside: &str, expected: &str| {
        let mut peer = Peer::open();
        let said = pubsub(&mut peer, kind, inside);
        assert_eq!(answer(&said), expected, "{inside}");
        assert!(peer.take().is_empty());
    };
    check("set", "<subscribe node='news' jid='d2@x.example'/>", "bad-request invalid-jid");
    check("set", "<subscribe node='news' jid='d1@x.example/q'/>", "bad-request invalid-jid");
    check("set", "<subscribe node='news'/>", "bad-request invalid-jid");
    check("set", "<subscribe jid='d1@x.example'/>", "bad-request nodeid-required");
    check("set", "<subscribe node='a#' jid='d1@x.example'/>", "item-not-found");
    check("set", "<subscribe node='$everyone' jid='d1@x.example'/>", "item-not-found");
    check("set", "<subscribe node='a' jid='d1@x.example'/><options/>", "feature-not-implemented unsupported");
    check("get", "<subscribe node='a' jid='d1@x.example'/>", "feature-not-implemented");
    check("get", "<options node='a' jid='d1@x.example'/>", "feature-not-implemented unsupported");
    check("get", "<affiliations/>", "feature-not-implemented unsupported");
    check("set", "<retract node='a'><item id='x'/></retract>", "feature-not-implemented unsupported");
    check("get", "", "bad-request");
    check("set", "<create/>", "not-acceptable nodeid-required");
    check("set", "<create node='a#'/>", "item-not-found");
    let form = "<configure><x xmlns='jabber:x:data' type='submit'/></configure>";
    check("set", &format!("<create node='a'/>{form}"), "feature-not-implemented unsupported");
    check("get", "<items/>", "bad-request nodeid-required");
    check("get", "<items node='a' max_items='0'/>", "bad-request");
    check("get", "<items node='a'><item id='x'/></items>", "item-not-found");
    check("set", "<publish node='a'/>", "bad-request item-required");
    check("set", "<publish node='a'><item/></publish>", "bad-request payload-required");
    check("set", "<publish node='a'><item/><item/></publish>", "bad-request max-items-exceeded");
    check("set", "<publish node='a'><item><x xmlns='u'/></item></publish>", "bad-request invalid-payload");
    check(
        "set",
        "<publish node='a'><item><json xmlns='urn:xmpp:json:0'>[\"\\ud800\"]</json></item></publish>",
        "bad-request invalid-payload",
    );
    check(
        "set",
        "<publish node='a'><item><json xmlns='urn:xmpp:json:0'>{</json></item></publish>",
        "bad-request invalid-payload",
    );
    let mut peer = Peer::open();
    for (inside, expected) in [
        ("<delete node='a'/>", "forbidden"),
        ("<default/>", "forbidden"),
        ("<purge/>", "bad-request nodeid-required"),
        ("", "bad-request"),
    ] {
        let owner = format!("<pubsub xmlns='{}'>{inside}</pubsub>", ns::PUBSUB_OWNER);
        assert_eq!(answer(&peer.say(&iq("set", "pubsub.x.example", &owner))), expected, "{inside}");
    }
}

#[test]
fn missing_feature_is_named() {
    let said = pubsub(&mut Peer::open(), "get", "<affiliations/>");
    let named =
        "<unsupported xmlns='http://jabber.org/protocol/pubsub#errors' feature='retrieve-affiliations'/>";
    assert!(said.contains(named), "{said}");
}

#[test]
fn topic_is_created_and_affiliation_reported() {
    let mut peer = Peer::open();
    pubsub(&mut peer, "set", "<create node='news'/><configure/>");
    assert!(matches!(&peer.actions[..], [Action::Create { topic, .. }] if topic.as_str() == "news"));
    let in_pubsub =
        |inside: &str| format!("result <pubsub xmlns='http://jabber.org/protocol/pubsub'>{inside}</pubsub>");
    assert_eq!(answer(&peer.answer(Answer::Done)), in_pubsub("<create node='news'/>"));
    pubsub(&mut peer, "set", "<create node='news'/>");
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::Conflict))), "conflict");
    pubsub(&mut peer, "get", "<affiliations node='news'/>");
    assert!(matches!(&peer.actions[..], [Action::Affiliation { topic, .. }] if topic.as_str() == "news"));
    let affiliations =
        "<affiliations node='news'><affiliation node='news' affiliation='member'/></affiliations>";
    assert_eq!(answer(&peer.answer(Answer::Affiliation("member"))), in_pubsub(affiliations));
}

#[test]
fn subscriptions_and_items_are_listed() {
    let mut peer = Peer::open();
    pubsub(&mut peer, "get", "<subscriptions/>");
    let topic = |name: &str| Topic::parse(name).unwrap();
    let said = peer.answer(Answer::Subscriptions(vec![(topic("a"), true), (topic("b&c"), false)]));
    assert_eq!(
        answer(&said),
        "result <pubsub xmlns='http://jabber.org/protocol/pubsub'><subscriptions>\
        <subscription node='a' jid='d1@x.example' subscription='subscribed'/>\
        <subscription node='b&amp;c' jid='d1@x.example/r' subscription='subscribed'/></subscriptions></pubsub>"
    );
    pubsub(&mut peer, "get", "<items node='news' max_items='500'/>");
    assert!(matches!(&peer.actions[..], [Action::Items { max: 100, id: None, .. }]));
    let item = Arc::new(notification(When::Stored, Some("news"), r#"{"title":"t"}"#));
    let said = answer(&peer.answer(Answer::Items(vec![item])));
    assert!(said.starts_with(&format!(
        "result <pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='news'><item id='{ID}'><notification \
         xmlns='urn:noroshi:notification:0'><json xmlns='urn:xmpp:json:0'>{{\"t\":\"msg\""
    )), "{said}");
    pubsub(&mut peer, "get", &format!("<items node='news'><item id='{ID}'/></items>"));
    assert!(matches!(&peer.actions[..], [Action::Items { id: Some(_), .. }]));
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::NotFound))), "item-not-found");
}

#[test]
fn json_payload_is_published() {
    let mut peer = Peer::open();
    let publish = "<publish node='news'><item><json xmlns='urn:xmpp:json:0'> {\"a\": \"&lt;\"} </json></item></publish>";
    pubsub(&mut peer, "set", publish);
    let [Action::Publish { topic, data, .. }] = &peer.actions[..] else { panic!("{:?}", peer.actions) };
    assert_eq!((topic.as_str(), data.as_str()), ("news", r#"{"a": "<"}"#));
    let said = peer.answer(Answer::Published(NotificationId::parse(ID).unwrap()));
    assert!(said.contains(&format!("<publish node='news'><item id='{ID}'/></publish>")), "{said}");
    pubsub(&mut peer, "set", publish);
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::Forbidden))), "forbidden");
    pubsub(&mut peer, "set", publish);
    assert_eq!(answer(&peer.answer(Answer::Done)), "internal-server-error", "an answer that does not fit");
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

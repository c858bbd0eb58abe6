//! The PubSub service (XEP-0060).

use super::*;

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

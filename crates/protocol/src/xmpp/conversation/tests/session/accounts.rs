//! Stanzas of accounts: relayed ones, and what only accounts may request.

use super::*;

#[test]
fn stanzas_of_accounts_are_relayed() {
    let mut peer = account();
    let said = peer.say(
        "<message id='i' type='chat' to='Other@x.example/q' xml:lang='en' x='y'><body>a&amp;b</body>\
         <p:z xmlns:p='u' p:v='1'><w xmlns='jabber:client'/></p:z></message>",
    );
    assert_eq!(said, "");
    let [Action::Account { command: Command::Relay { to, stanza }, .. }] = &peer.actions[..] else {
        panic!("{:?}", peer.actions)
    };
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
            matches!(asked(&peer.take()), Some(Command::Relay { to, .. }) if &*to.bare == "d1@x.example"),
            "{text}"
        );
    }
    // Stanzas that are never answered request no answer.
    for text in
        ["<presence type='subscribe' to='o@x.example'/>", "<iq type='result' id='x' to='o@x.example/q'/>"]
    {
        peer.say(text);
        assert!(
            matches!(&peer.take()[..], [Action::Account { command: Command::Relay { .. }, request: None }]),
            "{text}"
        );
    }
    peer.say("<presence><priority>1</priority></presence>");
    assert!(matches!(
        &peer.take()[..],
        [Action::Presence(_), Action::Account { command: Command::Announce(_), .. }]
    ));
    assert!(peer.say("<presence type='x' to='o@x.example'/>").contains("<bad-request "));
    let stanza = bytes::Bytes::from_static(b"<message xmlns='jabber:client'/>");
    let said = peer.tell(|conversation, cx, out| conversation.deliver_relayed(cx, &stanza, out));
    assert_eq!(said, "<message xmlns='jabber:client'/>");
}

#[test]
fn account_reads_and_changes_its_roster() {
    let mut peer = account();
    peer.say(&iq("get", "", "<query xmlns='jabber:iq:roster' ver='v'/>"));
    assert!(matches!(asked(&peer.actions), Some(Command::Roster { known: Some(known) }) if &**known == "v"));
    assert_eq!(answer(&peer.answer(Answer::Done)), "result ", "it has that version");
    peer.say(&iq("get", "", "<query xmlns='jabber:iq:roster'/>"));
    assert!(matches!(asked(&peer.actions), Some(Command::Roster { known: None })));
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
    assert!(matches!(asked(&peer.actions), Some(Command::Describe { owner }) if &**owner == "o@x.example"));
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
    assert!(matches!(asked(&peer.take()), Some(Command::PublishPersonal(_))));
    peer.say(&iq("get", "o@x.example", &pubsub("<items node='m'/>")));
    assert!(
        matches!(asked(&peer.take()), Some(Command::PersonalItems { owner, .. }) if &**owner == "o@x.example")
    );
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
    assert!(
        matches!(asked(&peer.take()), Some(Command::Want(nodes)) if nodes.len() == 1 && &*nodes[0] == "m")
    );
    let said = peer.say(&iq("get", "", "<query xmlns='http://jabber.org/protocol/disco#info'/>"));
    assert!(
        said.contains("<identity category='pubsub' type='pep'/>") && said.contains("#auto-subscribe"),
        "{said}"
    );
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
    assert!(matches!(asked(&peer.take()), Some(Command::Relay { .. })));
}

/// XEP-0060 §7.1.5, §6.3: a node of an account shadows the topic of the same name, whatever the request.
#[test]
fn requests_with_options_reach_nodes_too() {
    use crate::xmpp::accounts::NodeCommand;
    let mut peer = account();
    let publish = "<publish node='chat/1'><item><json xmlns='urn:xmpp:json:0'>1</json></item></publish>";
    for more in ["<publish-options/>", "<x xmlns='u'/><publish-options/>", "<other/><publish-options/>"] {
        pubsub(&mut peer, "set", &format!("{publish}{more}"));
        let actions = peer.take();
        let [Action::Node { command, topic: Ok(_), .. }] = &actions[..] else { panic!("{actions:?}") };
        assert!(matches!(command.command, NodeCommand::Publish { has_options: true, .. }), "{more}");
    }
    pubsub(&mut peer, "set", publish);
    let actions = peer.take();
    let [Action::Node { command, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert!(matches!(command.command, NodeCommand::Publish { has_options: false, .. }));
    pubsub(&mut peer, "set", "<subscribe node='chat/1' jid='d1@x.example'/><options/>");
    let actions = peer.take();
    let [Action::Node { command, topic: Err(refused), .. }] = &actions[..] else { panic!("{actions:?}") };
    assert!(matches!(command.command, NodeCommand::Subscribe { has_options: true, .. }));
    assert_eq!(*refused, (StanzaError::FeatureNotImplemented, "unsupported subscription-options"));
}

#[test]
fn account_enables_carbons() {
    let mut peer = account();
    for (name, expected) in [("enable", true), ("disable", false)] {
        peer.say(&iq("set", "", &format!("<{name} xmlns='urn:xmpp:carbons:2'/>")));
        assert!(matches!(asked(&peer.actions), Some(Command::Copy { wanted }) if *wanted == expected));
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
    assert!(matches!(asked(&peer.actions), Some(Command::Card { owner: None })));
    assert_eq!(answer(&peer.answer(Answer::Refused(Refusal::NotFound))), "item-not-found");
    peer.say(&iq("set", "d1@x.example", "<vCard xmlns='vcard-temp'><FN>A&amp;B</FN></vCard>"));
    assert!(matches!(asked(&peer.actions), Some(Command::PutCard(_))));
    assert_eq!(answer(&peer.answer(Answer::Done)), "result ");
    peer.say(&iq("get", "O@x.example", "<vCard xmlns='vcard-temp'/>"));
    assert!(
        matches!(asked(&peer.actions), Some(Command::Card { owner: Some(owner) }) if &**owner == "o@x.example")
    );
    let card = bytes::Bytes::from_static(b"<vCard xmlns='vcard-temp'></vCard>");
    let said = peer.answer(Answer::Content(card));
    assert!(said.contains("from='O@x.example'") && said.contains("<vCard xmlns='vcard-temp'>"), "{said}");
    let said = peer.say(&iq("set", "o@x.example", "<vCard xmlns='vcard-temp'/>"));
    assert_eq!(answer(&said), "forbidden");
    let info = answer(&peer.say(&iq("get", "", "<query xmlns='http://jabber.org/protocol/disco#info'/>")));
    assert!(info.contains("<feature var='vcard-temp'/>"), "{info}");
}

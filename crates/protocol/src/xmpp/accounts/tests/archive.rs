//! Archives of both sides, and carbons.

use super::*;

/// XEP-0280: which sessions receive copies of a message, in which form.
#[test]
fn other_resources_get_carbons() {
    let mut world = World::present();
    for (user, session, resource) in [("a", 11, "two"), ("a", 12, "no"), ("b", 21, "two"), ("b", 22, "no")] {
        world.come(user, session, resource);
        world.announce(user, session, "<presence><priority>-1</priority></presence>");
    }
    for (user, session) in [("a", A), ("a", 11), ("b", B), ("b", 21)] {
        world.accounts.copy(user, session, true);
    }
    world.outbox.clear();
    let mut check = |to: &str, text: &str, expected: &[(u8, &str)]| {
        world.say("a", A, to, text);
        let received = world.outbox.drain(..).map(|(session, bytes)| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let copied =
                text.split_once("<forwarded xmlns='urn:xmpp:forward:0'>").map(|(head, _)| head.to_owned());
            let kind = match copied {
                Some(head) if head.contains("<sent xmlns='urn:xmpp:carbons:2'>") => "sent",
                Some(head) if head.contains("<received xmlns='urn:xmpp:carbons:2'>") => "received",
                Some(head) => panic!("{head}"),
                None => "",
            };
            (session, kind)
        });
        assert_eq!(received.collect::<Vec<_>>(), expected, "{to} {text}");
    };
    let chat = "<message type='chat'><body>x</body></message>";
    check("b@x", chat, &[(B, ""), (11, "sent"), (21, "received")]);
    check("b@x/two", chat, &[(21, ""), (11, "sent"), (B, "received")]);
    check("b@x/no", chat, &[(22, ""), (11, "sent"), (B, "received"), (21, "received")]);
    check("a@x/no", chat, &[(12, ""), (A, "received"), (11, "received")]);
    // The sender's other resources do not learn whether the recipient exists.
    check("nobody@x", chat, &[(11, "sent")]);
    let normal = |inside: &str| format!("<message>{inside}</message>");
    let both = [(B, ""), (11, "sent"), (21, "received")];
    check("b@x", &normal("<body>x</body>"), &both);
    check("b@x", &normal("<received xmlns='urn:xmpp:receipts' id='1'/>"), &both);
    check("b@x", &normal("<x xmlns='u'/>"), &both[..1]);
    check("b@x", "<message type='headline'><body>x</body></message>", &both[..1]);
    check("b@x/r", "<message type='groupchat'><body>x</body></message>", &both[..1]);
    check(
        "b@x",
        "<message type='chat'><body>x</body><no-copy xmlns='urn:xmpp:hints'/></message>",
        &both[..1],
    );
    let private = "<message type='chat'><body>x</body><private xmlns='urn:xmpp:carbons:2'/></message>";
    check("b@x", private, &both[..1]);
    world.say("a", A, "b@x", private);
    assert!(!std::str::from_utf8(&world.outbox.pop().unwrap().1).unwrap().contains("private"));
    // The form of a copy.
    world.say("a", A, "b@x/r", "<message type='chat' id='i'><body>&lt;</body></message>");
    let (_, copy) = world.outbox.pop().unwrap();
    assert_eq!(
        std::str::from_utf8(&copy).unwrap(),
        "<message xmlns='jabber:client' from='b@x' to='b@x/two' type='chat'><received xmlns='urn:xmpp:carbons:2'>\
         <forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' from='a@x/r' to='b@x/r' type='chat' id='i'>\
         <body>&lt;</body><stanza-id xmlns='urn:xmpp:sid:0' by='b@x' id='e-2-8'/></message></forwarded></received></message>"
    );
    world.outbox.clear();
    // Carbons belong to the session: they survive a resumption, until they are disabled.
    world.accounts.detach("b", 21, &mut world.outbox);
    world.accounts.attach("b", 31, "two", true, &mut world.outbox);
    world.outbox.clear();
    world.say("a", A, "b@x", chat);
    assert_eq!(world.outbox.drain(..).map(|outbox| outbox.0).collect::<Vec<_>>(), [B, 11, 31]);
    world.accounts.copy("b", 31, false);
    world.accounts.attach("a", 32, "two", false, &mut world.outbox);
    world.outbox.clear();
    world.say("a", A, "b@x", chat);
    assert_eq!(world.outbox.drain(..).map(|outbox| outbox.0).collect::<Vec<_>>(), [B]);
}

fn archive(world: &World, user: &str, query: &ArchiveQuery) -> Result<Vec<String>, Refusal> {
    let page = world.accounts.archived(user, query)?;
    let text = |message: &Bytes| {
        let text = std::str::from_utf8(message).unwrap();
        text.split_once("<body>").unwrap().1.split_once('<').unwrap().0.to_owned()
    };
    Ok(page.messages().iter().map(|it| format!("{} {}", it.id, text(&it.message))).collect())
}

const EVERYTHING: ArchiveQuery =
    ArchiveQuery { with: None, since: None, until: None, place: ArchivePlace::First, max: 50 };

#[test]
fn messages_are_archived_on_both_sides() {
    let mut world = World::present();
    let say = |world: &mut World, user: &str, session, to: &str, body: &str| {
        world.now = Timestamp(world.now.0 + 1_000);
        world.say(user, session, to, &format!("<message type='chat'><body>{body}</body></message>"))
    };
    say(&mut world, "a", A, "b@x", "1");
    let received = String::from_utf8(world.outbox.pop().unwrap().1.to_vec()).unwrap();
    assert!(received.contains("<stanza-id xmlns='urn:xmpp:sid:0' by='b@x' id='e-2-1'/>"), "{received}");
    say(&mut world, "b", B, "a@x/r", "2");
    say(&mut world, "a", A, "nobody@x", "3");
    say(&mut world, "a", A, "a@x", "4");
    say(&mut world, "a", A, "c@x", "5");
    let all = ["e-1-1 1", "e-1-2 2", "e-1-3 3", "e-1-4 4", "e-1-5 5"].map(str::to_owned);
    assert_eq!(archive(&world, "a", &EVERYTHING).unwrap(), all);
    // The ids do not reveal the number of other messages.
    assert_eq!(archive(&world, "b", &EVERYTHING).unwrap(), ["e-2-1 1", "e-2-2 2"]);
    assert_eq!(archive(&world, "c", &EVERYTHING).unwrap(), ["e-3-1 5"]);
    let with = |with: &str| ArchiveQuery { with: Some(with.into()), ..EVERYTHING };
    assert_eq!(archive(&world, "a", &with("b@x")).unwrap(), all[..2]);
    assert_eq!(archive(&world, "a", &with("b@x/r")).unwrap(), all[1..2]);
    let time = ArchiveQuery { since: Some(Timestamp(2_000)), until: Some(Timestamp(4_000)), ..EVERYTHING };
    assert_eq!(archive(&world, "a", &time).unwrap(), all[1..4]);
    let place = |place: ArchivePlace| ArchiveQuery { place, max: 2, ..EVERYTHING };
    assert_eq!(archive(&world, "a", &place(ArchivePlace::First)).unwrap(), all[..2]);
    assert_eq!(archive(&world, "a", &place(ArchivePlace::After("e-1-2".into()))).unwrap(), all[2..4]);
    assert_eq!(archive(&world, "a", &place(ArchivePlace::Last)).unwrap(), all[3..]);
    assert_eq!(archive(&world, "a", &place(ArchivePlace::Before("e-1-3".into()))).unwrap(), all[..2]);
    assert_eq!(archive(&world, "a", &place(ArchivePlace::Before("e-1-1".into()))).unwrap(), [""; 0]);
    // A page cannot start at an id that is not in this archive.
    for id in ["e-1-1", "e-2-3", "e-2-02", "e-2-9", "f-2-1", "2-1", "1", "", "e"] {
        let query = place(ArchivePlace::After(id.into()));
        assert_eq!(archive(&world, "b", &query), Err(Refusal::NotFound), "{id}");
    }
    let page = world.accounts.archived("a", &place(ArchivePlace::After("e-1-2".into()))).unwrap();
    let mut end = Vec::new();
    page.push_end(&mut end);
    assert_eq!(
        std::str::from_utf8(&end).unwrap(),
        "<fin xmlns='urn:xmpp:mam:2'><set xmlns='http://jabber.org/protocol/rsm'><first index='2'>e-1-3</first>\
         <last>e-1-4</last><count>5</count></set></fin>"
    );
    world.accounts.remove("a", &mut world.outbox);
    world.accounts.put("a", "p", None).unwrap();
    assert_eq!(archive(&world, "a", &EVERYTHING).unwrap(), [""; 0]);
}

#[test]
fn only_messages_with_bodies_are_archived() {
    let mut world = World::present();
    for (text, expected) in [
        ("<message><body>x</body></message>", true),
        ("<message type='normal'><body>x</body></message>", true),
        ("<message type='chat'><composing xmlns='http://jabber.org/protocol/chatstates'/></message>", false),
        ("<message type='headline'><body>x</body></message>", false),
        ("<message type='error'><body>x</body></message>", false),
        ("<message type='groupchat'><body>x</body></message>", false),
        ("<message type='chat'><body>x</body><no-store xmlns='urn:xmpp:hints'/></message>", false),
        ("<message type='chat'><body>x</body><no-permanent-store xmlns='urn:xmpp:hints'/></message>", false),
    ] {
        let count = |world: &World| ["a", "b"].map(|user| archive(world, user, &EVERYTHING).unwrap().len());
        let before = count(&world);
        world.say("a", A, "b@x", text);
        assert_eq!(count(&world), before.map(|count| count + usize::from(expected)), "{text}");
    }
    // Clients cannot forge an archive id.
    world.outbox.clear();
    let forged = "<stanza-id xmlns='urn:xmpp:sid:0' by='b@x' id='forged'/>";
    world.say("a", A, "b@x", &format!("<message type='chat'><body>x</body>{forged}</message>"));
    let received = String::from_utf8(world.outbox.pop().unwrap().1.to_vec()).unwrap();
    assert!(!received.contains("forged") && received.matches("<stanza-id ").count() == 1, "{received}");
    for _ in 0..300 {
        world.say("a", A, "b@x", "<message><body>x</body></message>");
    }
    assert_eq!(world.accounts.archived("b", &EVERYTHING).map(|page| page.total()), Ok(200));
    let long = format!("<message><body>{}</body></message>", "x".repeat(50_000));
    (0..4).for_each(|_| assert_eq!(world.say("a", A, "b@x", &long), Outcome::Done));
    assert_eq!(world.accounts.archived("b", &EVERYTHING).map(|page| page.total()), Ok(2));
}

#[test]
fn archiving_follows_the_accounts_preferences() {
    let rules = |inside: &str| {
        let (scope, limits) = (Scope::default(), Limits::default());
        let text = format!("<prefs xmlns='urn:xmpp:mam:2' {inside}</prefs>");
        ArchiveRules::parse(parse_element(&text, Some(&scope), &limits).unwrap().root())
    };
    let mut world = World::present();
    let outbox = world.accounts.archive_rules("b", None).unwrap();
    assert_eq!(
        outbox,
        "<prefs xmlns='urn:xmpp:mam:2' default='always'><always></always><never></never></prefs>"
    );
    let put = |name: &str| RosterChange { bare: name.into(), put: Some(("".into(), vec![])) };
    for (inside, expected) in [
        ("default='always'>", 1),
        ("default='never'>", 0),
        ("default='never'><always><jid>A@x</jid></always>", 1),
        ("default='never'><always><jid>a@x/r</jid></always>", 1),
        ("default='never'><always><jid>a@x/q</jid></always>", 0),
        ("default='always'><never><jid>a@x</jid></never>", 0),
        ("default='always'><always><jid>a@x</jid></always><never><jid>a@x</jid></never>", 0),
        ("default='roster'>", 0),
    ] {
        world.accounts.archive_rules("b", Some(rules(inside).unwrap())).unwrap();
        let before = archive(&world, "b", &EVERYTHING).unwrap().len();
        world.outbox.clear();
        world.say("a", A, "b@x", "<message><body>x</body></message>");
        assert_eq!(archive(&world, "b", &EVERYTHING).unwrap().len() - before, expected, "{inside}");
        let received = String::from_utf8(world.outbox.pop().unwrap().1.to_vec()).unwrap();
        assert_eq!(received.contains("<stanza-id "), expected == 1, "{inside}");
    }
    world.accounts.change_roster("b", put("a@x"), &mut world.outbox).unwrap();
    let before = archive(&world, "b", &EVERYTHING).unwrap().len();
    world.say("a", A, "b@x", "<message><body>x</body></message>");
    assert_eq!(archive(&world, "b", &EVERYTHING).unwrap().len() - before, 1, "a contact");
    let many = "<jid>a@x</jid>".repeat(101);
    for (inside, expected) in [
        (">".to_owned(), StanzaError::BadRequest),
        ("default='x'>".to_owned(), StanzaError::BadRequest),
        ("default='never'><always><jid>@</jid></always>".to_owned(), StanzaError::JidMalformed),
        (format!("default='never'><never>{many}</never>"), StanzaError::NotAcceptable),
    ] {
        assert_eq!(rules(&inside), Err(expected), "{inside}");
    }
}

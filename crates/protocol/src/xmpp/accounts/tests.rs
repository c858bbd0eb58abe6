//! Accounts that exchange stanzas, and what each of their sessions receives.

use noroshi_types::Timestamp;

use super::*;
use crate::xmpp::archive::{ArchivePlace, ArchiveQuery};
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::{Limits, Scope, parse_element};

mod archive;
mod bounds;
mod subscription;

const A: u8 = 1;

const B: u8 = 2;

/// Sessions are numbers; `a` and `b` have one each, `/r`.
struct World {
    accounts: Accounts<u8>,
    outbox: Outbox<u8>,
    now: Timestamp,
}

fn relayed(text: &str) -> Relayed {
    let (scope, limits) = (Scope::default(), Limits::default());
    let tree = parse_element(text, Some(&scope), &limits).unwrap();
    let name = ["iq", "message", "presence"].into_iter().find(|name| tree.root().name() == *name).unwrap();
    Relayed::new(name, tree.root(), limits.element_bytes_max).unwrap()
}

fn recipient(to: &str) -> Recipient {
    let (bare, resource) = to.split_once('/').map_or((to, None), |(bare, resource)| (bare, Some(resource)));
    Recipient { asked: to.into(), bare: bare.into(), resource: resource.map(Into::into) }
}

impl World {
    fn new() -> Self {
        let accounts = Accounts::new("x", 0xE, [("a", "p"), ("b", "p"), ("c", "p")]);
        let mut world = Self { accounts, outbox: Outbox::new(), now: Timestamp(0) };
        for (user, session) in [("a", A), ("b", B)] {
            world.come(user, session, "r");
            world.accounts.roster(user, session, None);
        }
        world
    }

    fn come(&mut self, user: &str, session: u8, resource: &str) {
        self.accounts.attach(user, session, resource, false, &mut self.outbox);
    }

    fn announce(&mut self, user: &str, session: u8, text: &str) {
        self.accounts.announce(user, session, relayed(text), &mut self.outbox);
    }

    /// Both are available.
    fn present() -> Self {
        let mut world = Self::new();
        world.announce("a", A, "<presence/>");
        world.announce("b", B, "<presence/>");
        world.outbox.clear();
        world
    }

    fn say(&mut self, user: &str, session: u8, to: &str, text: &str) -> Outcome {
        let (to, stanza) = (recipient(to), relayed(text));
        if stanza.is_presence() {
            self.accounts.direct(user, session, &to, &stanza, &mut self.outbox);
            return Outcome::Done;
        }
        self.accounts.route(user, session, &to, &stanza, self.now, &mut self.outbox)
    }

    fn subscription(&mut self, user: &str, session: u8, to: &str, kind: &str) {
        self.say(user, session, to, &format!("<presence type='{kind}'/>"));
    }

    /// What a session received since the last call, abbreviated: roster pushes as `jid subscription ask
    /// approved`, other stanzas as name, type and sender.
    fn received(&mut self, session: u8) -> Vec<String> {
        let (mine, others) = self.outbox.drain(..).partition(|(to, _)| *to == session);
        self.outbox = others;
        let mine: Outbox<u8> = mine;
        mine.iter().map(|(_, bytes)| short(bytes)).collect()
    }

    fn state(&self, user: &str, contact: &str) -> String {
        match self.accounts.accounts[user].roster.get(contact) {
            None => "-".to_owned(),
            Some(item) => {
                let flags = [
                    (item.listed, "listed"),
                    (item.to, "to"),
                    (item.from, "from"),
                    (item.asked, "out"),
                    (item.pending.is_some(), "in"),
                    (item.approved, "approved"),
                ];
                flags.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Creates a mutual subscription.
    fn friends() -> Self {
        let mut world = Self::present();
        world.subscription("a", A, "b@x", "subscribe");
        world.subscription("b", B, "a@x", "subscribed");
        world.subscription("b", B, "a@x", "subscribe");
        world.subscription("a", A, "b@x", "subscribed");
        assert_eq!(world.state("a", "b@x"), "listed to from");
        assert_eq!(world.state("b", "a@x"), "listed to from");
        world.outbox.clear();
        world
    }
}

fn short(bytes: &Bytes) -> String {
    let text = std::str::from_utf8(bytes).unwrap();
    let tree = parse_element(text, None, &Limits::default()).unwrap();
    let root = tree.root();
    let item = root.children().next().and_then(|query| query.children().next());
    let words = match item.filter(|item| item.name() == "item") {
        Some(item) => ["jid", "subscription", "ask", "approved"].map(|name| item.attribute(name)),
        None => {
            let kind = root.attribute("type");
            [Some(root.name()), kind, root.attribute("from"), root.attribute("id")]
        }
    };
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[test]
fn removed_account_leaves_nothing_behind() {
    let mut world = World::friends();
    world.come("a", 9, "other");
    assert_eq!(world.accounts.remove("a", &mut world.outbox), [A, 9]);
    let received = world.received(B);
    assert!(received.ends_with(&["presence unavailable a@x/r".to_owned()]), "{received:?}");
    assert_eq!((world.state("b", "a@x"), world.accounts.has("a")), ("listed".into(), false));
    // No account responds.
    world.subscription("b", B, "a@x", "subscribe");
    assert_eq!(world.received(B), ["a@x none subscribe"]);
    assert_eq!(world.state("b", "a@x"), "listed out");
    // A later account with the same name has no access to sessions that have not ended yet.
    world.accounts.put("a", "p", None).unwrap();
    assert_eq!([A, 9, B].map(|session| world.accounts.has_ended(session)), [true, true, false]);
    world.accounts.detach("a", 9, &mut world.outbox);
    assert!(world.accounts.has_ended(A) && !world.accounts.has_ended(9));
}

/// RFC 6121 §8.5.2 and §8.5.3: which resources of `b` receive a stanza, and which stanzas are returned (`!`).
#[test]
fn messages_reach_the_right_resources() {
    let mut world = World::present();
    for (session, resource, priority) in
        [(11, "low", "1"), (12, "high", "5"), (13, "top", "5"), (14, "no", "-1")]
    {
        world.come("b", session, resource);
        world.announce("b", session, &format!("<presence><priority>{priority}</priority></presence>"));
    }
    world.come("b", 15, "silent");
    world.outbox.clear();
    let mut check = |to: &str, kind: &str, expected: &[u8], refused: bool| {
        let text = format!("<message type='{kind}'><body>x</body></message>");
        let outcome = world.say("a", A, to, &text);
        let received: Vec<u8> = world.outbox.drain(..).map(|(session, _)| session).collect();
        assert_eq!((&*received, outcome == Outcome::Refused), (expected, refused), "{to} {kind}");
    };
    check("b@x", "normal", &[12, 13], false);
    check("b@x", "chat", &[12, 13], false);
    check("b@x", "headline", &[B, 11, 12, 13], false);
    check("b@x", "groupchat", &[], true);
    check("b@x", "error", &[], false);
    for kind in ["normal", "chat", "headline", "groupchat", "error"] {
        check("b@x/no", kind, &[14], false);
        check("b@x/silent", kind, &[15], false);
    }
    check("b@x/gone", "normal", &[], true);
    check("b@x/gone", "chat", &[12, 13], false);
    check("b@x/gone", "groupchat", &[], true);
    check("b@x/gone", "headline", &[], false);
    check("b@x/gone", "error", &[], false);
    let iq = "<iq type='get' id='i'><query xmlns='u'/></iq>";
    assert_eq!(world.say("a", A, "b@x/no", iq), Outcome::Done);
    assert_eq!(world.say("a", A, "b@x/gone", iq), Outcome::Refused);
    assert_eq!(world.say("a", A, "b@x/gone", "<iq type='result' id='i'/>"), Outcome::Done);
    assert_eq!(world.say("a", A, "b@x", iq), Outcome::Refused);
}

#[test]
fn undeliverable_messages_are_stored() {
    let mut world = World::new();
    world.announce("b", B, "<presence><priority>-1</priority></presence>");
    let send = |world: &mut World, kind: &str, inside: &str| {
        world.say("a", A, "b@x", &format!("<message type='{kind}' id='{kind}'>{inside}</message>"))
    };
    send(&mut world, "chat", "<body>x</body>");
    send(&mut world, "normal", "<x xmlns='u'/>");
    send(&mut world, "headline", "<body>x</body>");
    send(&mut world, "chat", "<composing xmlns='http://jabber.org/protocol/chatstates'/>");
    send(&mut world, "normal", "<body>x</body><no-store xmlns='urn:xmpp:hints'/>");
    assert_eq!(send(&mut world, "groupchat", "<body>x</body>"), Outcome::Refused);
    world.outbox.clear();
    world.announce("b", B, "<presence/>");
    let delayed = |(_, bytes): &(u8, Bytes)| {
        std::str::from_utf8(bytes)
            .unwrap()
            .contains("<delay xmlns='urn:xmpp:delay' from='x' stamp='1970-01-01T00:00:00.000Z'/>")
    };
    assert_eq!(world.outbox.iter().filter(|outbox| delayed(outbox)).count(), 2);
    assert_eq!(
        world.received(B),
        ["presence b@x/r", "message chat a@x/r chat", "message normal a@x/r normal"]
    );
    world.announce("b", B, "<presence type='unavailable'/>");
    for _ in 0..OFFLINE_MESSAGES_MAX {
        assert_eq!(send(&mut world, "chat", "<body>x</body>"), Outcome::Done);
    }
    assert_eq!(send(&mut world, "chat", "<body>x</body>"), Outcome::Done, "a stranger does not learn of it");
    assert_eq!(world.accounts.accounts["b"].kept.len(), OFFLINE_MESSAGES_MAX);
    world.subscription("a", A, "b@x", "subscribe");
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(send(&mut world, "chat", "<body>x</body>"), Outcome::Refused);
}

/// RFC 6121 §8.5.1: stanzas of a stranger to an offline account and to a missing one.
#[test]
fn responses_do_not_reveal_whether_an_account_exists() {
    let answers = |to: &str| {
        let mut world = World::new();
        let mut answers = Vec::new();
        let kinds =
            ["", "probe", "subscribe", "subscribed", "unsubscribe", "unsubscribed", "unavailable", "error"];
        for (name, kinds) in [
            ("presence", &kinds[..]),
            ("message", &["", "normal", "chat", "headline", "groupchat", "error"]),
            ("iq", &["get", "set", "result", "error"]),
        ] {
            for (kind, place) in kinds.iter().flat_map(|kind| [(kind, ""), (kind, "/gone")]) {
                let text = format!("<{name} type='{kind}' id='i'><body>x</body></{name}>");
                let outcome = world.say("a", A, &format!("{to}{place}"), &text);
                let received =
                    world.received(A).into_iter().map(|it| it.replace(to, "it")).collect::<Vec<_>>();
                answers.push((name, kind.to_string(), place, outcome, received));
            }
        }
        answers
    };
    let (absent, away) = (answers("nobody@x"), answers("c@x"));
    assert_eq!(absent, away);
    let check = |name: &str, kind: &str, place: &str, expected: Outcome, received: &[&str]| {
        let found = absent.iter().find(|it| (it.0, &*it.1, it.2) == (name, kind, place)).unwrap();
        assert_eq!(
            (found.3, &found.4[..]),
            (expected, &received.iter().map(|it| it.to_string()).collect::<Vec<_>>()[..])
        );
    };
    check("presence", "probe", "", Outcome::Done, &["presence unsubscribed it"]);
    check("presence", "subscribe", "", Outcome::Done, &["it none subscribe"]);
    check("message", "chat", "", Outcome::Done, &[]);
    check("message", "groupchat", "", Outcome::Refused, &[]);
    check("iq", "get", "", Outcome::Refused, &[]);
    check("iq", "result", "", Outcome::Refused, &[]);
}

#[test]
fn personal_events_reach_interested_resources() {
    let mut world = World::friends();
    let item = |text: &str| {
        let text = format!("<item id='{text}'><mood xmlns='m'>{text}</mood></item>");
        let (scope, limits) = (Scope::default(), Limits::default());
        let tree = parse_element(&text, Some(&scope), &limits).unwrap();
        PersonalItem::parse("m", Some(tree.root())).unwrap()
    };
    // Asked once for each new set of capabilities.
    let presence =
        "<presence><c xmlns='http://jabber.org/protocol/caps' node='n' ver='1' hash='h'/></presence>";
    world.announce("b", B, presence);
    assert_eq!(world.received(B), ["presence b@x/r", "iq get x capabilities"]);
    world.announce("b", B, presence);
    assert_eq!(world.received(B), ["presence b@x/r"]);
    world.accounts.publish("a", item("1"), &mut world.outbox).unwrap();
    assert_eq!(world.received(B), [""; 0], "it does not want to hear of it");
    world.accounts.want("b", B, vec!["m".into(), "other".into()], &mut world.outbox);
    assert_eq!(world.received(B), ["message headline a@x 1"], "the last one");
    world.accounts.want("b", B, vec!["m".into()], &mut world.outbox);
    assert_eq!(world.received(B), [""; 0]);
    let done = world.accounts.publish("a", item("2"), &mut world.outbox).unwrap();
    assert!(done.ends_with(b"<publish node='m'><item id='2'/></publish></pubsub>"));
    assert_eq!(world.received(B), ["message headline a@x 2"]);
    let items = world.accounts.items("b", "a@x", "m").unwrap();
    assert!(items.ends_with(b"<item id='2'><mood xmlns='m'>2</mood></item></items></pubsub>"), "{items:?}");
    assert_eq!(world.accounts.items("c", "a@x", "m"), Err(Refusal::Forbidden));
    let known = ["a", "b", "c"].map(|user| world.accounts.knows(user, "a@x"));
    assert_eq!(known, [true, true, false]);
    assert_eq!(world.accounts.items("a", "a@x", "none"), Err(Refusal::NotFound));
    // A former contact receives nothing.
    world.subscription("a", A, "b@x", "unsubscribed");
    world.outbox.clear();
    world.accounts.publish("a", item("3"), &mut world.outbox).unwrap();
    assert_eq!(world.received(B), [""; 0]);
}

/// RFC 6121 §2.6
#[test]
fn roster_is_sent_unless_its_version_is_known() {
    let mut world = World::new();
    let put = |name: &str| RosterChange { bare: "c@x".into(), put: Some((name.into(), vec![])) };
    let ver = |bytes: &Bytes| {
        let text = std::str::from_utf8(bytes).unwrap();
        text.split_once("ver='").map(|(_, rest)| rest.split_once('\'').unwrap().0.to_owned())
    };
    assert_eq!(ver(&world.accounts.roster("a", A, None).unwrap()), None, "who does not know of versions");
    let first = ver(&world.accounts.roster("a", A, Some("")).unwrap()).unwrap();
    assert_eq!(world.accounts.roster("a", A, Some(&first)), None);
    let other = ver(&world.accounts.roster("b", B, Some(&first)).unwrap()).unwrap();
    assert_ne!(first, other);
    let mut seen = vec![first];
    for name in ["n", "m"] {
        world.accounts.change_roster("a", put(name), &mut world.outbox).unwrap();
        let pushed = ver(&world.outbox.pop().unwrap().1).unwrap();
        assert!(!seen.contains(&pushed));
        assert_eq!(world.accounts.roster("a", A, Some(&pushed)), None);
        assert!(world.accounts.roster("a", A, Some(&seen[0])).is_some());
        seen.push(pushed);
    }
    // Versions do not reveal what others do.
    let put_other = RosterChange { bare: "c@x".into(), put: Some(("n".into(), vec![])) };
    world.accounts.change_roster("b", put_other, &mut world.outbox).unwrap();
    assert_eq!(world.accounts.roster("a", A, Some(&seen[2])), None);
    // Also without notifications: actions of others, and accounts without sessions.
    world.subscription("b", B, "a@x", "subscribed");
    world.subscription("a", A, "b@x", "subscribe");
    world.accounts.detach("a", A, &mut world.outbox);
    world.subscription("b", B, "a@x", "unsubscribed");
    world.come("a", A, "r");
    let now = ver(&world.accounts.roster("a", A, Some(&seen[2])).unwrap()).unwrap();
    assert!(!seen.contains(&now));
    // A recreated account has no roster version that a client could know.
    world.accounts.remove("a", &mut world.outbox);
    world.accounts.put("a", "p", None).unwrap();
    world.come("a", A, "r");
    assert!(world.accounts.roster("a", A, Some(&now)).is_some());
    assert!(
        Accounts::<u8>::new("x", 0xF, [("a", "p")]).roster_version("a")
            != World::new().accounts.roster_version("a")
    );
}

#[test]
fn vcard_is_visible_to_presence_subscribers_only() {
    let mut world = World::friends();
    let card = |text: &str| {
        let (scope, limits) = (Scope::default(), Limits::default());
        let text = format!("<vCard xmlns='vcard-temp'><FN>{text}</FN><x xmlns='u'/></vCard>");
        Card::new(parse_element(&text, Some(&scope), &limits).unwrap().root())
    };
    assert_eq!(card(&"x".repeat(32 << 10)), None, "too long");
    let card = |text: &str| card(text).unwrap();
    assert_eq!(world.accounts.card("a", None), Err(Refusal::NotFound));
    assert_eq!(world.accounts.card("b", Some("a@x")), Err(Refusal::Unavailable));
    world.accounts.put_card("a", card("A &amp; co")).unwrap();
    let expected = "<vCard xmlns='vcard-temp'><FN>A &amp; co</FN><x xmlns='u'></x></vCard>";
    assert_eq!(world.accounts.card("a", None).unwrap(), expected);
    assert_eq!(world.accounts.card("a", Some("a@x")).unwrap(), expected);
    assert_eq!(world.accounts.card("b", Some("a@x")).unwrap(), expected);
    // For strangers, vCards, accounts without vCard and missing accounts are indistinguishable.
    for owner in ["a@x", "b@x", "nobody@x", "a@elsewhere"] {
        assert_eq!(world.accounts.card("c", Some(owner)), Err(Refusal::Unavailable), "{owner}");
    }
    world.accounts.remove("a", &mut world.outbox);
    world.accounts.put("a", "p", None).unwrap();
    assert_eq!(world.accounts.card("a", None), Err(Refusal::NotFound));
}

/// A payload keeps its publisher's namespace under any element.
#[test]
fn personal_item_keeps_its_namespace() {
    let mut world = World::friends();
    world.accounts.want("b", B, vec!["n".into()], &mut world.outbox);
    let text = format!("<item xmlns='{}' id='1'><e/></item>", ns::PUBSUB);
    let item = PersonalItem::parse("n", Some(parse_element(&text, None, &Limits::default()).unwrap().root()));
    world.accounts.publish("a", item.unwrap(), &mut world.outbox).unwrap();
    let event = String::from_utf8(world.outbox.pop().unwrap().1.to_vec()).unwrap();
    assert!(event.contains("<e xmlns='http://jabber.org/protocol/pubsub'></e>"), "{event}");
}

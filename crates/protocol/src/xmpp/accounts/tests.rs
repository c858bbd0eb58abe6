//! Accounts that exchange stanzas, and what each of their sessions receives.

use noroshi_types::Timestamp;

use super::*;
use crate::xmpp::archive::{ArchivePlace, ArchiveQuery};
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::{Limits, Scope, parse_element};

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
fn subscription_is_requested_approved_and_ended() {
    let mut world = World::present();
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(A), ["b@x none subscribe"]);
    assert_eq!(world.received(B), ["presence subscribe a@x"], "no push: it is not listed");
    assert_eq!((world.state("a", "b@x"), world.state("b", "a@x")), ("listed out".into(), "in".into()));
    // Only once.
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), [""; 0]);
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(world.received(B), ["a@x from"]);
    assert_eq!(world.received(A), ["presence subscribed b@x", "b@x to", "presence b@x/r"]);
    // It is subscribed already: the server responds.
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), [""; 0]);
    world.outbox.clear();
    world.subscription("b", B, "a@x", "unsubscribed");
    assert_eq!(world.received(B), ["a@x none"]);
    assert_eq!(world.received(A), ["presence unsubscribed b@x", "b@x none", "presence unavailable b@x/r"]);
}

#[test]
fn either_side_ends_a_subscription() {
    let mut world = World::friends();
    world.subscription("a", A, "b@x", "unsubscribe");
    assert_eq!(world.received(B), ["presence unsubscribe a@x", "a@x to"]);
    assert_eq!(world.received(A), ["b@x from", "presence unavailable b@x/r"]);
    assert_eq!(
        (world.state("a", "b@x"), world.state("b", "a@x")),
        ("listed from".into(), "listed to".into())
    );

    let mut world = World::friends();
    let remove = RosterChange { bare: "b@x".into(), put: None };
    world.accounts.change_roster("a", remove, &mut world.outbox).unwrap();
    assert_eq!(world.received(A), ["b@x remove", "presence unavailable b@x/r"]);
    let received = world.received(B);
    assert_eq!(
        received,
        [
            "presence unsubscribe a@x",
            "a@x to",
            "presence unsubscribed a@x",
            "a@x none",
            "presence unavailable a@x/r"
        ]
    );
    assert_eq!((world.state("a", "b@x"), world.state("b", "a@x")), ("-".into(), "listed".into()));
    let again = RosterChange { bare: "b@x".into(), put: None };
    assert_eq!(world.accounts.change_roster("a", again, &mut world.outbox), Err(Refusal::NotFound));
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

#[test]
fn pre_approval_is_answered_by_the_server() {
    let mut world = World::present();
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(world.received(B), ["a@x none true"]);
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), ["a@x from true"], "it is not asked");
    let received = world.received(A);
    assert_eq!(received, ["b@x none subscribe", "presence subscribed b@x", "b@x to", "presence b@x/r"]);
}

#[test]
fn pending_request_is_sent_at_each_log_in() {
    let mut world = World::new();
    world.announce("a", A, "<presence/>");
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), [""; 0], "it is not there");
    world.announce("b", B, "<presence/>");
    assert_eq!(world.received(B), ["presence b@x/r", "presence subscribe a@x"]);
    world.announce("b", B, "<presence><show>away</show></presence>");
    assert_eq!(world.received(B), ["presence b@x/r"], "an update");
    world.announce("b", B, "<presence type='unavailable'/>");
    world.announce("b", B, "<presence/>");
    assert_eq!(world.received(B), ["presence b@x/r", "presence subscribe a@x"]);
}

#[test]
fn presence_is_sent_to_contacts_and_own_resources() {
    let mut world = World::friends();
    world.come("a", 3, "phone");
    world.announce("a", 3, "<presence><priority>5</priority></presence>");
    assert_eq!(world.received(A), ["presence a@x/phone"]);
    assert_eq!(world.received(B), ["presence a@x/phone"]);
    // Itself, the other resource, and the contact.
    assert_eq!(world.received(3), ["presence a@x/phone", "presence a@x/r", "presence b@x/r"]);
    world.announce("a", 3, "<presence type='unavailable' id='u'/>");
    assert_eq!(world.received(B), ["presence unavailable a@x/phone u"]);
    assert_eq!(world.received(A), ["presence unavailable a@x/phone u"]);
    // An abnormal end of the stream.
    world.accounts.detach("a", A, &mut world.outbox);
    assert_eq!(world.received(B), ["presence unavailable a@x/r"]);
    assert_eq!(world.received(3), [""; 0]);
    // The session is resumed and available again.
    world.accounts.attach("a", 7, "r", true, &mut world.outbox);
    assert_eq!(world.received(B), ["presence a@x/r"]);
    // The same resource connects again.
    world.accounts.attach("a", 8, "r", false, &mut world.outbox);
    assert_eq!(world.received(B), ["presence unavailable a@x/r"]);
    world.accounts.detach("a", 7, &mut world.outbox);
    assert_eq!(world.received(B), [""; 0], "it was replaced");
}

#[test]
fn directed_presence_ends_with_the_session() {
    let mut world = World::present();
    world.say("a", A, "b@x", "<presence/>");
    world.say("a", A, "b@x/nobody", "<presence/>");
    assert_eq!(world.received(B), ["presence a@x/r"]);
    world.announce("a", A, "<presence><show>away</show></presence>");
    assert_eq!(world.received(B), [""; 0], "no contact");
    world.announce("a", A, "<presence type='unavailable'/>");
    assert_eq!(world.received(B), ["presence unavailable a@x/r"]);
    // Already withdrawn by the sender.
    world.say("a", A, "b@x/r", "<presence/>");
    world.say("a", A, "b@x/r", "<presence type='unavailable'/>");
    assert_eq!(world.received(B).len(), 2);
    world.accounts.detach("a", A, &mut world.outbox);
    assert_eq!(world.received(B), [""; 0]);
}

#[test]
fn probe_returns_visible_presence_only() {
    let mut world = World::friends();
    world.say("a", A, "b@x", "<presence type='probe'/>");
    assert_eq!(world.received(A), ["presence b@x/r"]);
    world.say("a", A, "b@x/gone", "<presence type='probe'/>");
    assert_eq!(world.received(A), ["presence unavailable b@x"]);
    for stranger in ["c@x", "nobody@x"] {
        world.say("a", A, stranger, "<presence type='probe'/>");
        assert_eq!(world.received(A), [format!("presence unsubscribed {stranger}")]);
    }
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
fn all_lists_are_bounded() {
    let mut world = World::present();
    let put = |name: &str| RosterChange { bare: format!("{name}@y").into(), put: Some(("".into(), vec![])) };
    for n in 0..ROSTER_MAX {
        world.accounts.change_roster("a", put(&n.to_string()), &mut world.outbox).unwrap();
    }
    let one_more = world.accounts.change_roster("a", put("more"), &mut world.outbox);
    assert_eq!(one_more, Err(Refusal::Overloaded));
    assert_eq!(world.accounts.change_roster("a", put("0"), &mut world.outbox), Ok(()));
    world.outbox.clear();
    world.subscription("b", B, "a@x", "subscribe");
    assert_eq!(world.received(A), [""; 0], "no room");
    // `r` is connected already; a disconnected resource is evicted, a connected one is not.
    for n in 1..RESOURCES_MAX as u8 {
        world.come("a", 20 + n, &n.to_string());
    }
    assert_eq!(world.accounts.reserve("a", "more"), None);
    assert_eq!(world.accounts.reserve("a", "r"), Some(0));
    world.accounts.detach("a", 21, &mut world.outbox);
    assert_eq!(world.accounts.reserve("a", "more"), Some(1));
    for n in 0..ACCOUNTS_MAX {
        let _ = world.accounts.put(&n.to_string(), "p", None);
    }
    assert_eq!(world.accounts.put("more", "p", None), Err(Refusal::Overloaded));
    assert_eq!(world.accounts.put("a", "p", None), Err(Refusal::Conflict));
    assert_eq!(world.accounts.put("a", "q", Some("a")), Ok(()));
    assert!(world.accounts.is_password("a", "q"));
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

/// A text of the given size.
fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[test]
fn offline_messages_fit_the_send_queue() {
    let mut world = World::present();
    world.announce("b", B, "<presence type='unavailable'/>");
    let message = format!("<message type='chat'><body>{}</body></message>", text(20_000));
    for _ in 0..20 {
        world.say("a", A, "b@x", &message);
    }
    let kept: usize = world.accounts.accounts["b"].kept.iter().map(Bytes::len).sum();
    assert!((100_000..=OFFLINE_BYTES_MAX).contains(&kept), "{kept}");
    // A shorter message still fits.
    let waiting = world.accounts.accounts["b"].kept.len();
    world.say("a", A, "b@x", "<message type='chat'><body>short</body></message>");
    assert_eq!(world.accounts.accounts["b"].kept.len(), waiting + 1);
}

#[test]
fn roster_fits_one_response() {
    let mut world = World::new();
    let put = |name: String, groups: usize| {
        Some((name.into(), (0..groups).map(|n| format!("{n}{}", text(1_000)).into()).collect()))
    };
    let change = |bare: &str, put| RosterChange { bare: bare.into(), put };
    let mut added = 0;
    while world
        .accounts
        .change_roster("a", change(&format!("n{added}@x"), put(text(10), 10)), &mut world.outbox)
        .is_ok()
    {
        added += 1;
    }
    assert!((10..20).contains(&added), "{added}");
    let roster = world.accounts.roster("a", A, None).unwrap();
    assert!(roster.len() < limits::SEND_QUEUE_BYTES, "{}", roster.len());
    // Changes that add nothing stay possible, also for other accounts.
    world.accounts.change_roster("a", change("n0@x", put(text(5), 10)), &mut world.outbox).unwrap();
    world.accounts.change_roster("a", change("n0@x", None), &mut world.outbox).unwrap();
    world.accounts.change_roster("a", change("new@x", put(text(10), 2)), &mut world.outbox).unwrap();
    world.accounts.change_roster("b", change("new@x", put(text(10), 10)), &mut world.outbox).unwrap();
}

#[test]
fn requests_of_strangers_do_not_fill_the_roster() {
    let mut world = World::present();
    for n in 0..PENDING_MAX + 5 {
        let name = format!("s{n}");
        world.accounts.put(&name, "p", None).unwrap();
        let session = 100 + n as u8;
        world.come(&name, session, "r");
        world.subscription(&name, session, "a@x", "subscribe");
    }
    let pending = world.accounts.accounts["a"].roster.values().filter(|item| item.pending.is_some()).count();
    assert_eq!(pending, PENDING_MAX);
    // Pre-approved contacts and outbound requests need no room.
    world.subscription("a", A, "b@x", "subscribed");
    world.subscription("b", B, "a@x", "subscribe");
    assert!(world.state("a", "b@x").contains("from"));
    // After an answer there is room again.
    world.subscription("a", A, "s0@x", "unsubscribed");
    world.subscription("s34", 134, "a@x", "subscribe");
    assert!(world.accounts.accounts["a"].roster["s34@x"].pending.is_some());
}

/// A quote takes six bytes in an attribute.
#[test]
fn pending_requests_fit_the_send_queue() {
    let mut world = World::new();
    let largest = |kind: &str| {
        let (attribute, status) = ("\"".to_owned() + &"'".repeat(255) + "\"", text(PRESENCE_BYTES_MAX - 100));
        format!(
            "<presence type='{kind}' id={attribute} xml:lang={attribute}><status>{status}</status></presence>"
        )
    };
    for n in 0..PENDING_MAX {
        let (name, session) = (format!("s{n:02}"), 100 + n as u8);
        world.accounts.put(&name, "p", None).unwrap();
        world.come(&name, session, "r");
        world.say(&name, session, "a@x", &largest("subscribe"));
    }
    let outbox = |world: &mut World| {
        world.outbox.clear();
        world.announce("a", A, "<presence type='unavailable'/>");
        world.announce("a", A, "<presence/>");
        let asked =
            world.outbox.iter().filter(|(_, stanza)| short(stanza).starts_with("presence subscribe "));
        let bytes: Vec<usize> = asked.map(|(_, stanza)| stanza.len()).collect();
        assert!((1..=PENDING_BYTES_MAX).contains(&bytes.iter().sum()), "{bytes:?}");
        bytes.len()
    };
    let at_once = outbox(&mut world);
    assert!(at_once < PENDING_MAX / 2, "{at_once}");
    // The others follow once these are answered.
    for n in 0..PENDING_MAX - at_once {
        world.subscription("a", A, &format!("s{n:02}@x"), "unsubscribed");
    }
    assert_eq!(outbox(&mut world), at_once);
    assert_eq!(world.state("a", "s29@x"), "in");
}

#[test]
fn personal_item_fits_the_send_queue() {
    let item = |count: usize, node: &str| {
        let text = format!("<item id=\"{}\"><e xmlns='e'/></item>", "'".repeat(count));
        let (scope, limits) = (Scope::default(), Limits::default());
        PersonalItem::parse(node, Some(parse_element(&text, Some(&scope), &limits).unwrap().root()))
    };
    let mut world = World::friends();
    world.accounts.want("b", B, vec!["n".into()], &mut world.outbox);
    let kept = (0..).take_while(|count| item(*count, "n").is_ok()).count();
    world.accounts.publish("a", item(kept - 1, "n").unwrap(), &mut world.outbox).unwrap();
    let event = world.outbox.last().unwrap().1.len();
    assert!((10_000..limits::SEND_QUEUE_SOFT_BYTES).contains(&event), "{event}");
    assert_eq!(item(1, &"'".repeat(5_000)), Err((StanzaError::NotAcceptable, "payload-too-big")));
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

#[test]
fn last_items_fit_the_send_queue() {
    let mut world = World::friends();
    let mut nodes = Vec::new();
    for n in 0..20 {
        let inside = format!("<item xmlns='{}'><e xmlns='e'>{}</e></item>", ns::PUBSUB, text(9_000));
        let tree = parse_element(&inside, None, &Limits::default()).unwrap();
        let item = PersonalItem::parse(&format!("n{n}"), Some(tree.root())).unwrap();
        world.accounts.publish("a", item, &mut world.outbox).unwrap();
        nodes.push(format!("n{n}").into());
    }
    world.outbox.clear();
    world.accounts.want("b", B, nodes, &mut world.outbox);
    let outbox: usize = world.outbox.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!((100_000..=limits::SEND_QUEUE_BYTES / 2).contains(&outbox), "{outbox}");
}

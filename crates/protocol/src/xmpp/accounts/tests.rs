//! Accounts that say things to each other, and what each of their sessions is told of it.

use super::*;
use crate::xmpp::xml::{Limits, Scope, parse_element};

const A: u8 = 1;
const B: u8 = 2;

/// Sessions are numbers; `a` and `b` have one each, `/r`.
struct World {
    accounts: Accounts<u8>,
    told: Told<u8>,
}

fn relayed(text: &str) -> Relayed {
    let (scope, limits) = (Scope::default(), Limits::default());
    let tree = parse_element(text, Some(&scope), &limits).unwrap();
    let name = ["iq", "message", "presence"].into_iter().find(|name| tree.root().name() == *name).unwrap();
    Relayed::new(name, tree.root())
}

fn recipient(to: &str) -> Recipient {
    let (bare, resource) = to.split_once('/').map_or((to, None), |(bare, resource)| (bare, Some(resource)));
    Recipient { asked: to.into(), bare: bare.into(), resource: resource.map(Into::into) }
}

impl World {
    fn new() -> Self {
        let accounts = Accounts::new("x", [("a", "p"), ("b", "p"), ("c", "p")]);
        let mut world = Self { accounts, told: Told::new() };
        for (user, session) in [("a", A), ("b", B)] {
            world.come(user, session, "r");
            world.accounts.roster(user, session);
        }
        world
    }

    fn come(&mut self, user: &str, session: u8, resource: &str) {
        self.accounts.attach(user, session, resource, false, &mut self.told);
    }

    fn announce(&mut self, user: &str, session: u8, text: &str) {
        self.accounts.announce(user, session, relayed(text), &mut self.told);
    }

    /// Both are there.
    fn present() -> Self {
        let mut world = Self::new();
        world.announce("a", A, "<presence/>");
        world.announce("b", B, "<presence/>");
        world.told.clear();
        world
    }

    fn say(&mut self, user: &str, session: u8, to: &str, text: &str) -> Outcome {
        let (to, stanza) = (recipient(to), relayed(text));
        if stanza.is_presence() {
            self.accounts.direct(user, session, &to, &stanza, &mut self.told);
            return Outcome::Done;
        }
        self.accounts.route(user, session, &to, &stanza, "now", &mut self.told)
    }

    fn subscription(&mut self, user: &str, session: u8, to: &str, kind: &str) {
        self.say(user, session, to, &format!("<presence type='{kind}'/>"));
    }

    /// What a session was told since, in short: pushes as `jid subscription ask approved`, others as their
    /// name, type and sender.
    fn heard(&mut self, session: u8) -> Vec<String> {
        let (mine, others) = self.told.drain(..).partition(|(to, _)| *to == session);
        self.told = others;
        let mine: Told<u8> = mine;
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

    /// A mutual subscription.
    fn friends() -> Self {
        let mut world = Self::present();
        world.subscription("a", A, "b@x", "subscribe");
        world.subscription("b", B, "a@x", "subscribed");
        world.subscription("b", B, "a@x", "subscribe");
        world.subscription("a", A, "b@x", "subscribed");
        assert_eq!(world.state("a", "b@x"), "listed to from");
        assert_eq!(world.state("b", "a@x"), "listed to from");
        world.told.clear();
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
fn a_subscription_is_asked_for_approved_and_ended() {
    let mut world = World::present();
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.heard(A), ["b@x none subscribe"]);
    assert_eq!(world.heard(B), ["presence subscribe a@x"], "no push: it is not listed");
    assert_eq!((world.state("a", "b@x"), world.state("b", "a@x")), ("listed out".into(), "in".into()));
    // Once.
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.heard(B), [""; 0]);
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(world.heard(B), ["a@x from"]);
    assert_eq!(world.heard(A), ["presence subscribed b@x", "b@x to", "presence b@x/r"]);
    // It has it: the server answers.
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.heard(B), [""; 0]);
    world.told.clear();
    world.subscription("b", B, "a@x", "unsubscribed");
    assert_eq!(world.heard(B), ["a@x none"]);
    assert_eq!(world.heard(A), ["presence unsubscribed b@x", "b@x none", "presence unavailable b@x/r"]);
}

#[test]
fn either_side_ends_it() {
    let mut world = World::friends();
    world.subscription("a", A, "b@x", "unsubscribe");
    assert_eq!(world.heard(B), ["presence unsubscribe a@x", "a@x to"]);
    assert_eq!(world.heard(A), ["b@x from", "presence unavailable b@x/r"]);
    assert_eq!(
        (world.state("a", "b@x"), world.state("b", "a@x")),
        ("listed from".into(), "listed to".into())
    );

    let mut world = World::friends();
    let remove = RosterChange { bare: "b@x".into(), put: None };
    world.accounts.change_roster("a", remove, &mut world.told).unwrap();
    assert_eq!(world.heard(A), ["b@x remove", "presence unavailable b@x/r"]);
    let heard = world.heard(B);
    assert_eq!(
        heard,
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
    assert_eq!(world.accounts.change_roster("a", again, &mut world.told), Err(Refusal::NotFound));
}

#[test]
fn who_is_removed_leaves_nothing_behind() {
    let mut world = World::friends();
    world.come("a", 9, "other");
    assert_eq!(world.accounts.remove("a", &mut world.told), [A, 9]);
    let heard = world.heard(B);
    assert!(heard.ends_with(&["presence unavailable a@x/r".to_owned()]), "{heard:?}");
    assert_eq!((world.state("b", "a@x"), world.accounts.has("a")), ("listed".into(), false));
    // Nobody approves it.
    world.subscription("b", B, "a@x", "subscribe");
    assert_eq!(world.heard(B), ["a@x none subscribe", "presence unsubscribed a@x", "a@x none"]);
}

#[test]
fn approval_in_advance_is_the_servers_answer() {
    let mut world = World::present();
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(world.heard(B), ["a@x none true"]);
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.heard(B), ["a@x from true"], "it is not asked");
    let heard = world.heard(A);
    assert_eq!(heard, ["b@x none subscribe", "presence subscribed b@x", "b@x to", "presence b@x/r"]);
}

#[test]
fn a_request_waits_and_is_told_each_time() {
    let mut world = World::new();
    world.announce("a", A, "<presence/>");
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.heard(B), [""; 0], "it is not there");
    world.announce("b", B, "<presence/>");
    assert_eq!(world.heard(B), ["presence b@x/r", "presence subscribe a@x"]);
    world.announce("b", B, "<presence><show>away</show></presence>");
    assert_eq!(world.heard(B), ["presence b@x/r"], "an update");
    world.announce("b", B, "<presence type='unavailable'/>");
    world.announce("b", B, "<presence/>");
    assert_eq!(world.heard(B), ["presence b@x/r", "presence subscribe a@x"]);
}

#[test]
fn presence_goes_to_contacts_and_own_resources() {
    let mut world = World::friends();
    world.come("a", 3, "phone");
    world.announce("a", 3, "<presence><priority>5</priority></presence>");
    assert_eq!(world.heard(A), ["presence a@x/phone"]);
    assert_eq!(world.heard(B), ["presence a@x/phone"]);
    // Itself, the other resource, and the contact.
    assert_eq!(world.heard(3), ["presence a@x/phone", "presence a@x/r", "presence b@x/r"]);
    world.announce("a", 3, "<presence type='unavailable' id='u'/>");
    assert_eq!(world.heard(B), ["presence unavailable a@x/phone u"]);
    assert_eq!(world.heard(A), ["presence unavailable a@x/phone u"]);
    // A stream that just ends.
    world.accounts.detach("a", A, &mut world.told);
    assert_eq!(world.heard(B), ["presence unavailable a@x/r"]);
    assert_eq!(world.heard(3), [""; 0]);
    // It is resumed, and there again.
    world.accounts.attach("a", 7, "r", true, &mut world.told);
    assert_eq!(world.heard(B), ["presence a@x/r"]);
    // The same resource begins anew.
    world.accounts.attach("a", 8, "r", false, &mut world.told);
    assert_eq!(world.heard(B), ["presence unavailable a@x/r"]);
    world.accounts.detach("a", 7, &mut world.told);
    assert_eq!(world.heard(B), [""; 0], "it was replaced");
}

#[test]
fn presence_with_an_address_ends_with_the_rest() {
    let mut world = World::present();
    world.say("a", A, "b@x", "<presence/>");
    world.say("a", A, "b@x/nobody", "<presence/>");
    assert_eq!(world.heard(B), ["presence a@x/r"]);
    world.announce("a", A, "<presence><show>away</show></presence>");
    assert_eq!(world.heard(B), [""; 0], "no contact");
    world.announce("a", A, "<presence type='unavailable'/>");
    assert_eq!(world.heard(B), ["presence unavailable a@x/r"]);
    // It took it back itself.
    world.say("a", A, "b@x/r", "<presence/>");
    world.say("a", A, "b@x/r", "<presence type='unavailable'/>");
    assert_eq!(world.heard(B).len(), 2);
    world.accounts.detach("a", A, &mut world.told);
    assert_eq!(world.heard(B), [""; 0]);
}

#[test]
fn a_probe_tells_what_may_be_known() {
    let mut world = World::friends();
    world.say("a", A, "b@x", "<presence type='probe'/>");
    assert_eq!(world.heard(A), ["presence b@x/r"]);
    world.say("a", A, "b@x/gone", "<presence type='probe'/>");
    assert_eq!(world.heard(A), ["presence unavailable b@x"]);
    for stranger in ["c@x", "nobody@x"] {
        world.say("a", A, stranger, "<presence type='probe'/>");
        assert_eq!(world.heard(A), [format!("presence unsubscribed {stranger}")]);
    }
}

/// RFC 6121 §8.5.2 and §8.5.3: who of `b`'s gets what, and what comes back (`!`).
#[test]
fn messages_find_their_resources() {
    let mut world = World::present();
    for (session, resource, priority) in
        [(11, "low", "1"), (12, "high", "5"), (13, "top", "5"), (14, "no", "-1")]
    {
        world.come("b", session, resource);
        world.announce("b", session, &format!("<presence><priority>{priority}</priority></presence>"));
    }
    world.come("b", 15, "silent");
    world.told.clear();
    let mut check = |to: &str, kind: &str, expected: &[u8], refused: bool| {
        let text = format!("<message type='{kind}'><body>x</body></message>");
        let outcome = world.say("a", A, to, &text);
        let heard: Vec<u8> = world.told.drain(..).map(|(session, _)| session).collect();
        assert_eq!((&*heard, outcome == Outcome::Refused), (expected, refused), "{to} {kind}");
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
    check("nobody@x", "chat", &[], true);
    check("nobody@x", "error", &[], false);
    let iq = "<iq type='get' id='i'><query xmlns='u'/></iq>";
    assert_eq!(world.say("a", A, "b@x/no", iq), Outcome::Done);
    assert_eq!(world.say("a", A, "b@x/gone", iq), Outcome::Refused);
    assert_eq!(world.say("a", A, "b@x/gone", "<iq type='result' id='i'/>"), Outcome::Done);
    assert_eq!(world.say("a", A, "b@x", iq), Outcome::Refused);
}

#[test]
fn what_finds_nobody_waits() {
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
    world.told.clear();
    world.announce("b", B, "<presence/>");
    let delayed = |(_, bytes): &(u8, Bytes)| {
        std::str::from_utf8(bytes).unwrap().contains("<delay xmlns='urn:xmpp:delay' from='x' stamp='now'/>")
    };
    assert_eq!(world.told.iter().filter(|told| delayed(told)).count(), 2);
    assert_eq!(world.heard(B), ["presence b@x/r", "message chat a@x/r chat", "message normal a@x/r normal"]);
    world.announce("b", B, "<presence type='unavailable'/>");
    for _ in 0..KEPT_MAX {
        assert_eq!(send(&mut world, "chat", "<body>x</body>"), Outcome::Done);
    }
    assert_eq!(send(&mut world, "chat", "<body>x</body>"), Outcome::Refused);
}

#[test]
fn everything_is_bounded() {
    let mut world = World::present();
    let put = |name: &str| RosterChange { bare: format!("{name}@y").into(), put: Some(("".into(), vec![])) };
    for n in 0..ROSTER_MAX {
        world.accounts.change_roster("a", put(&n.to_string()), &mut world.told).unwrap();
    }
    let one_more = world.accounts.change_roster("a", put("more"), &mut world.told);
    assert_eq!(one_more, Err(Refusal::Overloaded));
    assert_eq!(world.accounts.change_roster("a", put("0"), &mut world.told), Ok(()));
    world.told.clear();
    world.subscription("b", B, "a@x", "subscribe");
    assert_eq!(world.heard(A), [""; 0], "no room");
    // `r` is there already; one that went makes room, one that is there does not.
    for n in 1..RESOURCES_MAX as u8 {
        world.come("a", 20 + n, &n.to_string());
    }
    assert_eq!(world.accounts.reserve("a", "more"), None);
    assert_eq!(world.accounts.reserve("a", "r"), Some(0));
    world.accounts.detach("a", 21, &mut world.told);
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
fn what_is_published_goes_to_those_who_want_it() {
    let mut world = World::friends();
    let item = |text: &str| {
        let text = format!("<item id='{text}'><mood xmlns='m'>{text}</mood></item>");
        let (scope, limits) = (Scope::default(), Limits::default());
        PersonalItem::parse("m", parse_element(&text, Some(&scope), &limits).unwrap().root()).unwrap()
    };
    // Asked once for each of its capabilities, and only then.
    let presence =
        "<presence><c xmlns='http://jabber.org/protocol/caps' node='n' ver='1' hash='h'/></presence>";
    world.announce("b", B, presence);
    assert_eq!(world.heard(B), ["presence b@x/r", "iq get x capabilities"]);
    world.announce("b", B, presence);
    assert_eq!(world.heard(B), ["presence b@x/r"]);
    world.accounts.publish("a", item("1"), &mut world.told).unwrap();
    assert_eq!(world.heard(B), [""; 0], "it does not want to hear of it");
    world.accounts.want("b", B, vec!["m".into(), "other".into()], &mut world.told);
    assert_eq!(world.heard(B), ["message headline a@x 1"], "the last one");
    world.accounts.want("b", B, vec!["m".into()], &mut world.told);
    assert_eq!(world.heard(B), [""; 0]);
    let done = world.accounts.publish("a", item("2"), &mut world.told).unwrap();
    assert!(done.ends_with(b"<publish node='m'><item id='2'/></publish></pubsub>"));
    assert_eq!(world.heard(B), ["message headline a@x 2"]);
    let items = world.accounts.items("b", "a@x", "m").unwrap();
    assert!(items.ends_with(b"<item id='2'><mood xmlns='m'>2</mood></item></items></pubsub>"), "{items:?}");
    assert_eq!(world.accounts.items("c", "a@x", "m"), Err(Refusal::Forbidden));
    let known = ["a", "b", "c"].map(|user| world.accounts.knows(user, "a@x"));
    assert_eq!(known, [true, true, false]);
    assert_eq!(world.accounts.items("a", "a@x", "none"), Err(Refusal::NotFound));
    // Who is no contact any more hears nothing.
    world.subscription("a", A, "b@x", "unsubscribed");
    world.told.clear();
    world.accounts.publish("a", item("3"), &mut world.told).unwrap();
    assert_eq!(world.heard(B), [""; 0]);
}

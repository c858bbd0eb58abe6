//! `a` is away, and `p` is where it is told that something waits.

use super::*;
use crate::xmpp::accounts::{Outcome, Recipient};
use crate::xmpp::xml::{Limits, Scope, parse_element};
use noroshi_types::Timestamp;

const P: u8 = 1;
const B: u8 = 2;

struct World {
    accounts: Accounts<u8>,
    told: Told<u8>,
}

fn change(text: &str) -> Result<PushChange, StanzaError> {
    let tree = parse_element(text, None, &Limits::default()).unwrap();
    PushChange::parse(tree.root(), ("x", "pubsub.x", "a@x"))
}

fn enable(attributes: &str) -> String {
    format!("<enable xmlns='urn:xmpp:push:0' {attributes}/>")
}

/// The answer to a request by its count.
fn error(request: u64, kind: &str) -> String {
    format!("<iq type='error' id='push-notification-{request}'><error type='{kind}'/></iq>")
}

impl World {
    fn new() -> Self {
        let accounts = Accounts::new("x", 0xE, [("a", "p"), ("b", "p"), ("p", "p")]);
        let mut world = Self { accounts, told: Told::new() };
        world.accounts.attach("p", P, "push", false, &mut world.told);
        world.accounts.attach("b", B, "r", false, &mut world.told);
        world
    }

    fn change(&mut self, text: &str) {
        self.accounts.change_push("a", change(text).unwrap()).unwrap();
    }

    fn send(&mut self, user: &str, session: u8, name: &'static str, to: &str, text: &str) -> Outcome {
        let (scope, limits) = (Scope::default(), Limits::default());
        let tree = parse_element(text, Some(&scope), &limits).unwrap();
        let stanza = Relayed::new(name, tree.root(), 10_000).unwrap();
        let to = Recipient { asked: to.into(), bare: to.into(), resource: None };
        self.accounts.route(user, session, &to, &stanza, Timestamp(0), &mut self.told)
    }

    /// What the push service hears of a message to `a`.
    fn message(&mut self) -> String {
        self.told.clear();
        let text = "<message type='chat'><body>secret</body></message>";
        assert_eq!(self.send("b", B, "message", "a@x", text), Outcome::Done);
        assert!(self.told.iter().all(|(session, _)| *session == P));
        self.told.iter().map(|(_, bytes)| std::str::from_utf8(bytes).unwrap()).collect()
    }

    /// Registrations of `a`.
    fn pushes(&self) -> usize {
        self.accounts.accounts["a"].pushes.len()
    }

    fn answer(&mut self, user: &str, session: u8, text: &str) {
        self.send(user, session, "iq", "a@x", text);
    }
}

#[test]
fn who_is_away_has_it_published_that_messages_wait() {
    let mut world = World::new();
    assert_eq!(world.message(), "");
    world.change(
        "<enable xmlns='urn:xmpp:push:0' jid='p@x/push' node='n1'><x xmlns='jabber:x:data' type='submit'>\
         <field var='secret'><value>s</value></field></x></enable>",
    );
    assert_eq!(
        world.message(),
        "<iq xmlns='jabber:client' type='set' id='push-notification-1' from='a@x' to='p@x/push'>\
         <pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='n1'><item>\
         <notification xmlns='urn:xmpp:push:0'><x xmlns='jabber:x:data' type='submit'>\
         <field var='FORM_TYPE'><value>urn:xmpp:push:summary</value></field>\
         <field var='message-count'><value>2</value></field></x></notification></item></publish>\
         <publish-options><x xmlns='jabber:x:data' type='submit'><field var='secret'><value>s</value></field></x>\
         </publish-options></pubsub></iq>"
    );
    // Someone who is there needs none.
    world.accounts.attach("a", 9, "r", false, &mut world.told);
    let presence = {
        let scope = Scope::default();
        let tree = parse_element("<presence/>", Some(&scope), &Limits::default()).unwrap();
        Relayed::new("presence", tree.root(), 100).unwrap()
    };
    world.accounts.announce("a", 9, presence, &mut world.told);
    world.told.clear();
    world.send("b", B, "message", "a@x", "<message type='chat'><body>x</body></message>");
    assert!(world.told.iter().all(|(session, _)| *session == 9));
}

#[test]
fn a_registration_ends_when_it_is_disabled_or_refused() {
    let mut world = World::new();
    let disable = |attributes: &str| enable(attributes).replace("enable", "disable");
    for node in ["1", "2"] {
        world.change(&enable(&format!("jid='P@x/push' node='{node}'")));
    }
    world.change(&disable("jid='p@x/push' node='1'"));
    let told = world.message();
    assert!(!told.contains("node='1'") && told.contains("node='2'"), "{told}");
    world.change(&disable("jid='p@x/push'"));
    assert_eq!(world.message(), "");
    world.change(&disable("jid='p@x/push'"));
    // An answer of somebody else, a result, an error that passes.
    world.change(&enable("jid='p@x/push'"));
    assert!(world.message().contains("push-notification-2'"));
    world.answer("b", B, &error(2, "cancel"));
    world.answer("p", P, &error(2, "cancel").replace("push-notification-2", "other"));
    world.answer("p", P, "<iq type='result' id='push-notification-2'/>");
    world.answer("p", P, &error(2, "wait"));
    assert!(world.message().contains("push-notification-3'"));
    world.answer("p", P, &error(3, "cancel"));
    assert_eq!(world.message(), "");
    // Its resource may come back.
    world.change(&enable("jid='p@x/push'"));
    world.accounts.detach("p", P, &mut world.told);
    assert_eq!(world.message(), "");
    assert_eq!(world.pushes(), 1);
}

/// XEP-0357 §7.1: "the particular JID and node combination".
#[test]
fn an_error_ends_the_registration_that_it_answers() {
    let mut world = World::new();
    for node in ["1", "2"] {
        world.change(&enable(&format!("jid='p@x/push' node='{node}'")));
    }
    let told = world.message();
    assert!(told.contains("id='push-notification-1'") && told.contains("id='push-notification-2'"), "{told}");
    world.answer("p", P, &error(1, "cancel"));
    let told = world.message();
    assert!(!told.contains("<publish node='1'>") && told.contains("<publish node='2'>"), "{told}");
    // One that comes late, of a request before the registration was made anew.
    world.change(&enable("jid='p@x/push' node='2'"));
    world.answer("p", P, &error(3, "cancel"));
    let told = world.message();
    assert!(told.contains("id='push-notification-4'") && told.contains("<publish node='2'>"), "{told}");
}

/// Whoever has the name of a push service next is told nothing: the options may hold a secret.
#[test]
fn a_registration_ends_with_what_it_names() {
    let mut world = World::new();
    world.change(
        "<enable xmlns='urn:xmpp:push:0' jid='p@x/push' node='n'><x xmlns='jabber:x:data' type='submit'>\
         <field var='secret'><value>s</value></field></x></enable>",
    );
    world.accounts.put("pp", "p", None).unwrap();
    world.change(&enable("jid='pp@x/push'"));
    world.accounts.remove("p", &mut world.told);
    assert_eq!(world.pushes(), 1, "the other's name only begins alike");
    world.accounts.put("p", "q", None).unwrap();
    world.accounts.attach("p", P, "push", false, &mut world.told);
    assert_eq!(world.message(), "");
    // A node that another account makes after the one that was meant is gone.
    let make = |name: &str| {
        let open = vec![("pubsub#publish_model".into(), vec!["open".into()])];
        NodeRequest::Create { node: Some(name.into()), form: open }
    };
    for name in ["first", "second"] {
        world.accounts.ask_node("p", make(name), &mut world.told).unwrap();
        world.change(&enable(&format!("jid='pubsub.x' node='{name}'")));
    }
    world.accounts.ask_node("p", NodeRequest::Delete { node: "first".into() }, &mut world.told).unwrap();
    world.accounts.ask_node("b", make("first"), &mut world.told).unwrap();
    world.message();
    let items = |world: &mut World, user: &str, node: &str| {
        let request = NodeRequest::Items { node: node.into(), ids: Vec::new(), max: 9 };
        let items = world.accounts.ask_node(user, request, &mut world.told).unwrap().unwrap();
        std::str::from_utf8(&items).unwrap().matches("<item ").count()
    };
    assert_eq!((items(&mut world, "b", "first"), items(&mut world, "p", "second")), (0, 1));
}

#[test]
fn a_node_is_told_where_the_account_may_publish() {
    let mut world = World::new();
    let node = |name: &str| NodeRequest::Create { node: Some(name.into()), form: Vec::new() };
    world.accounts.ask_node("p", node("waiting"), &mut world.told).unwrap();
    let subscribe = NodeRequest::Subscribe { node: "waiting".into(), jid: "p@x".into(), has_options: false };
    world.accounts.ask_node("p", subscribe, &mut world.told).unwrap();
    let presence = {
        let scope = Scope::default();
        let tree = parse_element("<presence/>", Some(&scope), &Limits::default()).unwrap();
        Relayed::new("presence", tree.root(), 100).unwrap()
    };
    world.accounts.announce("p", P, presence, &mut world.told);
    // It may not: the registration ends.
    world.change(&enable("jid='pubsub.x' node='waiting'"));
    assert_eq!(world.message(), "");
    assert_eq!(world.pushes(), 0);
    let open = vec![("pubsub#publish_model".into(), vec!["open".into()])];
    let open = NodeRequest::Configure { node: "waiting".into(), form: Some(open) };
    world.accounts.ask_node("p", open, &mut world.told).unwrap();
    world.change(&enable("jid='pubsub.x' node='waiting'"));
    let told = world.message();
    assert!(
        told.contains("<items node='waiting'>") && told.contains("<notification xmlns='urn:xmpp:push:0'>"),
        "{told}"
    );
    assert!(!told.contains("secret") && !told.contains("b@x"), "{told}");
    let gone = NodeRequest::Delete { node: "waiting".into() };
    world.accounts.ask_node("p", gone, &mut world.told).unwrap();
    world.message();
    assert_eq!(world.pushes(), 0);
}

#[test]
fn what_cannot_be_told_is_refused_and_the_rest_is_bounded() {
    for (attributes, refused) in [
        ("", StanzaError::BadRequest),
        ("jid='@x'", StanzaError::BadRequest),
        ("jid='push.example.com' node='n'", StanzaError::RemoteServerNotFound),
        ("jid='p@y/push'", StanzaError::RemoteServerNotFound),
        ("jid='x'", StanzaError::NotAcceptable),
        ("jid='p@x'", StanzaError::NotAcceptable),
        ("jid='a@x/other'", StanzaError::NotAcceptable),
        ("jid='pubsub.x'", StanzaError::BadRequest),
    ] {
        assert_eq!(change(&enable(attributes)), Err(refused), "{attributes}");
    }
    let long = format!("jid='p@x/push' node='{}'", "n".repeat(NODE_BYTES_MAX + 1));
    assert_eq!(change(&enable(&long)), Err(StanzaError::NotAcceptable));
    let form = format!("<x xmlns='jabber:x:data'>{}</x>", "x".repeat(OPTIONS_BYTES_MAX));
    let large = enable("jid='p@x/push'").replace("/>", &format!(">{form}</enable>"));
    assert_eq!(change(&large), Err(StanzaError::NotAcceptable));
    // A node has no use for options, and they may hold a secret.
    let options = "<x xmlns='jabber:x:data' type='submit'/></enable>";
    let with_options = enable("jid='pubsub.x' node='n'").replace("/>", &format!(">{options}"));
    assert_eq!(change(&with_options), Err(StanzaError::NotAcceptable));
    let mut world = World::new();
    let one = |n: usize| change(&enable(&format!("jid='p@x/push' node='{n}'"))).unwrap();
    for n in 0..REGISTRATIONS_MAX {
        world.accounts.change_push("a", one(n)).unwrap();
    }
    assert_eq!(world.accounts.change_push("a", one(99)), Err(Refusal::Overloaded));
    world.accounts.change_push("a", one(0)).unwrap();
    world.accounts.change_push("b", one(99)).unwrap();
}

/// XEP-0280 §7: what waits is delivered later, so nobody gets a copy of it now.
#[test]
fn a_push_is_no_delivery_of_which_there_are_copies() {
    let mut world = World::new();
    world.accounts.attach("a", 9, "away", false, &mut world.told);
    world.accounts.copy("a", 9, true);
    world.change(&enable("jid='p@x/push'"));
    assert!(world.message().contains("<publish>"));
}

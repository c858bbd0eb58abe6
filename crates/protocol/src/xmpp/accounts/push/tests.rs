//! `a` is offline, and `p` receives its push notifications.

use super::*;
use crate::xmpp::accounts::NodeCommand;
use crate::xmpp::accounts::{Outcome, Recipient};
use crate::xmpp::xml::{Limits, Scope, parse_element};
use noroshi_types::Timestamp;

const P: u8 = 1;
const B: u8 = 2;

struct World {
    accounts: Accounts<u8>,
    outbox: Outbox<u8>,
}

fn change(text: &str) -> Result<PushChange, StanzaError> {
    let tree = parse_element(text, None, &Limits::default()).unwrap();
    PushChange::parse(tree.root(), ("x", "pubsub.x", "a@x"))
}

fn enable(attributes: &str) -> String {
    format!("<enable xmlns='urn:xmpp:push:0' {attributes}/>")
}

/// An error response to a request, by its count.
fn error(request: u64, kind: &str) -> String {
    format!("<iq type='error' id='push-notification-{request}'><error type='{kind}'/></iq>")
}

impl World {
    fn new() -> Self {
        let accounts = Accounts::new("x", 0xE, [("a", "p"), ("b", "p"), ("p", "p")]);
        let mut world = Self { accounts, outbox: Outbox::new() };
        world.accounts.attach("p", P, "push", false, &mut world.outbox);
        world.accounts.attach("b", B, "r", false, &mut world.outbox);
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
        self.accounts.route(user, session, &to, &stanza, Timestamp(0), &mut self.outbox)
    }

    /// What the push service receives for a message to `a`.
    fn message(&mut self) -> String {
        self.outbox.clear();
        let text = "<message type='chat'><body>secret</body></message>";
        assert_eq!(self.send("b", B, "message", "a@x", text), Outcome::Done);
        assert!(self.outbox.iter().all(|(session, _)| *session == P));
        self.outbox.iter().map(|(_, bytes)| std::str::from_utf8(bytes).unwrap()).collect()
    }

    /// The number of registrations of `a`.
    fn pushes(&self) -> usize {
        self.accounts.accounts["a"].pushes.len()
    }

    fn answer(&mut self, user: &str, session: u8, text: &str) {
        self.send(user, session, "iq", "a@x", text);
    }
}

#[test]
fn offline_account_gets_push_notifications() {
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
    // An available account needs no push.
    world.accounts.attach("a", 9, "r", false, &mut world.outbox);
    let presence = {
        let scope = Scope::default();
        let tree = parse_element("<presence/>", Some(&scope), &Limits::default()).unwrap();
        Relayed::new("presence", tree.root(), 100).unwrap()
    };
    world.accounts.announce("a", 9, presence, &mut world.outbox);
    world.outbox.clear();
    world.send("b", B, "message", "a@x", "<message type='chat'><body>x</body></message>");
    assert!(world.outbox.iter().all(|(session, _)| *session == 9));
}

#[test]
fn registration_ends_when_disabled_or_rejected() {
    let mut world = World::new();
    let disable = |attributes: &str| enable(attributes).replace("enable", "disable");
    for node in ["1", "2"] {
        world.change(&enable(&format!("jid='P@x/push' node='{node}'")));
    }
    world.change(&disable("jid='p@x/push' node='1'"));
    let outbox = world.message();
    assert!(!outbox.contains("node='1'") && outbox.contains("node='2'"), "{outbox}");
    world.change(&disable("jid='p@x/push'"));
    assert_eq!(world.message(), "");
    world.change(&disable("jid='p@x/push'"));
    // A response of another account, a result, a temporary error.
    world.change(&enable("jid='p@x/push'"));
    assert!(world.message().contains("push-notification-2'"));
    world.answer("b", B, &error(2, "cancel"));
    world.answer("p", P, &error(2, "cancel").replace("push-notification-2", "other"));
    world.answer("p", P, "<iq type='result' id='push-notification-2'/>");
    world.answer("p", P, &error(2, "wait"));
    assert!(world.message().contains("push-notification-3'"));
    world.answer("p", P, &error(3, "cancel"));
    assert_eq!(world.message(), "");
    // The resource may return.
    world.change(&enable("jid='p@x/push'"));
    world.accounts.detach("p", P, &mut world.outbox);
    assert_eq!(world.message(), "");
    assert_eq!(world.pushes(), 1);
}

/// XEP-0357 §7.1: "the particular JID and node combination".
#[test]
fn error_ends_the_registration_that_it_answers() {
    let mut world = World::new();
    for node in ["1", "2"] {
        world.change(&enable(&format!("jid='p@x/push' node='{node}'")));
    }
    let outbox = world.message();
    assert!(
        outbox.contains("id='push-notification-1'") && outbox.contains("id='push-notification-2'"),
        "{outbox}"
    );
    world.answer("p", P, &error(1, "cancel"));
    let outbox = world.message();
    assert!(!outbox.contains("<publish node='1'>") && outbox.contains("<publish node='2'>"), "{outbox}");
    // A late error, to a request of the previous registration.
    world.change(&enable("jid='p@x/push' node='2'"));
    world.answer("p", P, &error(3, "cancel"));
    let outbox = world.message();
    assert!(outbox.contains("id='push-notification-4'") && outbox.contains("<publish node='2'>"), "{outbox}");
}

/// A later account with the name of a push service receives nothing: the options may contain a secret.
#[test]
fn registration_ends_with_its_target() {
    let mut world = World::new();
    world.change(
        "<enable xmlns='urn:xmpp:push:0' jid='p@x/push' node='n'><x xmlns='jabber:x:data' type='submit'>\
         <field var='secret'><value>s</value></field></x></enable>",
    );
    world.accounts.put("pp", "p", None).unwrap();
    world.change(&enable("jid='pp@x/push'"));
    world.accounts.remove("p", &mut world.outbox);
    assert_eq!(world.pushes(), 1, "the other's name only begins alike");
    world.accounts.put("p", "q", None).unwrap();
    world.accounts.attach("p", P, "push", false, &mut world.outbox);
    assert_eq!(world.message(), "");
    // A node that another account creates after the original one was deleted.
    let make = |name: &str| {
        let open = vec![("pubsub#publish_model".into(), vec!["open".into()])];
        NodeRequest::new(name, NodeCommand::Create(open))
    };
    for name in ["first", "second"] {
        world.accounts.ask_node("p", make(name), &mut world.outbox).unwrap();
        world.change(&enable(&format!("jid='pubsub.x' node='{name}'")));
    }
    world.accounts.ask_node("p", NodeRequest::new("first", NodeCommand::Delete), &mut world.outbox).unwrap();
    world.accounts.ask_node("b", make("first"), &mut world.outbox).unwrap();
    world.message();
    let items = |world: &mut World, user: &str, node: &str| {
        let request = NodeRequest::new(node, NodeCommand::Items { ids: Vec::new(), max: 9 });
        let items = world.accounts.ask_node(user, request, &mut world.outbox).unwrap().unwrap();
        std::str::from_utf8(&items).unwrap().matches("<item ").count()
    };
    assert_eq!((items(&mut world, "b", "first"), items(&mut world, "p", "second")), (0, 1));
}

#[test]
fn push_to_a_node_requires_publish_permission() {
    let mut world = World::new();
    let node = |name: &str| NodeRequest::new(name, NodeCommand::Create(Vec::new()));
    world.accounts.ask_node("p", node("waiting"), &mut world.outbox).unwrap();
    let subscribe =
        NodeRequest::new("waiting", NodeCommand::Subscribe { jid: "p@x".into(), has_options: false });
    world.accounts.ask_node("p", subscribe, &mut world.outbox).unwrap();
    let presence = {
        let scope = Scope::default();
        let tree = parse_element("<presence/>", Some(&scope), &Limits::default()).unwrap();
        Relayed::new("presence", tree.root(), 100).unwrap()
    };
    world.accounts.announce("p", P, presence, &mut world.outbox);
    // Without publish permission, the registration ends.
    world.change(&enable("jid='pubsub.x' node='waiting'"));
    assert_eq!(world.message(), "");
    assert_eq!(world.pushes(), 0);
    let open = vec![("pubsub#publish_model".into(), vec!["open".into()])];
    let open = NodeRequest::new("waiting", NodeCommand::Configure(Some(open)));
    world.accounts.ask_node("p", open, &mut world.outbox).unwrap();
    world.change(&enable("jid='pubsub.x' node='waiting'"));
    let outbox = world.message();
    assert!(
        outbox.contains("<items node='waiting'>")
            && outbox.contains("<notification xmlns='urn:xmpp:push:0'>"),
        "{outbox}"
    );
    assert!(!outbox.contains("secret") && !outbox.contains("b@x"), "{outbox}");
    let gone = NodeRequest::new("waiting", NodeCommand::Delete);
    world.accounts.ask_node("p", gone, &mut world.outbox).unwrap();
    world.message();
    assert_eq!(world.pushes(), 0);
}

#[test]
fn invalid_registrations_are_rejected_and_valid_ones_bounded() {
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
    // A node ignores options, which may contain a secret.
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

/// XEP-0280 §7: offline messages are delivered later, so no carbons are sent now.
#[test]
fn push_causes_no_carbons() {
    let mut world = World::new();
    world.accounts.attach("a", 9, "away", false, &mut world.outbox);
    world.accounts.copy("a", 9, true);
    world.change(&enable("jid='p@x/push'"));
    assert!(world.message().contains("<publish>"));
}

//! What three accounts and a stranger may do with a node. Requests are parsed from stanzas as clients write
//! them.

use super::*;
use crate::xmpp::accounts::{PENDING_BYTES_MAX, Recipient, Relayed, RosterChange};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::{Limits, Scope, parse_element};

mod access;
mod bounds;

const NAMES: [(&str, u8); 3] = [("a", 1), ("b", 2), ("c", 3)];

struct World {
    accounts: Accounts<u8>,
    outbox: Outbox<u8>,
}

fn relayed(text: &str) -> Relayed {
    let scope = Scope::default();
    let tree = parse_element(text, Some(&scope), &Limits::default()).unwrap();
    Relayed::new("presence", tree.root(), 10_000).unwrap()
}

impl World {
    /// A world where `a` owns `news` with its default configuration.
    fn new() -> Self {
        let accounts = Accounts::new("x", 0xE, NAMES.map(|(name, _)| (name, "p")));
        let mut world = Self { accounts, outbox: Outbox::new() };
        for (name, session) in NAMES {
            world.accounts.attach(name, session, "r", false, &mut world.outbox);
            world.accounts.announce(name, session, relayed("<presence/>"), &mut world.outbox);
        }
        assert_eq!(world.ask("a", "<create node='news'/>"), "<create node='news'/>");
        world.outbox.clear();
        world
    }

    fn parse(kind: &str, namespace: &str, inside: &str) -> Result<NodeRequest, Refused> {
        let text = format!("<pubsub xmlns='{namespace}'>{inside}</pubsub>");
        let tree = parse_element(&text, None, &Limits::default()).unwrap();
        let parsed = match namespace == ns::PUBSUB_OWNER {
            true => NodeRequest::parse_owner(kind, tree.root()),
            false => NodeRequest::parse(kind, tree.root()),
        };
        parsed.expect("a request for nodes")
    }

    /// Returns the content of the response, or its error condition and XEP-0060 detail.
    fn run(&mut self, user: &str, kind: &str, namespace: &str, inside: &str) -> String {
        let before = self.outbox.len();
        let answer = match Self::parse(kind, namespace, inside) {
            Ok(request) => self.accounts.ask_node(user, request, &mut self.outbox),
            Err((error, detail)) => Err(NodeError::Refused(error, detail)),
        };
        let answered = answer.iter().flatten().map(Bytes::len);
        let longest = answered.chain(self.outbox[before..].iter().map(|(_, bytes)| bytes.len())).max();
        assert!(longest.is_none_or(|it| it < limits::SEND_QUEUE_BYTES), "{longest:?} for {inside:.80}");
        match answer {
            Ok(None) => "done".to_owned(),
            Ok(Some(content)) => {
                let text = String::from_utf8(content.to_vec()).unwrap();
                let inside = text.split_once('>').unwrap().1;
                inside.strip_suffix("</pubsub>").unwrap_or(inside).to_owned()
            }
            Err(NodeError::Absent) => "absent".to_owned(),
            Err(NodeError::Refused(error, detail)) => {
                format!("{} {detail}", error.as_str()).trim_end().to_owned()
            }
        }
    }

    fn ask(&mut self, user: &str, inside: &str) -> String {
        self.run(user, "set", ns::PUBSUB, inside)
    }

    fn get(&mut self, user: &str, inside: &str) -> String {
        self.run(user, "get", ns::PUBSUB, inside)
    }

    fn own(&mut self, user: &str, inside: &str) -> String {
        self.run(user, "set", ns::PUBSUB_OWNER, inside)
    }

    fn configure(&mut self, user: &str, fields: &[(&str, &str)]) -> String {
        self.own(user, &format!("<configure node='news'>{}</configure>", form(fields)))
    }

    fn subscribe(&mut self, user: &str) -> String {
        self.ask(user, &format!("<subscribe node='news' jid='{user}@x'/>"))
    }

    fn publish(&mut self, user: &str, id: &str) -> String {
        self.ask(
            user,
            &format!("<publish node='news'><item id='{id}'><e xmlns='e'>{id}</e></item></publish>"),
        )
    }

    fn affiliate(&mut self, user: &str, other: &str, affiliation: &str) -> String {
        let change = format!("<affiliation jid='{other}@x' affiliation='{affiliation}'/>");
        self.own(user, &format!("<affiliations node='news'>{change}</affiliations>"))
    }

    /// Sends a presence stanza to another account.
    fn presence(&mut self, user: &str, to: &str, kind: &str) {
        let session = NAMES.iter().find(|(name, _)| *name == user).unwrap().1;
        let to = format!("{to}@x");
        let to = Recipient { asked: to.clone().into(), bare: to.into(), resource: None };
        let presence = relayed(&format!("<presence type='{kind}'/>"));
        self.accounts.direct(user, session, &to, &presence, &mut self.outbox);
    }

    /// Subscribes `b` to the presence of `a`.
    fn befriend(&mut self) {
        self.presence("b", "a", "subscribe");
        self.presence("a", "b", "subscribed");
    }

    /// Makes an account available again.
    fn return_to(&mut self, user: &str, session: u8) {
        self.accounts.announce(user, session, relayed("<presence type='unavailable'/>"), &mut self.outbox);
        self.accounts.announce(user, session, relayed("<presence/>"), &mut self.outbox);
    }

    /// Submits an owner's decision whether `jid` may subscribe.
    fn decide(&mut self, user: &str, jid: &str, allow: &str) -> NodeAnswer {
        let fields = form(&[("node", "news"), ("subscriber_jid", jid), ("allow", allow)]);
        let fields = fields.replace("#node_config", "#subscribe_authorization");
        let tree = parse_element(&fields, None, &Limits::default()).unwrap();
        self.accounts.ask_node(user, NodeRequest::parse_decision(tree.root()).unwrap(), &mut self.outbox)
    }

    /// The stanzas sent to a session since the last call.
    fn received(&mut self, session: u8) -> String {
        let (mine, others) = self.outbox.drain(..).partition(|(to, _)| *to == session);
        self.outbox = others;
        let mine: Outbox<u8> = mine;
        mine.iter().map(|(_, bytes)| std::str::from_utf8(bytes).unwrap()).collect()
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    let field =
        |(name, value): &(&str, &str)| format!("<field var='pubsub#{name}'><value>{value}</value></field>");
    let fields: String = fields.iter().map(field).collect();
    format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
         <value>http://jabber.org/protocol/pubsub#node_config</value></field>{fields}</x>"
    )
}

const SUBSCRIBED: &str = "<subscription node='news' jid='b@x' subscription='subscribed'/>";

const QUESTION: &str = "pubsub#subscribe_authorization";

#[test]
fn node_is_created_once_and_has_an_owner() {
    let mut world = World::new();
    assert_eq!(world.ask("b", "<create node='news'/>"), "conflict");
    let drawn = world.ask("b", "<create/>");
    assert!(drawn.starts_with("<create node='e-node-"), "{drawn}");
    assert_ne!(world.ask("b", "<create/>"), drawn);
    let long = "n".repeat(256);
    assert_eq!(world.ask("b", &format!("<create node='{long}'/>")), "not-acceptable");
    assert_eq!(
        world.get("a", "<affiliations/>"),
        "<affiliations><affiliation node='news' affiliation='owner'/></affiliations>"
    );
    assert_eq!(world.get("b", "<affiliations node='news'/>"), "<affiliations node='news'></affiliations>");
    assert_eq!(world.get("b", "<affiliations node='none'/>"), "absent");
    // A removed account cannot create nodes.
    world.accounts.remove("c", &mut world.outbox);
    assert_eq!(world.ask("c", "<create node='late'/>"), "forbidden");
}

#[test]
fn only_owners_manage_a_node() {
    let mut world = World::new();
    world.subscribe("b");
    world.affiliate("a", "b", "publisher");
    let change = "<affiliation jid='b@x' affiliation='owner'/>";
    let subscription = "<subscription jid='b@x' subscription='none'/>";
    for user in ["b", "c"] {
        for inside in [
            format!("<configure node='news'>{}</configure>", form(&[("title", "mine")])),
            "<delete node='news'/>".to_owned(),
            "<purge node='news'/>".to_owned(),
            format!("<affiliations node='news'>{change}</affiliations>"),
            format!("<subscriptions node='news'>{subscription}</subscriptions>"),
        ] {
            assert_eq!(world.own(user, &inside), "forbidden", "{inside}");
        }
        for name in ["configure", "affiliations", "subscriptions"] {
            let inside = format!("<{name} node='news'/>");
            assert_eq!(world.run(user, "get", ns::PUBSUB_OWNER, &inside), "forbidden", "{inside}");
        }
    }
    for inside in ["<delete/>", "<purge/>", "<affiliations/>", "<subscriptions/>", "<configure/>"] {
        assert_eq!(world.own("a", inside), "bad-request nodeid-required", "{inside}");
    }
    assert_eq!(world.own("a", "<delete node='none'/>"), "absent");
    assert_eq!(world.own("a", "<configure node='news'/>"), "bad-request");
}

#[test]
fn subscribers_receive_published_items() {
    let mut world = World::new();
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    assert_eq!(world.subscribe("b"), SUBSCRIBED, "§6.1.6");
    assert_eq!(world.publish("a", "1"), "<publish node='news'><item id='1'/></publish>");
    assert_eq!(
        world.received(2),
        "<message xmlns='jabber:client' from='pubsub.x' to='b@x' type='headline'>\
         <event xmlns='http://jabber.org/protocol/pubsub#event'><items node='news'>\
         <item id='1'><e xmlns='e'>1</e></item></items></event></message>"
    );
    assert_eq!(world.received(1) + &world.received(3), "", "nobody else");
    assert_eq!(world.publish("b", "2"), "forbidden");
    assert_eq!(world.publish("c", "2"), "forbidden");
    // Accounts cannot create or end subscriptions of others.
    assert_eq!(world.ask("c", "<subscribe node='news' jid='b@x'/>"), "bad-request invalid-jid");
    assert_eq!(world.ask("c", "<unsubscribe node='news' jid='b@x'/>"), "forbidden");
    assert_eq!(world.ask("c", "<unsubscribe node='news' jid='c@x'/>"), "unexpected-request not-subscribed");
    let forced =
        "<subscriptions node='news'><subscription jid='c@x' subscription='subscribed'/></subscriptions>";
    assert_eq!(world.own("a", forced), "not-acceptable", "not even an owner");
    assert_eq!(world.ask("b", "<unsubscribe node='news' jid='b@x'/>"), "done");
    world.publish("a", "3");
    assert_eq!(world.received(2), "");
    // A later subscriber receives the last item.
    world.subscribe("c");
    assert!(world.received(3).contains("<item id='3'>"));
    // An unavailable subscriber, and a subscribed resource.
    world.accounts.announce("c", 3, relayed("<presence type='unavailable'/>"), &mut world.outbox);
    world.ask("b", "<subscribe node='news' jid='b@x/other'/>");
    world.outbox.clear();
    world.publish("a", "4");
    assert_eq!(world.received(2) + &world.received(3), "");
}

#[test]
fn items_are_stored_replaced_retracted_and_purged() {
    let mut world = World::new();
    world.configure("a", &[("max_items", "2"), ("publish_model", "open")]);
    for id in ["1", "2", "2", "3"] {
        world.publish("a", id);
    }
    let two = "<items node='news'><item id='2'><e xmlns='e'>2</e></item><item id='3'><e xmlns='e'>3</e></item></items>";
    assert_eq!(world.get("b", "<items node='news'/>"), two);
    let last = "<items node='news'><item id='3'><e xmlns='e'>3</e></item></items>";
    assert_eq!(world.get("b", "<items node='news' max_items='1'/>"), last);
    assert_eq!(world.get("b", "<items node='news'><item id='3'/></items>"), last);
    assert_eq!(world.get("b", "<items node='news'><item id='1'/></items>"), "item-not-found");
    // Another publisher can neither replace nor retract it.
    assert_eq!(world.publish("b", "3"), "forbidden");
    world.subscribe("c");
    world.outbox.clear();
    let retract = |id: &str| format!("<retract node='news'><item id='{id}'/></retract>");
    assert_eq!(world.ask("b", &retract("3")), "forbidden");
    assert_eq!(world.ask("a", &retract("9")), "item-not-found");
    assert_eq!(world.ask("a", "<retract node='news'/>"), "bad-request item-required");
    assert_eq!(world.ask("a", &retract("3")), "done");
    assert!(world.received(3).contains("<retract id='3'/>"));
    assert_eq!(world.own("a", "<purge node='news'/>"), "done");
    assert!(world.received(3).contains("<purge node='news'/>"));
    assert_eq!(world.get("b", "<items node='news'/>"), "<items node='news'></items>");
    assert_eq!(world.own("a", "<delete node='news'/>"), "done");
    assert!(world.received(3).contains("<delete node='news'/>"));
    assert_eq!(world.own("a", "<delete node='news'/>"), "absent");
}

#[test]
fn published_item_must_match_the_node_configuration() {
    let mut world = World::new();
    assert_eq!(world.ask("a", "<publish node='news'/>"), "bad-request item-required");
    assert_eq!(world.ask("a", "<publish node='news'><item/></publish>"), "bad-request payload-required");
    assert_eq!(
        world.ask("a", "<publish node='news'><item/><item/></publish>"),
        "bad-request max-items-exceeded"
    );
    let two = "<publish node='news'><item><e xmlns='e'/><e xmlns='e'/></item></publish>";
    assert_eq!(world.ask("a", two), "bad-request invalid-payload");
    let large =
        |bytes| format!("<publish node='news'><item><e xmlns='e'>{}</e></item></publish>", "x".repeat(bytes));
    assert_eq!(world.ask("a", &large(10_000)), "not-acceptable payload-too-big");
    world.configure("a", &[("max_payload_size", "100")]);
    assert_eq!(world.ask("a", &large(100)), "not-acceptable payload-too-big");
    // Notifications without items.
    world.configure("a", &[("persist_items", "0"), ("deliver_payloads", "0")]);
    world.subscribe("b");
    assert_eq!(world.ask("a", "<publish node='news'/>"), "done");
    assert!(world.received(2).contains("<items node='news'/>"));
    assert_eq!(world.publish("a", "1"), "bad-request item-forbidden");
    assert_eq!(
        world.get("b", "<items node='news'/>"),
        "feature-not-implemented unsupported persistent-items"
    );
    assert_eq!(
        world.own("a", "<purge node='news'/>"),
        "feature-not-implemented unsupported persistent-items"
    );
}

#[test]
fn options_are_applied_or_rejected() {
    let mut world = World::new();
    let outbox = world.run("a", "get", ns::PUBSUB_OWNER, "<configure node='news'/>");
    for (name, value) in [("title", "News"), ("notify_config", "1")] {
        assert_eq!(world.configure("a", &[(name, value)]), "done");
    }
    let changed = world.run("a", "get", ns::PUBSUB_OWNER, "<configure node='news'/>");
    assert_ne!(outbox, changed);
    assert!(
        changed.contains("<field var='pubsub#title' type='text-single'><value>News</value>"),
        "{changed}"
    );
    world.subscribe("b");
    for (name, value) in [
        ("access_model", "secret"),
        ("publish_model", ""),
        ("persist_items", "maybe"),
        ("max_items", "0"),
        ("max_items", "21"),
        ("max_items", "-1"),
        ("max_payload_size", "10001"),
        ("node_type", "collection"),
        ("collection", "all"),
        ("item_expire", "60"),
        ("send_last_published_item", "on_sub_and_presence"),
        ("title", &"x".repeat(1_024)),
        ("unheard_of", "1"),
    ] {
        let refused = world.configure("a", &[("description", "not this"), (name, value)]);
        assert_eq!(refused, "not-acceptable", "{name}");
        let create = format!("<create node='other'/><configure>{}</configure>", form(&[(name, value)]));
        assert_eq!(world.ask("b", &create), "not-acceptable", "{name}");
    }
    assert_eq!(
        world.run("a", "get", ns::PUBSUB_OWNER, "<configure node='news'/>"),
        changed,
        "all or nothing"
    );
    assert_eq!(world.received(2), "", "nothing changed");
    let cancel = "<configure node='news'><x xmlns='jabber:x:data' type='cancel'/></configure>";
    assert_eq!(world.own("a", cancel), "done");
    assert_eq!(world.configure("a", &[("max_items", "max")]), "done");
    assert!(world.received(2).contains("<configuration node='news'><x xmlns='jabber:x:data' type='result'>"));
    let wrong = form(&[]).replace("#node_config", "#meta-data");
    let wrong = format!("<configure node='news'>{wrong}</configure>");
    assert_eq!(world.own("a", &wrong), "bad-request");
    let made =
        format!("<create node='closed'/><configure>{}</configure>", form(&[("access_model", "whitelist")]));
    assert_eq!(world.ask("b", &made), "<create node='closed'/>");
    assert_eq!(world.ask("a", "<subscribe node='closed' jid='a@x'/>"), "not-allowed closed-node");
    assert!(world.run("b", "get", ns::PUBSUB_OWNER, "<default/>").contains("<value>open</value>"));
}

/// XEP-0060 §7.1.5, §6.3.7
#[test]
fn nodes_reject_options() {
    let mut world = World::new();
    let publish = "<publish node='news'><item id='1'><e xmlns='e'/></item></publish>";
    let field = "<field var='pubsub#access_model'><value>whitelist</value></field>";
    let options =
        format!("<publish-options><x xmlns='jabber:x:data' type='submit'>{field}</x></publish-options>");
    assert_eq!(world.ask("a", &format!("{publish}{options}")), "conflict precondition-not-met");
    assert_eq!(world.ask("b", &format!("{publish}{options}")), "forbidden");
    assert_eq!(world.get("a", "<items node='news'/>"), "<items node='news'></items>");
    let subscribe = "<subscribe node='news' jid='b@x'/><options/>";
    assert_eq!(world.ask("b", subscribe), "feature-not-implemented unsupported subscription-options");
    assert_eq!(world.get("b", "<subscriptions node='news'/>"), "<subscriptions node='news'></subscriptions>");
    // Without a node of an account, it is a topic.
    assert_eq!(world.ask("a", &format!("{publish}{options}").replace("news", "none")), "absent");
}

#[test]
fn payload_keeps_its_namespace() {
    let mut world = World::new();
    world.subscribe("b");
    world.ask("a", "<publish node='news'><item id='1'><e><f xmlns=''/></e></item></publish>");
    let item = "<item id='1'><e xmlns='http://jabber.org/protocol/pubsub'><f xmlns=''></f></e></item>";
    let received = world.received(2);
    assert!(received.contains(item), "{received}");
    assert_eq!(world.get("b", "<items node='news'/>"), format!("<items node='news'>{item}</items>"));
}

#[test]
fn events_without_available_subscriber_are_not_stored() {
    let mut world = World::new();
    world.accounts.announce("b", 2, relayed("<presence type='unavailable'/>"), &mut world.outbox);
    world.subscribe("b");
    world.publish("a", "1");
    world.outbox.clear();
    world.accounts.announce("b", 2, relayed("<presence/>"), &mut world.outbox);
    assert!(!world.received(2).contains("<item id='1'>"));
}

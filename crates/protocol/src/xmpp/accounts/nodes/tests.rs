//! What three accounts and a stranger may do with a node. Requests are parsed from stanzas as clients write
//! them.

use super::*;
use crate::xmpp::accounts::{PENDING_BYTES_MAX, Recipient, Relayed, RosterChange};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::{Limits, Scope, parse_element};

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

#[test]
fn access_follows_the_node_configuration() {
    let mut world = World::new();
    world.publish("a", "1");
    let items = "<items node='news'/>";
    for (model, refused) in [
        ("whitelist", "not-allowed closed-node"),
        ("presence", "not-authorized presence-subscription-required"),
        ("roster", "not-authorized not-in-roster-group"),
    ] {
        world.configure("a", &[("access_model", model), ("roster_groups_allowed", "friends")]);
        assert_eq!(world.subscribe("b"), refused);
        assert_eq!(world.get("b", items), refused);
        assert!(world.get("a", items).contains("<item id='1'>"), "an owner may");
        world.affiliate("a", "b", "member");
        assert_eq!(world.subscribe("b"), SUBSCRIBED, "who is named may");
        world.outbox.clear();
        // A former member loses its rights.
        world.affiliate("a", "b", "none");
        assert!(world.received(2).contains("jid='b@x' subscription='none'"));
        world.publish("a", "1");
        assert_eq!(world.received(2), "");
    }
    // Presence subscribers, and members of a roster group.
    world.befriend();
    assert_eq!(world.subscribe("b"), "not-authorized not-in-roster-group");
    world.configure("a", &[("access_model", "presence")]);
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    assert_eq!(world.subscribe("c"), "not-authorized presence-subscription-required");
    // A whitelist ends subscriptions that it does not permit.
    world.outbox.clear();
    world.configure("a", &[("access_model", "whitelist")]);
    assert!(world.received(2).contains("subscription='none'"));
    // An outcast may do nothing, whatever the node permits.
    world.configure("a", &[("access_model", "open"), ("publish_model", "open")]);
    world.subscribe("b");
    world.affiliate("a", "b", "outcast");
    for answer in [world.subscribe("b"), world.get("b", items), world.publish("b", "2")] {
        assert_eq!(answer, "forbidden");
    }
    assert!(world.publish("c", "2").contains("<item id='2'/>"));
    world.configure("a", &[("publish_model", "subscribers")]);
    assert_eq!(world.publish("c", "3"), "forbidden");
    world.ask("c", "<subscribe node='news' jid='c@x'/>");
    assert!(world.publish("c", "3").contains("<item id='3'/>"));
}

#[test]
fn owner_approves_a_subscription() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "authorize")]);
    world.publish("a", "1");
    let pending = "<subscription node='news' jid='b@x' subscription='pending'/>";
    assert_eq!(world.subscribe("b"), pending);
    let asked = world.received(1);
    assert!(
        asked.contains("pubsub#subscribe_authorization") && asked.contains("<value>b@x</value>"),
        "{asked}"
    );
    assert_eq!(world.subscribe("b"), "not-authorized pending-subscription");
    assert_eq!(world.get("b", "<items node='news'/>"), "not-authorized not-subscribed");
    world.publish("a", "2");
    assert_eq!(world.received(2), "");
    assert_eq!(world.decide("b", "b@x", "1"), Err(NodeError::Refused(StanzaError::Forbidden, "")));
    assert_eq!(world.decide("a", "b@x", "1"), Ok(None));
    let received = world.received(2);
    assert!(
        received.contains("jid='b@x' subscription='subscribed'") && received.contains("<item id='2'>"),
        "{received}"
    );
    assert!(world.get("b", "<items node='news'/>").contains("<item id='1'>"));
    assert_eq!(world.decide("a", "b@x", "0"), Ok(None));
    assert!(world.received(2).contains("jid='b@x' subscription='none'"));
    // An open node needs no approval.
    world.subscribe("b");
    world.outbox.clear();
    world.configure("a", &[("access_model", "open")]);
    let received = world.received(2);
    assert!(received.contains("jid='b@x' subscription='subscribed'"), "{received}");
    assert!(received.contains("<item id='2'>"), "§6.1.7: {received}");
    assert_eq!(
        world.run("a", "get", ns::PUBSUB_OWNER, "<subscriptions node='news'/>"),
        "<subscriptions node='news'><subscription jid='b@x' subscription='subscribed'/></subscriptions>"
    );
}

const QUESTION: &str = "pubsub#subscribe_authorization";

#[test]
fn owner_is_asked_until_it_answers() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "authorize")]);
    world.affiliate("a", "c", "owner");
    // Unavailable, or with negative priority.
    world.accounts.announce("a", 1, relayed("<presence type='unavailable'/>"), &mut world.outbox);
    world.subscribe("b");
    assert_eq!(world.received(3).matches(QUESTION).count(), 1);
    let negative = relayed("<presence><priority>-1</priority></presence>");
    world.accounts.announce("a", 1, negative, &mut world.outbox);
    assert_eq!(world.received(1).matches(QUESTION).count(), 0);
    world.accounts.announce("a", 1, relayed("<presence/>"), &mut world.outbox);
    let asked = world.received(1);
    assert!(
        asked.contains("<message xmlns='jabber:client' from='pubsub.x' to='a@x'>")
            && asked.contains("<value>news</value>")
            && asked.contains("<value>b@x</value>"),
        "{asked}"
    );
    world.accounts.announce("a", 1, relayed("<presence/>"), &mut world.outbox);
    assert_eq!(world.received(1).matches(QUESTION).count(), 0, "it is there already");
    world.return_to("b", 2);
    assert_eq!(world.received(2).matches(QUESTION).count(), 0, "no owner");
    world.decide("c", "b@x", "1").unwrap();
    world.return_to("a", 1);
    assert_eq!(world.received(1).matches(QUESTION).count(), 0, "it was answered");
}

#[test]
fn owner_is_asked_once_per_address() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "authorize")]);
    let unsubscribe = "<unsubscribe node='news' jid='b@x'/>";
    let pending = "<subscription node='news' jid='b@x' subscription='pending'/>";
    for _ in 0..20 {
        assert_eq!(world.subscribe("b"), pending);
        assert_eq!(world.ask("b", unsubscribe), "done");
    }
    assert_eq!(world.received(1).matches(QUESTION).count(), 1);
    // The withdrawal applies to all owners.
    assert_eq!(world.ask("b", unsubscribe), "unexpected-request not-subscribed");
    let none = "<subscriptions node='news'></subscriptions>";
    assert_eq!(world.get("b", "<subscriptions node='news'/>"), none);
    assert_eq!(world.run("a", "get", ns::PUBSUB_OWNER, "<subscriptions node='news'/>"), none);
    assert_eq!(world.accounts.subscriptions("b"), "");
    // One account may use a limited number of addresses.
    for n in 0..20 {
        let address = format!("node='news' jid='b@x/{n}'");
        world.ask("b", &format!("<subscribe {address}/>"));
        world.ask("b", &format!("<unsubscribe {address}/>"));
    }
    assert_eq!(world.received(1).matches(QUESTION).count(), ADDRESSES_MAX - 1);
    // An approval cannot restore a withdrawn subscription; afterwards it may be requested again.
    world.decide("a", "b@x", "1").unwrap();
    assert_eq!(world.received(2), "");
    assert_eq!(world.get("b", "<subscriptions node='news'/>"), none);
    world.subscribe("b");
    assert_eq!(world.received(1).matches(QUESTION).count(), 1);
    // An open node keeps no withdrawn requests.
    world.configure("a", &[("access_model", "open")]);
    assert_eq!(world.accounts.nodes["news"].subscribers.len(), 1);
    assert!(world.received(2).contains("jid='b@x' subscription='subscribed'"));
}

/// XEP-0060 §4.5: an account that may no longer subscribe receives nothing more.
#[test]
fn subscription_ends_with_its_permission() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "presence"), ("roster_groups_allowed", "friends")]);
    let ended = "jid='b@x' subscription='none'";
    let nothing_more = |world: &mut World| {
        assert!(world.received(2).contains(ended));
        world.publish("a", "1");
        assert_eq!(world.received(2), "");
    };
    // The owner's presence, which either side ends.
    for (user, other, kind) in [("a", "b", "unsubscribed"), ("b", "a", "unsubscribe")] {
        world.befriend();
        assert_eq!(world.subscribe("b"), SUBSCRIBED);
        world.presence(user, other, kind);
        nothing_more(&mut world);
    }
    let put = |world: &mut World, groups: &[&str]| {
        let put = Some(("".into(), groups.iter().map(|group| (*group).into()).collect()));
        let change = RosterChange { bare: "b@x".into(), put };
        world.accounts.change_roster("a", change, &mut world.outbox).unwrap();
    };
    let remove = |world: &mut World| {
        let change = RosterChange { bare: "b@x".into(), put: None };
        world.accounts.change_roster("a", change, &mut world.outbox).unwrap();
    };
    put(&mut world, &[]);
    world.befriend();
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    remove(&mut world);
    nothing_more(&mut world);
    // A group of the owner's roster.
    world.configure("a", &[("access_model", "roster")]);
    put(&mut world, &["friends"]);
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    put(&mut world, &["friends", "others"]);
    assert!(!world.received(2).contains(ended));
    put(&mut world, &["others"]);
    nothing_more(&mut world);
    put(&mut world, &["friends"]);
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    remove(&mut world);
    nothing_more(&mut world);
    // The owner that approved it is removed.
    world.affiliate("a", "c", "owner");
    let change = RosterChange { bare: "b@x".into(), put: Some(("".into(), vec!["friends".into()])) };
    world.accounts.change_roster("c", change, &mut world.outbox).unwrap();
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    world.accounts.remove("c", &mut world.outbox);
    nothing_more(&mut world);
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
fn new_account_does_not_inherit_publisher_rights() {
    let mut world = World::new();
    world.configure("a", &[("publish_model", "open")]);
    world.publish("b", "1");
    world.accounts.remove("b", &mut world.outbox);
    world.accounts.put("b", "p", None).unwrap();
    assert_eq!(world.ask("b", "<retract node='news'><item id='1'/></retract>"), "forbidden");
    assert_eq!(world.publish("b", "1"), "forbidden");
    assert!(world.publish("b", "2").contains("<item id='2'/>"));
    assert_eq!(world.ask("a", "<retract node='news'><item id='1'/></retract>"), "done");
}

#[test]
fn creator_always_stays_an_owner() {
    let mut world = World::new();
    assert_eq!(world.affiliate("a", "b", "owner"), "done");
    assert_eq!(world.affiliate("b", "a", "none"), "not-acceptable", "its room is a's");
    assert_eq!(world.affiliate("b", "b", "none"), "done");
    assert_eq!(world.affiliate("b", "b", "owner"), "forbidden");
    for (jid, affiliation, refused) in [
        ("b@y", "member", "not-acceptable"),
        ("b@x/r", "member", "not-acceptable"),
        (&format!("{}@x", "n".repeat(1_000)), "member", "not-acceptable"),
        ("b@x", "king", "bad-request"),
        ("@x", "member", "bad-request invalid-jid"),
    ] {
        let list = format!(
            "<affiliation jid='c@x' affiliation='member'/><affiliation jid='{jid}' affiliation='{affiliation}'/>"
        );
        let set = format!("<affiliations node='news'>{list}</affiliations>");
        assert_eq!(world.own("a", &set), refused, "{jid} {affiliation}");
    }
    let all = world.run("a", "get", ns::PUBSUB_OWNER, "<affiliations node='news'/>");
    let owner = "<affiliation jid='a@x' affiliation='owner'/>";
    assert_eq!(all, format!("<affiliations node='news'>{owner}</affiliations>"), "all or none");
}

#[test]
fn all_lists_are_bounded() {
    let mut world = World::new();
    let made = (0..).take_while(|_| world.ask("b", "<create/>").starts_with("<create")).count();
    assert_eq!(made, OWN_NODES_MAX);
    assert_eq!(world.ask("b", "<create/>"), "resource-constraint");
    assert!(world.ask("c", "<create/>").starts_with("<create"), "others have room");
    // The limit covers the items of all nodes of an account.
    world.configure("a", &[("max_items", "max")]);
    let item = |id: usize| {
        format!(
            "<publish node='news'><item id='{id}'><e xmlns='e'>{}</e></item></publish>",
            "x".repeat(9_000)
        )
    };
    let kept = (0..).take_while(|id| world.ask("a", &item(*id)).starts_with("<publish")).count();
    assert_eq!(kept, OWN_BYTES_MAX / 9_000);
    assert_eq!(world.ask("a", &item(99)), "resource-constraint");
    assert!(world.ask("a", &item(0)).starts_with("<publish"), "in place of itself");
    // Limit of addresses of one account.
    let subscribe = |n: usize| format!("<subscribe node='news' jid='b@x/{n}'/>");
    let subscribed =
        (0..).take_while(|n| world.ask("b", &subscribe(*n)).starts_with("<subscription")).count();
    assert_eq!(subscribed, ADDRESSES_MAX);
    assert_eq!(world.ask("b", &subscribe(99)), "policy-violation too-many-subscriptions");
    let long = format!("<subscribe node='news' jid='c@x/{}'/>", "r".repeat(ADDRESS_BYTES_MAX));
    assert_eq!(world.ask("c", &long), "not-acceptable");
    let long = format!("<subscribe node='news' jid=\"c@x/{}\"/>", quotes(ADDRESS_BYTES_MAX / 6));
    assert_eq!(world.ask("c", &long), "not-acceptable", "as it is written");
    let long = format!("<publish node='news'><item id='{}'><e xmlns='e'/></item></publish>", "i".repeat(256));
    assert_eq!(world.ask("a", &long), "not-acceptable");
    let texts = [("title", &*quotes(1_023)), ("description", &*quotes(1_023))];
    assert_eq!(world.configure("a", &texts[..1]), "done");
    assert_eq!(world.configure("a", &texts), "not-acceptable");
    let many = |affiliation: &str, count: usize| -> String {
        let change = |n: usize| format!("<affiliation jid='n{n}@x' affiliation='{affiliation}'/>");
        let changes: String = (0..count).map(change).collect();
        format!("<affiliations node='news'>{changes}</affiliations>")
    };
    assert_eq!(world.own("a", &many("owner", OWNERS_MAX)), "policy-violation", "with the one that is");
    assert_eq!(world.own("a", &many("owner", OWNERS_MAX - 1)), "done");
    assert_eq!(world.own("a", &many("member", AFFILIATIONS_MAX)), "policy-violation");
}

#[test]
fn affiliations_of_an_account_fit_one_response() {
    let mut world = World::new();
    for creator in 0..NODES_MAX / OWN_NODES_MAX {
        let name = format!("o{creator}");
        world.accounts.put(&name, "p", None).unwrap();
        for n in 0..OWN_NODES_MAX {
            let node = format!("{name}-{n}-{}", "x".repeat(240));
            world.ask(&name, &format!("<create node='{node}'/>"));
            let change = "<affiliation jid='c@x' affiliation='member'/>";
            world.own(&name, &format!("<affiliations node='{node}'>{change}</affiliations>"));
        }
    }
    let outbox = world.get("c", "<affiliations/>").len();
    assert!((100_000..limits::SEND_QUEUE_BYTES).contains(&outbox), "{outbox}");
}

/// A quote takes six bytes in an attribute.
fn quotes(count: usize) -> String {
    "'".repeat(count)
}

/// Nodes whose names, titles and items are quotes, and subscribers with such addresses. [`World::run`] checks
/// each response and event.
#[test]
fn escaped_quotes_fit_the_send_queue() {
    let mut world = World::new();
    let title = form(&[("title", &quotes(1_023))]);
    let mut nodes = Vec::new();
    for creator in 0..NODES_MAX / OWN_NODES_MAX {
        let name = format!("o{creator:02}");
        world.accounts.put(&name, "p", None).unwrap();
        for n in 0..OWN_NODES_MAX - 1 {
            let node = format!("{creator:02}{n:02}{}", quotes(251));
            let created =
                world.ask(&name, &format!("<create node=\"{node}\"/><configure>{title}</configure>"));
            assert!(created.starts_with("<create "), "{created}");
            let list =
                "<affiliation jid='c@x' affiliation='member'/><affiliation jid='b@x' affiliation='owner'/>";
            world.own(&name, &format!("<affiliations node=\"{node}\">{list}</affiliations>"));
            world.ask("c", &format!("<subscribe node=\"{node}\" jid='c@x'/>"));
            nodes.push(node);
        }
    }
    let list = NodeRequest::List { node: None };
    let outbox = world.accounts.ask_node("c", list, &mut world.outbox).unwrap().unwrap().len();
    assert!((LIST_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&outbox), "{outbox}");
    let outbox = world.get("c", "<affiliations/>").len();
    assert!((LIST_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&outbox), "{outbox}");
    let outbox = world.accounts.subscriptions("c").len();
    assert!((LIST_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&outbox), "{outbox}");
    // The maximum number of subscribers, all pending.
    let node = &nodes[0];
    let configure =
        |fields: &[(&str, &str)]| format!("<configure node=\"{node}\">{}</configure>", form(fields));
    assert_eq!(
        world.own("o00", &configure(&[("access_model", "authorize"), ("notify_config", "1")])),
        "done"
    );
    world.ask("c", &format!("<unsubscribe node=\"{node}\" jid='c@x'/>"));
    let mut subscribers = 0;
    for creator in 1..NODES_MAX / OWN_NODES_MAX {
        for n in 0..ADDRESSES_MAX {
            let jid = format!("o{creator:02}@x/{n}{}", quotes((ADDRESS_BYTES_MAX - 10) / 6));
            let said =
                world.ask(&format!("o{creator:02}"), &format!("<subscribe node=\"{node}\" jid=\"{jid}\"/>"));
            subscribers += usize::from(said.contains("subscription='pending'"));
        }
    }
    assert_eq!(subscribers, SUBSCRIBERS_MAX);
    let outbox =
        world.run("o00", "get", ns::PUBSUB_OWNER, &format!("<subscriptions node=\"{node}\"/>")).len();
    assert!((50_000..limits::SEND_QUEUE_BYTES / 2).contains(&outbox), "{outbox}");
    // An owner that becomes available is asked about all of them, possibly in several steps.
    world.outbox.clear();
    world.return_to("b", 2);
    let received = world.received(2);
    assert!((10..SUBSCRIBERS_MAX / 2).contains(&received.matches(QUESTION).count()));
    assert!(received.len() < PENDING_BYTES_MAX + 1_000, "{}", received.len());
    // Items and their events.
    world.own(
        "o00",
        &configure(&[("access_model", "open"), ("max_items", "max"), ("description", &quotes(500))]),
    );
    let item = |n: usize, bytes: usize| {
        let (id, text) = (format!("{n:02}{}", quotes(253)), "x".repeat(bytes));
        format!("<publish node=\"{node}\"><item id=\"{id}\"><e xmlns='e'>{text}</e></item></publish>")
    };
    let kept = (0..20).filter(|n| world.ask("o00", &item(*n, 3_000)).starts_with("<publish ")).count();
    assert_eq!(kept, OWN_BYTES_MAX / (3_000 + 255 + "<e xmlns='e'></e>o00@x".len()));
    let outbox = world.get("c", &format!("<items node=\"{node}\"/>")).len();
    assert!((OWN_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&outbox), "{outbox}");
    let list = NodeRequest::List { node: Some(node.as_str().into()) };
    let outbox = world.accounts.ask_node("c", list, &mut world.outbox).unwrap().unwrap().len();
    assert!((20_000..limits::SEND_QUEUE_BYTES).contains(&outbox), "{outbox}");
    world.ask("o00", &format!("<retract node=\"{node}\"><item id=\"00{}\"/></retract>", quotes(253)));
    world.own("o00", &format!("<delete node=\"{node}\"/>"));
}

/// The largest configuration, sent to all subscribers.
#[test]
fn configuration_fits_the_send_queue() {
    let mut world = World::new();
    world.subscribe("b");
    let group = |n: usize| format!("<value>{n:02}{}</value>", "&amp;".repeat(1_021));
    let configure = |count: usize| {
        let groups: String = (0..count).map(group).collect();
        let fields = form(&[("notify_config", "1")]);
        let groups = format!("<field var='pubsub#roster_groups_allowed'>{groups}</field></x>");
        format!("<configure node='news'>{}</configure>", fields.replace("</x>", &groups))
    };
    assert_eq!(world.own("a", &configure(10)), "not-acceptable");
    assert_eq!(world.received(2), "");
    assert_eq!(world.own("a", &configure(1)), "done");
    let event = world.received(2).len();
    assert!((5_000..limits::SEND_QUEUE_BYTES / 10).contains(&event), "{event}");
}

#[test]
fn removed_account_takes_its_nodes_along() {
    let mut world = World::new();
    world.ask("b", "<create node='other'/>");
    world.subscribe("b");
    world.ask("a", "<subscribe node='other' jid='a@x'/>");
    world.own(
        "b",
        "<affiliations node='other'><affiliation jid='a@x' affiliation='publisher'/></affiliations>",
    );
    world.outbox.clear();
    world.accounts.remove("a", &mut world.outbox);
    assert!(world.received(2).contains("<delete node='news'/>"));
    assert_eq!(world.get("b", "<items node='news'/>"), "absent");
    // A new account with the same name has no rights.
    world.accounts.put("a", "p", None).unwrap();
    let own = |name: &str| format!("<{name} node='other'/>");
    let left = world.run("b", "get", ns::PUBSUB_OWNER, &own("subscriptions"));
    assert_eq!(left, "<subscriptions node='other'></subscriptions>");
    let left = world.run("b", "get", ns::PUBSUB_OWNER, &own("affiliations"));
    assert!(!left.contains("a@x"), "{left}");
}

#[test]
fn discovery_is_limited_to_permitted_accounts() {
    let mut world = World::new();
    world.configure("a", &[("title", "News")]);
    world.publish("a", "1");
    let describe = |world: &mut World, user: &str| {
        let answer =
            world.accounts.ask_node(user, NodeRequest::Describe { node: "news".into() }, &mut world.outbox);
        String::from_utf8(answer.unwrap().unwrap().to_vec()).unwrap()
    };
    let list = |world: &mut World, user: &str, node: Option<&str>| {
        let request = NodeRequest::List { node: node.map(Into::into) };
        let answer = world.accounts.ask_node(user, request, &mut world.outbox);
        answer.map(|content| String::from_utf8(content.unwrap().to_vec()).unwrap())
    };
    let outbox = describe(&mut world, "b");
    assert!(outbox.contains("type='leaf' name='News'") && outbox.contains("pubsub#meta-data"), "{outbox}");
    assert!(list(&mut world, "b", None).unwrap().contains("<item jid='pubsub.x' node='news' name='News'/>"));
    let items = list(&mut world, "b", Some("news")).unwrap();
    assert!(items.contains("<item jid='pubsub.x' name='1'/>"), "{items}");
    world.configure("a", &[("access_model", "whitelist")]);
    let outbox = describe(&mut world, "b");
    assert!(
        outbox.contains("type='leaf'/>") && !outbox.contains("News") && !outbox.contains("a@x"),
        "{outbox}"
    );
    assert!(!list(&mut world, "b", None).unwrap().contains("news"));
    let refused = list(&mut world, "b", Some("news"));
    assert_eq!(refused, Err(NodeError::Refused(StanzaError::NotAllowed, "closed-node")));
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

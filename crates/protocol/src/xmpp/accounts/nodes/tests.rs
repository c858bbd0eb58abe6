//! Three accounts and a stranger, and what each may do with a node. Requests are parsed as clients write them.

use super::*;
use crate::xmpp::accounts::{ASKED_BYTES_MAX, Recipient, Relayed, RosterChange};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::{Limits, Scope, parse_element};

const NAMES: [(&str, u8); 3] = [("a", 1), ("b", 2), ("c", 3)];

struct World {
    accounts: Accounts<u8>,
    told: Told<u8>,
}

fn relayed(text: &str) -> Relayed {
    let scope = Scope::default();
    let tree = parse_element(text, Some(&scope), &Limits::default()).unwrap();
    Relayed::new("presence", tree.root(), 10_000).unwrap()
}

impl World {
    /// `a` owns `news`, as it is made.
    fn new() -> Self {
        let accounts = Accounts::new("x", 0xE, NAMES.map(|(name, _)| (name, "p")));
        let mut world = Self { accounts, told: Told::new() };
        for (name, session) in NAMES {
            world.accounts.attach(name, session, "r", false, &mut world.told);
            world.accounts.announce(name, session, relayed("<presence/>"), &mut world.told);
        }
        assert_eq!(world.ask("a", "<create node='news'/>"), "<create node='news'/>");
        world.told.clear();
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

    /// What the answer holds, without what is around it; of an error its condition and what XEP-0060 adds.
    fn run(&mut self, user: &str, kind: &str, namespace: &str, inside: &str) -> String {
        let before = self.told.len();
        let answer = match Self::parse(kind, namespace, inside) {
            Ok(request) => self.accounts.ask_node(user, request, &mut self.told),
            Err((error, detail)) => Err(NodeError::Refused(error, detail)),
        };
        let answered = answer.iter().flatten().map(Bytes::len);
        let longest = answered.chain(self.told[before..].iter().map(|(_, bytes)| bytes.len())).max();
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

    /// What an account says of presence to another.
    fn presence(&mut self, user: &str, to: &str, kind: &str) {
        let session = NAMES.iter().find(|(name, _)| *name == user).unwrap().1;
        let to = format!("{to}@x");
        let to = Recipient { asked: to.clone().into(), bare: to.into(), resource: None };
        let presence = relayed(&format!("<presence type='{kind}'/>"));
        self.accounts.direct(user, session, &to, &presence, &mut self.told);
    }

    /// `b` gets the presence of `a`.
    fn befriend(&mut self) {
        self.presence("b", "a", "subscribe");
        self.presence("a", "b", "subscribed");
    }

    /// The account is there anew.
    fn return_to(&mut self, user: &str, session: u8) {
        self.accounts.announce(user, session, relayed("<presence type='unavailable'/>"), &mut self.told);
        self.accounts.announce(user, session, relayed("<presence/>"), &mut self.told);
    }

    /// An owner's answer to the question whether `jid` may subscribe.
    fn decide(&mut self, user: &str, jid: &str, allow: &str) -> NodeAnswer {
        let fields = form(&[("node", "news"), ("subscriber_jid", jid), ("allow", allow)]);
        let fields = fields.replace("#node_config", "#subscribe_authorization");
        let tree = parse_element(&fields, None, &Limits::default()).unwrap();
        self.accounts.ask_node(user, NodeRequest::parse_decision(tree.root()).unwrap(), &mut self.told)
    }

    /// What a session was told since.
    fn heard(&mut self, session: u8) -> String {
        let (mine, others) = self.told.drain(..).partition(|(to, _)| *to == session);
        self.told = others;
        let mine: Told<u8> = mine;
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
fn a_node_is_made_once_and_has_an_owner() {
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
    // Someone whose account is gone makes none.
    world.accounts.remove("c", &mut world.told);
    assert_eq!(world.ask("c", "<create node='late'/>"), "forbidden");
}

#[test]
fn nobody_but_an_owner_manages_a_node() {
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
fn a_subscriber_gets_what_is_published() {
    let mut world = World::new();
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    assert_eq!(world.subscribe("b"), SUBSCRIBED, "§6.1.6");
    assert_eq!(world.publish("a", "1"), "<publish node='news'><item id='1'/></publish>");
    assert_eq!(
        world.heard(2),
        "<message xmlns='jabber:client' from='pubsub.x' to='b@x' type='headline'>\
         <event xmlns='http://jabber.org/protocol/pubsub#event'><items node='news'>\
         <item id='1'><e xmlns='e'>1</e></item></items></event></message>"
    );
    assert_eq!(world.heard(1) + &world.heard(3), "", "nobody else");
    assert_eq!(world.publish("b", "2"), "forbidden");
    assert_eq!(world.publish("c", "2"), "forbidden");
    // Of others nobody makes and ends a subscription.
    assert_eq!(world.ask("c", "<subscribe node='news' jid='b@x'/>"), "bad-request invalid-jid");
    assert_eq!(world.ask("c", "<unsubscribe node='news' jid='b@x'/>"), "forbidden");
    assert_eq!(world.ask("c", "<unsubscribe node='news' jid='c@x'/>"), "unexpected-request not-subscribed");
    let forced =
        "<subscriptions node='news'><subscription jid='c@x' subscription='subscribed'/></subscriptions>";
    assert_eq!(world.own("a", forced), "not-acceptable", "not even an owner");
    assert_eq!(world.ask("b", "<unsubscribe node='news' jid='b@x'/>"), "done");
    world.publish("a", "3");
    assert_eq!(world.heard(2), "");
    // Who subscribes later gets the last.
    world.subscribe("c");
    assert!(world.heard(3).contains("<item id='3'>"));
    // One who is away, and one resource.
    world.accounts.announce("c", 3, relayed("<presence type='unavailable'/>"), &mut world.told);
    world.ask("b", "<subscribe node='news' jid='b@x/other'/>");
    world.told.clear();
    world.publish("a", "4");
    assert_eq!(world.heard(2) + &world.heard(3), "");
}

#[test]
fn items_are_kept_replaced_retracted_and_purged() {
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
    // Another publisher neither replaces nor retracts it.
    assert_eq!(world.publish("b", "3"), "forbidden");
    world.subscribe("c");
    world.told.clear();
    let retract = |id: &str| format!("<retract node='news'><item id='{id}'/></retract>");
    assert_eq!(world.ask("b", &retract("3")), "forbidden");
    assert_eq!(world.ask("a", &retract("9")), "item-not-found");
    assert_eq!(world.ask("a", "<retract node='news'/>"), "bad-request item-required");
    assert_eq!(world.ask("a", &retract("3")), "done");
    assert!(world.heard(3).contains("<retract id='3'/>"));
    assert_eq!(world.own("a", "<purge node='news'/>"), "done");
    assert!(world.heard(3).contains("<purge node='news'/>"));
    assert_eq!(world.get("b", "<items node='news'/>"), "<items node='news'></items>");
    assert_eq!(world.own("a", "<delete node='news'/>"), "done");
    assert!(world.heard(3).contains("<delete node='news'/>"));
    assert_eq!(world.own("a", "<delete node='news'/>"), "absent");
}

#[test]
fn what_is_published_has_to_fit_the_node() {
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
    assert!(world.heard(2).contains("<items node='news'/>"));
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
fn options_are_honoured_or_refused() {
    let mut world = World::new();
    let told = world.run("a", "get", ns::PUBSUB_OWNER, "<configure node='news'/>");
    for (name, value) in [("title", "News"), ("notify_config", "1")] {
        assert_eq!(world.configure("a", &[(name, value)]), "done");
    }
    let changed = world.run("a", "get", ns::PUBSUB_OWNER, "<configure node='news'/>");
    assert_ne!(told, changed);
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
    assert_eq!(world.heard(2), "", "nothing changed");
    let cancel = "<configure node='news'><x xmlns='jabber:x:data' type='cancel'/></configure>";
    assert_eq!(world.own("a", cancel), "done");
    assert_eq!(world.configure("a", &[("max_items", "max")]), "done");
    assert!(world.heard(2).contains("<configuration node='news'><x xmlns='jabber:x:data' type='result'>"));
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
fn access_is_as_the_node_says() {
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
        world.told.clear();
        // What a member may do ends with that.
        world.affiliate("a", "b", "none");
        assert!(world.heard(2).contains("jid='b@x' subscription='none'"));
        world.publish("a", "1");
        assert_eq!(world.heard(2), "");
    }
    // Who gets the owner's presence, and who is in the group.
    world.befriend();
    assert_eq!(world.subscribe("b"), "not-authorized not-in-roster-group");
    world.configure("a", &[("access_model", "presence")]);
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    assert_eq!(world.subscribe("c"), "not-authorized presence-subscription-required");
    // A closed one ends what it does not allow.
    world.told.clear();
    world.configure("a", &[("access_model", "whitelist")]);
    assert!(world.heard(2).contains("subscription='none'"));
    // An outcast may nothing, whatever the node allows.
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
fn an_owner_approves_a_subscription() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "authorize")]);
    world.publish("a", "1");
    let pending = "<subscription node='news' jid='b@x' subscription='pending'/>";
    assert_eq!(world.subscribe("b"), pending);
    let asked = world.heard(1);
    assert!(
        asked.contains("pubsub#subscribe_authorization") && asked.contains("<value>b@x</value>"),
        "{asked}"
    );
    assert_eq!(world.subscribe("b"), "not-authorized pending-subscription");
    assert_eq!(world.get("b", "<items node='news'/>"), "not-authorized not-subscribed");
    world.publish("a", "2");
    assert_eq!(world.heard(2), "");
    assert_eq!(world.decide("b", "b@x", "1"), Err(NodeError::Refused(StanzaError::Forbidden, "")));
    assert_eq!(world.decide("a", "b@x", "1"), Ok(None));
    let heard = world.heard(2);
    assert!(
        heard.contains("jid='b@x' subscription='subscribed'") && heard.contains("<item id='2'>"),
        "{heard}"
    );
    assert!(world.get("b", "<items node='news'/>").contains("<item id='1'>"));
    assert_eq!(world.decide("a", "b@x", "0"), Ok(None));
    assert!(world.heard(2).contains("jid='b@x' subscription='none'"));
    // Opened, the node needs no approval.
    world.subscribe("b");
    world.told.clear();
    world.configure("a", &[("access_model", "open")]);
    let heard = world.heard(2);
    assert!(heard.contains("jid='b@x' subscription='subscribed'"), "{heard}");
    assert!(heard.contains("<item id='2'>"), "§6.1.7: {heard}");
    assert_eq!(
        world.run("a", "get", ns::PUBSUB_OWNER, "<subscriptions node='news'/>"),
        "<subscriptions node='news'><subscription jid='b@x' subscription='subscribed'/></subscriptions>"
    );
}

const QUESTION: &str = "pubsub#subscribe_authorization";

#[test]
fn an_owner_is_asked_until_it_answers() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "authorize")]);
    world.affiliate("a", "c", "owner");
    // Away, or with a priority at which no messages arrive.
    world.accounts.announce("a", 1, relayed("<presence type='unavailable'/>"), &mut world.told);
    world.subscribe("b");
    assert_eq!(world.heard(3).matches(QUESTION).count(), 1);
    let negative = relayed("<presence><priority>-1</priority></presence>");
    world.accounts.announce("a", 1, negative, &mut world.told);
    assert_eq!(world.heard(1).matches(QUESTION).count(), 0);
    world.accounts.announce("a", 1, relayed("<presence/>"), &mut world.told);
    let asked = world.heard(1);
    assert!(
        asked.contains("<message xmlns='jabber:client' from='pubsub.x' to='a@x'>")
            && asked.contains("<value>news</value>")
            && asked.contains("<value>b@x</value>"),
        "{asked}"
    );
    world.accounts.announce("a", 1, relayed("<presence/>"), &mut world.told);
    assert_eq!(world.heard(1).matches(QUESTION).count(), 0, "it is there already");
    world.return_to("b", 2);
    assert_eq!(world.heard(2).matches(QUESTION).count(), 0, "no owner");
    world.decide("c", "b@x", "1").unwrap();
    world.return_to("a", 1);
    assert_eq!(world.heard(1).matches(QUESTION).count(), 0, "it was answered");
}

#[test]
fn an_owner_is_asked_once_by_each_address() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "authorize")]);
    let unsubscribe = "<unsubscribe node='news' jid='b@x'/>";
    let pending = "<subscription node='news' jid='b@x' subscription='pending'/>";
    for _ in 0..20 {
        assert_eq!(world.subscribe("b"), pending);
        assert_eq!(world.ask("b", unsubscribe), "done");
    }
    assert_eq!(world.heard(1).matches(QUESTION).count(), 1);
    // It is withdrawn for everybody.
    assert_eq!(world.ask("b", unsubscribe), "unexpected-request not-subscribed");
    let none = "<subscriptions node='news'></subscriptions>";
    assert_eq!(world.get("b", "<subscriptions node='news'/>"), none);
    assert_eq!(world.run("a", "get", ns::PUBSUB_OWNER, "<subscriptions node='news'/>"), none);
    assert_eq!(world.accounts.subscriptions("b"), "");
    // Other addresses are as many as one account may have.
    for n in 0..20 {
        let address = format!("node='news' jid='b@x/{n}'");
        world.ask("b", &format!("<subscribe {address}/>"));
        world.ask("b", &format!("<unsubscribe {address}/>"));
    }
    assert_eq!(world.heard(1).matches(QUESTION).count(), ADDRESSES_MAX - 1);
    // Whatever the answer, there is no subscription that nobody wants; then it may be asked again.
    world.decide("a", "b@x", "1").unwrap();
    assert_eq!(world.heard(2), "");
    assert_eq!(world.get("b", "<subscriptions node='news'/>"), none);
    world.subscribe("b");
    assert_eq!(world.heard(1).matches(QUESTION).count(), 1);
    // An open node keeps nothing of it.
    world.configure("a", &[("access_model", "open")]);
    assert_eq!(world.accounts.nodes["news"].subscribers.len(), 1);
    assert!(world.heard(2).contains("jid='b@x' subscription='subscribed'"));
}

/// XEP-0060 §4.5: whoever may not subscribe any more gets no more of it.
#[test]
fn a_subscription_ends_with_what_allowed_it() {
    let mut world = World::new();
    world.configure("a", &[("access_model", "presence"), ("roster_groups_allowed", "friends")]);
    let ended = "jid='b@x' subscription='none'";
    let nothing_more = |world: &mut World| {
        assert!(world.heard(2).contains(ended));
        world.publish("a", "1");
        assert_eq!(world.heard(2), "");
    };
    // The owner's presence, which either of them ends.
    for (user, other, kind) in [("a", "b", "unsubscribed"), ("b", "a", "unsubscribe")] {
        world.befriend();
        assert_eq!(world.subscribe("b"), SUBSCRIBED);
        world.presence(user, other, kind);
        nothing_more(&mut world);
    }
    let put = |world: &mut World, groups: &[&str]| {
        let put = Some(("".into(), groups.iter().map(|group| (*group).into()).collect()));
        let change = RosterChange { bare: "b@x".into(), put };
        world.accounts.change_roster("a", change, &mut world.told).unwrap();
    };
    let remove = |world: &mut World| {
        let change = RosterChange { bare: "b@x".into(), put: None };
        world.accounts.change_roster("a", change, &mut world.told).unwrap();
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
    assert!(!world.heard(2).contains(ended));
    put(&mut world, &["others"]);
    nothing_more(&mut world);
    put(&mut world, &["friends"]);
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    remove(&mut world);
    nothing_more(&mut world);
    // The owner who let it in goes.
    world.affiliate("a", "c", "owner");
    let change = RosterChange { bare: "b@x".into(), put: Some(("".into(), vec!["friends".into()])) };
    world.accounts.change_roster("c", change, &mut world.told).unwrap();
    assert_eq!(world.subscribe("b"), SUBSCRIBED);
    world.accounts.remove("c", &mut world.told);
    nothing_more(&mut world);
}

/// XEP-0060 §7.1.5, §6.3.7
#[test]
fn a_node_takes_no_options() {
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
    // Where no account made it, it is a topic.
    assert_eq!(world.ask("a", &format!("{publish}{options}").replace("news", "none")), "absent");
}

#[test]
fn a_payload_keeps_its_namespace() {
    let mut world = World::new();
    world.subscribe("b");
    world.ask("a", "<publish node='news'><item id='1'><e><f xmlns=''/></e></item></publish>");
    let item = "<item id='1'><e xmlns='http://jabber.org/protocol/pubsub'><f xmlns=''></f></e></item>";
    let heard = world.heard(2);
    assert!(heard.contains(item), "{heard}");
    assert_eq!(world.get("b", "<items node='news'/>"), format!("<items node='news'>{item}</items>"));
}

#[test]
fn whoever_has_a_name_next_is_no_publisher_of_the_one_before() {
    let mut world = World::new();
    world.configure("a", &[("publish_model", "open")]);
    world.publish("b", "1");
    world.accounts.remove("b", &mut world.told);
    world.accounts.put("b", "p", None).unwrap();
    assert_eq!(world.ask("b", "<retract node='news'><item id='1'/></retract>"), "forbidden");
    assert_eq!(world.publish("b", "1"), "forbidden");
    assert!(world.publish("b", "2").contains("<item id='2'/>"));
    assert_eq!(world.ask("a", "<retract node='news'><item id='1'/></retract>"), "done");
}

#[test]
fn affiliations_leave_the_maker_an_owner() {
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
fn everything_is_bounded() {
    let mut world = World::new();
    let made = (0..).take_while(|_| world.ask("b", "<create/>").starts_with("<create")).count();
    assert_eq!(made, OWN_NODES_MAX);
    assert_eq!(world.ask("b", "<create/>"), "resource-constraint");
    assert!(world.ask("c", "<create/>").starts_with("<create"), "others have room");
    // An account's items, of all its nodes.
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
    // Addresses of one account.
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
fn what_others_make_of_an_account_fits_one_answer() {
    let mut world = World::new();
    for maker in 0..NODES_MAX / OWN_NODES_MAX {
        let name = format!("o{maker}");
        world.accounts.put(&name, "p", None).unwrap();
        for n in 0..OWN_NODES_MAX {
            let node = format!("{name}-{n}-{}", "x".repeat(240));
            world.ask(&name, &format!("<create node='{node}'/>"));
            let change = "<affiliation jid='c@x' affiliation='member'/>";
            world.own(&name, &format!("<affiliations node='{node}'>{change}</affiliations>"));
        }
    }
    let told = world.get("c", "<affiliations/>").len();
    assert!((100_000..limits::SEND_QUEUE_BYTES).contains(&told), "{told}");
}

/// A quote takes six bytes in an attribute.
fn quotes(count: usize) -> String {
    "'".repeat(count)
}

/// Nodes whose names, titles and items are quotes, and subscribers with such addresses. [`World::run`] looks at each answer
/// and event.
#[test]
fn what_is_full_of_quotes_fits_what_may_be_unsent() {
    let mut world = World::new();
    let title = form(&[("title", &quotes(1_023))]);
    let mut nodes = Vec::new();
    for maker in 0..NODES_MAX / OWN_NODES_MAX {
        let name = format!("o{maker:02}");
        world.accounts.put(&name, "p", None).unwrap();
        for n in 0..OWN_NODES_MAX - 1 {
            let node = format!("{maker:02}{n:02}{}", quotes(251));
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
    let told = world.accounts.ask_node("c", list, &mut world.told).unwrap().unwrap().len();
    assert!((LIST_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&told), "{told}");
    let told = world.get("c", "<affiliations/>").len();
    assert!((LIST_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&told), "{told}");
    let told = world.accounts.subscriptions("c").len();
    assert!((LIST_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&told), "{told}");
    // As many subscribers as there may be, who all wait.
    let node = &nodes[0];
    let configure =
        |fields: &[(&str, &str)]| format!("<configure node=\"{node}\">{}</configure>", form(fields));
    assert_eq!(
        world.own("o00", &configure(&[("access_model", "authorize"), ("notify_config", "1")])),
        "done"
    );
    world.ask("c", &format!("<unsubscribe node=\"{node}\" jid='c@x'/>"));
    let mut subscribers = 0;
    for maker in 1..NODES_MAX / OWN_NODES_MAX {
        for n in 0..ADDRESSES_MAX {
            let jid = format!("o{maker:02}@x/{n}{}", quotes((ADDRESS_BYTES_MAX - 10) / 6));
            let said =
                world.ask(&format!("o{maker:02}"), &format!("<subscribe node=\"{node}\" jid=\"{jid}\"/>"));
            subscribers += usize::from(said.contains("subscription='pending'"));
        }
    }
    assert_eq!(subscribers, SUBSCRIBERS_MAX);
    let told = world.run("o00", "get", ns::PUBSUB_OWNER, &format!("<subscriptions node=\"{node}\"/>")).len();
    assert!((50_000..limits::SEND_QUEUE_BYTES / 2).contains(&told), "{told}");
    // An owner who comes is asked about all of them, if not at once.
    world.told.clear();
    world.return_to("b", 2);
    let heard = world.heard(2);
    assert!((10..SUBSCRIBERS_MAX / 2).contains(&heard.matches(QUESTION).count()));
    assert!(heard.len() < ASKED_BYTES_MAX + 1_000, "{}", heard.len());
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
    let told = world.get("c", &format!("<items node=\"{node}\"/>")).len();
    assert!((OWN_BYTES_MAX..limits::SEND_QUEUE_BYTES).contains(&told), "{told}");
    let list = NodeRequest::List { node: Some(node.as_str().into()) };
    let told = world.accounts.ask_node("c", list, &mut world.told).unwrap().unwrap().len();
    assert!((20_000..limits::SEND_QUEUE_BYTES).contains(&told), "{told}");
    world.ask("o00", &format!("<retract node=\"{node}\"><item id=\"00{}\"/></retract>", quotes(253)));
    world.own("o00", &format!("<delete node=\"{node}\"/>"));
}

/// The largest configuration, to all subscribers.
#[test]
fn a_configuration_fits_what_may_be_unsent() {
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
    assert_eq!(world.heard(2), "");
    assert_eq!(world.own("a", &configure(1)), "done");
    let event = world.heard(2).len();
    assert!((5_000..limits::SEND_QUEUE_BYTES / 10).contains(&event), "{event}");
}

#[test]
fn an_account_that_goes_takes_its_nodes_along() {
    let mut world = World::new();
    world.ask("b", "<create node='other'/>");
    world.subscribe("b");
    world.ask("a", "<subscribe node='other' jid='a@x'/>");
    world.own(
        "b",
        "<affiliations node='other'><affiliation jid='a@x' affiliation='publisher'/></affiliations>",
    );
    world.told.clear();
    world.accounts.remove("a", &mut world.told);
    assert!(world.heard(2).contains("<delete node='news'/>"));
    assert_eq!(world.get("b", "<items node='news'/>"), "absent");
    // Whoever has the name next is nobody there.
    world.accounts.put("a", "p", None).unwrap();
    let own = |name: &str| format!("<{name} node='other'/>");
    let left = world.run("b", "get", ns::PUBSUB_OWNER, &own("subscriptions"));
    assert_eq!(left, "<subscriptions node='other'></subscriptions>");
    let left = world.run("b", "get", ns::PUBSUB_OWNER, &own("affiliations"));
    assert!(!left.contains("a@x"), "{left}");
}

#[test]
fn what_there_is_is_told_to_those_who_may_know() {
    let mut world = World::new();
    world.configure("a", &[("title", "News")]);
    world.publish("a", "1");
    let describe = |world: &mut World, user: &str| {
        let answer =
            world.accounts.ask_node(user, NodeRequest::Describe { node: "news".into() }, &mut world.told);
        String::from_utf8(answer.unwrap().unwrap().to_vec()).unwrap()
    };
    let list = |world: &mut World, user: &str, node: Option<&str>| {
        let request = NodeRequest::List { node: node.map(Into::into) };
        let answer = world.accounts.ask_node(user, request, &mut world.told);
        answer.map(|content| String::from_utf8(content.unwrap().to_vec()).unwrap())
    };
    let told = describe(&mut world, "b");
    assert!(told.contains("type='leaf' name='News'") && told.contains("pubsub#meta-data"), "{told}");
    assert!(list(&mut world, "b", None).unwrap().contains("<item jid='pubsub.x' node='news' name='News'/>"));
    let items = list(&mut world, "b", Some("news")).unwrap();
    assert!(items.contains("<item jid='pubsub.x' name='1'/>"), "{items}");
    world.configure("a", &[("access_model", "whitelist")]);
    let told = describe(&mut world, "b");
    assert!(told.contains("type='leaf'/>") && !told.contains("News") && !told.contains("a@x"), "{told}");
    assert!(!list(&mut world, "b", None).unwrap().contains("news"));
    let refused = list(&mut world, "b", Some("news"));
    assert_eq!(refused, Err(NodeError::Refused(StanzaError::NotAllowed, "closed-node")));
}

#[test]
fn what_nobody_is_there_for_is_not_kept() {
    let mut world = World::new();
    world.accounts.announce("b", 2, relayed("<presence type='unavailable'/>"), &mut world.told);
    world.subscribe("b");
    world.publish("a", "1");
    world.told.clear();
    world.accounts.announce("b", 2, relayed("<presence/>"), &mut world.told);
    assert!(!world.heard(2).contains("<item id='1'>"));
}

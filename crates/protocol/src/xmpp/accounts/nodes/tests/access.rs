//! Who may do what: access models, approvals, and the end of a permission.

use super::*;

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
            world.accounts.ask_node(user, NodeRequest::new("news", NodeCommand::Describe), &mut world.outbox);
        String::from_utf8(answer.unwrap().unwrap().to_vec()).unwrap()
    };
    let list = |world: &mut World, user: &str, node: &str| {
        let request = NodeRequest::new(node, NodeCommand::List);
        let answer = world.accounts.ask_node(user, request, &mut world.outbox);
        answer.map(|content| String::from_utf8(content.unwrap().to_vec()).unwrap())
    };
    let outbox = describe(&mut world, "b");
    assert!(outbox.contains("type='leaf' name='News'") && outbox.contains("pubsub#meta-data"), "{outbox}");
    assert!(list(&mut world, "b", "").unwrap().contains("<item jid='pubsub.x' node='news' name='News'/>"));
    let items = list(&mut world, "b", "news").unwrap();
    assert!(items.contains("<item jid='pubsub.x' name='1'/>"), "{items}");
    world.configure("a", &[("access_model", "whitelist")]);
    let outbox = describe(&mut world, "b");
    assert!(
        outbox.contains("type='leaf'/>") && !outbox.contains("News") && !outbox.contains("a@x"),
        "{outbox}"
    );
    assert!(!list(&mut world, "b", "").unwrap().contains("news"));
    let refused = list(&mut world, "b", "news");
    assert_eq!(refused, Err(NodeError::Refused(StanzaError::NotAllowed, "closed-node")));
}

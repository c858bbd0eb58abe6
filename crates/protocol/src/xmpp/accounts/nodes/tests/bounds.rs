//! Every list is bounded, and what is sent at once fits the send queue.

use super::*;

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
    let list = NodeRequest::new("", NodeCommand::List);
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
    let list = NodeRequest::new(node, NodeCommand::List);
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

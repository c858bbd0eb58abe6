//! Every list is bounded, and what is sent at once fits the send queue.

use super::*;

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

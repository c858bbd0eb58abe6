//! Reports of items to the connections of a user.

use noroshi_store::WhichItems;
use noroshi_types::{ItemAction, ItemRequest, Label, Request, UserId, When};
use serde_json::json;

use crate::node::{Node, plain, request, user};

#[tokio::test(flavor = "multi_thread")]
async fn a_report_reaches_every_connection_of_the_user() {
    let node = Node::start(plain()).await;
    for (device, of) in [("d1", "u1"), ("d2", "u1"), ("d3", "u2")] {
        node.device(device, of, &[]).await;
    }
    let mut one = node.connect("d1").await;
    let mut two = node.connect("d2").await;
    let mut other = node.connect("d3").await;
    let item = ItemRequest { category: Label::parse("orders").ok(), ..ItemRequest::default() };
    let with_item = Request { item: Some(item), ..request(user("u1"), When::Connected, "1") };
    let id = node.publish_request(with_item).await;
    let added = json!({"t": "items", "event": "added", "ids": [id.to_string()], "unread": 1, "categories": {"orders": 1}});
    for client in [&mut one, &mut two] {
        // Usually after the message, whose item it reports.
        let frames = [client.next().await, client.next().await];
        assert!(frames.contains(&added) && frames.iter().any(|frame| frame["data"] == 1), "{frames:?}");
    }
    let items = &node.delivery.items;
    let u1 = UserId::parse("u1").expect("an id");
    let read = || WhichItems::UpTo { last: id, category: None };
    for action in [ItemAction::Read, ItemAction::Read, ItemAction::Archive] {
        items.change(node.app, &u1, action, read()).await.expect("changed");
    }
    for client in [&mut one, &mut two] {
        let read =
            json!({"t": "items", "event": "read", "ids": [id.to_string()], "unread": 0, "categories": {}});
        assert_eq!(client.next().await, read);
        assert_eq!(client.next().await["event"], "archived", "what changed nothing is not reported");
    }
    assert_eq!(items.delete(node.app, &u1).await.expect("deleted"), 1);
    let deleted =
        json!({"t": "items", "event": "deleted", "ids": [], "more": true, "unread": 0, "categories": {}});
    assert_eq!(one.next().await, deleted);
    assert_eq!(two.next().await, deleted);
    assert!(other.sync().await.is_empty(), "another user's");
}

//! Reports of items to the user's devices on other nodes.

use std::sync::Arc;

use noroshi_store::WhichItems;
use noroshi_types::{ItemAction, ItemEvent, ItemRequest, ItemsNotice, NotificationId, Request, UserId, When};

use super::cell::{Cell, cell, user};
use crate::{request, users};

async fn publish(cell: &Cell, node: usize, names: &[&str]) -> NotificationId {
    let request = Request { item: Some(ItemRequest::default()), ..request(users(names), When::Stored) };
    let published = cell.nodes[node].delivery.publisher.publish(cell.app, request, None).await;
    published.expect("accepted").id
}

/// The reports of a node: the user, what happened, the ids, and the unread items afterwards.
fn reports(cell: &Cell, node: usize) -> Vec<(String, ItemEvent, Vec<NotificationId>, u64)> {
    let record = cell.nodes[node].edge.record();
    let report = |(user, notice): &(UserId, Arc<ItemsNotice>)| {
        (user.to_string(), notice.event, notice.ids.clone(), notice.unread.total)
    };
    record.items.iter().map(report).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_reaches_the_devices_of_the_user_on_other_nodes() {
    let cell = cell(3).await;
    let (a, b) = (cell.device("a", "u1", &[]).await, cell.device("b", "u1", &[]).await);
    let c = cell.device("c", "u2", &[]).await;
    for (node, device) in [(0, &a), (1, &b), (2, &c)] {
        cell.connect(node, device).await;
    }
    let first = publish(&cell, 2, &["u1", "u2"]).await;
    let added = |user: &str, ids: &[NotificationId], unread| {
        (user.to_owned(), ItemEvent::Added, ids.to_vec(), unread)
    };
    for node in [0, 1] {
        cell.until("added", |cell| reports(cell, node) == [added("u1", &[first], 1)]).await;
    }
    cell.until("added", |cell| reports(cell, 2) == [added("u2", &[first], 1)]).await;
    // One user: only the nodes that hold a device of the user.
    let second = publish(&cell, 0, &["u1"]).await;
    cell.until("added", |cell| reports(cell, 1).last() == Some(&added("u1", &[second], 2))).await;
    cell.until("added", |cell| reports(cell, 0).len() == 2).await;
    let items = &cell.nodes[0].delivery.items;
    let (u1, read) = (user("u1"), || WhichItems::Ids(vec![first]));
    let changed = items.change(cell.app, &u1, ItemAction::Read, read());
    assert_eq!(changed.await.expect("changed").unread.total, 1);
    let expected = ("u1".to_owned(), ItemEvent::Read, vec![first], 1);
    cell.until("read", |cell| reports(cell, 1).last() == Some(&expected)).await;
    cell.until("read", |cell| reports(cell, 0).last() == Some(&expected)).await;
    // Nothing changes a second time, and the other user is not concerned.
    let again = items.change(cell.app, &u1, ItemAction::Read, read());
    assert!(again.await.expect("answered").ids.is_empty());
    let deleted = cell.nodes[2].delivery.items.delete(cell.app, &user("u1")).await.expect("deleted");
    assert_eq!(deleted, 2);
    let expected = ("u1".to_owned(), ItemEvent::Deleted, Vec::new(), 0);
    for node in [0, 1] {
        cell.until("deleted", |cell| reports(cell, node).last() == Some(&expected)).await;
    }
    assert_eq!((reports(&cell, 0).len(), reports(&cell, 1).len(), reports(&cell, 2).len()), (4, 4, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_end_with_the_counts_after_all_changes() {
    let cell = cell(2).await;
    let (a, b) = (cell.device("a", "u1", &[]).await, cell.device("b", "u1", &[]).await);
    cell.connect(0, &a).await;
    cell.connect(1, &b).await;
    let mut sent = Vec::new();
    for node in [0, 1, 0, 1, 0, 1] {
        sent.push(publish(&cell, node, &["u1"]).await);
    }
    let change = async |node: usize, which: WhichItems, action| {
        let items = &cell.nodes[node].delivery.items;
        items.change(cell.app, &user("u1"), action, which).await.expect("changed");
    };
    let up_to = WhichItems::UpTo { last: sent[3], category: None };
    let one = WhichItems::Ids(vec![sent[5]]);
    tokio::join!(change(0, up_to, ItemAction::Archive), change(1, one, ItemAction::Read));
    for node in [0, 1] {
        cell.until("the last count", |cell| {
            let reports = reports(cell, node);
            reports.len() == sent.len() + 2 && reports.last().is_some_and(|report| report.3 == 1)
        })
        .await;
    }
}

//! Items: what the notification centre of a user lists, how its state changes, and when items end.

use std::time::Duration;

use noroshi_store::{Accept, ItemChange, ItemPage, Store, WhichItems};
use noroshi_types::{
    AppId, DeviceId, ItemAction, ItemCounts, ItemRequest, ItemState, Label, NotificationId, Request, Target,
    Timestamp, When,
};

use super::fixture::*;

const ALL: (ItemState, ItemState) = (ItemState::Unread, ItemState::Archived);

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn with_item(target: Target, category: Option<&str>) -> Request {
    let item = ItemRequest { category: category.map(label), ..ItemRequest::default() };
    Request { item: Some(item), ..stored(target) }
}

fn to(names: &[&str], category: Option<&str>) -> Request {
    with_item(users(names), category)
}

fn page(app: AppId, of: &str) -> ItemPage {
    ItemPage { app, user: user(of), states: ALL, category: None, after: None, limit: 100, now: NOW }
}

async fn ids(store: &dyn Store, asked: ItemPage) -> Vec<NotificationId> {
    store.items(asked).await.expect("listed").into_iter().map(|item| item.id).collect()
}

async fn counts(store: &dyn Store, app: AppId, of: &str) -> ItemCounts {
    let counts = store.item_counts(app, vec![user(of)], NOW).await.expect("counted");
    counts.into_iter().next().expect("one user")
}

async fn change(
    store: &dyn Store,
    app: AppId,
    of: &str,
    action: ItemAction,
    which: WhichItems,
) -> Vec<NotificationId> {
    let change = ItemChange { app, user: user(of), action, which, now: NOW };
    let changed = store.change_items(change).await.expect("changed");
    assert_eq!(changed.unread, counts(store, app, of).await, "after the change");
    changed.ids
}

fn named(ids: &[NotificationId]) -> WhichItems {
    WhichItems::Ids(ids.to_vec())
}

pub(crate) async fn an_item_is_listed_for_each_named_user(store: &dyn Store) {
    let app = app(store, "a").await;
    join(store, app, "d1", "u1", &[]).await;
    let accepted = send_at(store, app, to(&["u1", "u2"], Some("orders")), NOW).await;
    assert_eq!(accepted.item_users, [user("u1"), user("u2")], "also a user without a device");
    for of in ["u1", "u2"] {
        let listed = store.items(page(app, of)).await.expect("listed");
        let [item] = &listed[..] else { panic!("{of}: {listed:?}") };
        assert_eq!(
            (item.id, item.state, item.category.clone()),
            (accepted.message.id, ItemState::Unread, Some(label("orders")))
        );
        assert_eq!((item.created_at, item.changed_at), (NOW, NOW));
        assert_eq!(item.expires_at, NOW.saturating_add(ItemRequest::default().retention));
        assert_eq!(
            (&item.notification, &item.data),
            (&accepted.message.notification, &accepted.message.data)
        );
    }
    assert!(ids(store, page(app, "u3")).await.is_empty());
    // Without a request for items there is none.
    let without = send_at(store, app, stored(users(&["u1"])), NOW).await;
    assert!(without.item_users.is_empty());
    assert_eq!(ids(store, page(app, "u1")).await, [accepted.message.id]);
}

pub(crate) async fn items_of_devices_belong_to_their_users(store: &dyn Store) {
    let app = app(store, "a").await;
    for (id, of) in [("d1", "u1"), ("d2", "u1"), ("d3", "u2")] {
        join(store, app, id, of, &[]).await;
    }
    let devices = ["d1", "d2", "d3", "unknown"].map(|id| DeviceId::parse(id).expect(id));
    let accepted = send_at(store, app, with_item(Target::Devices(devices.to_vec()), None), NOW).await;
    assert_eq!(accepted.item_users, [user("u1"), user("u2")], "each once");
    assert_eq!(ids(store, page(app, "u1")).await, [accepted.message.id]);
    let nobody = vec![DeviceId::parse("unknown").expect("an id")];
    assert!(send_at(store, app, with_item(Target::Devices(nobody), None), NOW).await.item_users.is_empty());
}

pub(crate) async fn items_do_not_depend_on_delivery(store: &dyn Store) {
    let app = app(store, "a").await;
    let one = join(store, app, "d1", "u1", &[]).await;
    let live = Request { when: When::Active, ..to(&["u1"], None) };
    let first = send_at(store, app, live, NOW).await.message.id;
    let second = send(store, app, Request { ttl: ttl(1), ..to(&["u1"], None) }).await;
    let ack = noroshi_store::Ack { device: one, ids: vec![second] };
    store.ack(vec![ack], NOW).await.expect("acknowledged");
    let late = NOW.saturating_add(Duration::from_secs(3_600));
    while store.prune(late, 100).await.expect("pruned").more {}
    assert_eq!(ids(store, ItemPage { now: late, ..page(app, "u1") }).await, [second, first]);
}

pub(crate) async fn items_of_a_repeated_request_are_written_once(store: &dyn Store) {
    let app = app(store, "a").await;
    let request = std::sync::Arc::new(to(&["u1"], None));
    let one = || Accept {
        app,
        request: request.clone(),
        now: NOW,
        idempotency: Some(noroshi_store::Idempotency { key: "k".into(), body_hash: [1; 32] }),
        campaign: None,
        gate: None,
    };
    let first = accept(store, one()).await.expect("accepted");
    let again = accept(store, one()).await.expect("accepted");
    assert!(again.replayed && again.item_users.is_empty());
    assert_eq!(ids(store, page(app, "u1")).await, [first.message.id]);
    assert_eq!(counts(store, app, "u1").await.total, 1);
}

pub(crate) async fn items_are_filtered_and_come_in_pages(store: &dyn Store) {
    let app = app(store, "a").await;
    let other = super::fixture::app(store, "b").await;
    let mut sent = Vec::new();
    for category in [Some("x"), None, Some("y"), Some("x"), None] {
        sent.push(send(store, app, to(&["u1"], category)).await);
    }
    send(store, other, to(&["u1"], Some("x"))).await;
    sent.reverse();
    assert_eq!(ids(store, page(app, "u1")).await, sent);
    let first = ids(store, ItemPage { limit: 2, ..page(app, "u1") }).await;
    let second = ids(store, ItemPage { limit: 2, after: first.last().copied(), ..page(app, "u1") }).await;
    assert_eq!([first, second].concat(), sent[..4]);
    let of_x = ItemPage { category: Some(label("x")), ..page(app, "u1") };
    assert_eq!(ids(store, of_x.clone()).await, [sent[1], sent[4]]);
    assert_eq!(change(store, app, "u1", ItemAction::Read, named(&[sent[1]])).await, [sent[1]]);
    let unread = (ItemState::Unread, ItemState::Unread);
    assert_eq!(ids(store, ItemPage { states: unread, ..of_x }).await, [sent[4]]);
    let read = (ItemState::Read, ItemState::Read);
    assert_eq!(ids(store, ItemPage { states: read, ..page(app, "u1") }).await, [sent[1]]);
    let counted = counts(store, app, "u1").await;
    let by_name: Vec<_> = counted.categories.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!((counted.total, by_name), (4, vec![("x", 1), ("y", 1)]));
    let both = store.item_counts(app, vec![user("u2"), user("u1"), user("u1")], NOW).await.expect("counted");
    assert_eq!(both.iter().map(|counts| counts.total).collect::<Vec<_>>(), [0, 4, 4], "in order");
    assert!(store.item_counts(app, Vec::new(), NOW).await.expect("counted").is_empty());
}

pub(crate) async fn states_of_items_change_in_order(store: &dyn Store) {
    let app = app(store, "a").await;
    let id = send(store, app, to(&["u1", "u2"], None)).await;
    let state = async || store.items(page(app, "u1")).await.expect("listed")[0].state;
    for (action, changes, then) in [
        (ItemAction::Unread, false, ItemState::Unread),
        (ItemAction::Unarchive, false, ItemState::Unread),
        (ItemAction::Read, true, ItemState::Read),
        (ItemAction::Read, false, ItemState::Read),
        (ItemAction::Unread, true, ItemState::Unread),
        (ItemAction::Archive, true, ItemState::Archived),
        (ItemAction::Archive, false, ItemState::Archived),
        (ItemAction::Read, false, ItemState::Archived),
        (ItemAction::Unread, false, ItemState::Archived),
        (ItemAction::Unarchive, true, ItemState::Read),
        (ItemAction::Archive, true, ItemState::Archived),
    ] {
        let changed = change(store, app, "u1", action, named(&[id])).await;
        assert_eq!((changed.len(), state().await), (usize::from(changes), then), "{action:?}");
    }
    assert_eq!(counts(store, app, "u2").await.total, 1, "another user's item does not change");
    let later = NOW.saturating_add(Duration::from_secs(1));
    let unarchive = ItemAction::Unarchive;
    let changing = ItemChange { app, user: user("u1"), action: unarchive, which: named(&[id]), now: later };
    store.change_items(changing).await.expect("changed");
    assert_eq!(store.items(page(app, "u1")).await.expect("listed")[0].changed_at, later);
}

pub(crate) async fn only_own_items_change(store: &dyn Store) {
    let (one, other) = (app(store, "a").await, app(store, "b").await);
    let id = send(store, one, to(&["u1"], None)).await;
    let made_up = NotificationId::from_bytes([7; 16]);
    for (app, of) in [(one, "u2"), (other, "u1")] {
        assert!(change(store, app, of, ItemAction::Read, named(&[id, made_up])).await.is_empty());
        let all = WhichItems::UpTo { last: id, category: None };
        assert!(change(store, app, of, ItemAction::Archive, all).await.is_empty());
        assert_eq!(store.delete_items(app, &user(of)).await.expect("deleted"), 0);
    }
    assert_eq!(counts(store, one, "u1").await.total, 1);
    assert_eq!(change(store, one, "u1", ItemAction::Read, named(&[made_up, id, id])).await, [id]);
}

pub(crate) async fn all_items_up_to_one_change(store: &dyn Store) {
    let app = app(store, "a").await;
    let mut sent = Vec::new();
    for category in [Some("x"), None, Some("x"), Some("y"), Some("x")] {
        sent.push(send(store, app, to(&["u1", "u2"], category)).await);
    }
    let up_to = |index: usize, category: Option<&str>| WhichItems::UpTo {
        last: sent[index],
        category: category.map(label),
    };
    assert_eq!(change(store, app, "u1", ItemAction::Read, up_to(3, Some("x"))).await, [sent[0], sent[2]]);
    assert_eq!(change(store, app, "u1", ItemAction::Read, up_to(3, None)).await, [sent[1], sent[3]]);
    assert_eq!(counts(store, app, "u1").await.total, 1, "a newer item stays unread");
    assert_eq!(
        change(store, app, "u1", ItemAction::Archive, up_to(4, Some("x"))).await,
        [sent[0], sent[2], sent[4]]
    );
    assert_eq!(counts(store, app, "u1").await.total, 0);
    assert_eq!(counts(store, app, "u2").await.total, 5);
}

pub(crate) async fn concurrent_changes_count_once(store: &dyn Store) {
    let app = app(store, "a").await;
    let mut sent = Vec::new();
    for _ in 0..6 {
        sent.push(send(store, app, to(&["u1"], None)).await);
    }
    let reversed: Vec<NotificationId> = sent.iter().rev().copied().collect();
    let all = WhichItems::UpTo { last: sent[5], category: None };
    let read = |which| ItemChange { app, user: user("u1"), action: ItemAction::Read, which, now: NOW };
    let (a, b, c) = tokio::join!(
        store.change_items(read(WhichItems::Ids(sent.clone()))),
        store.change_items(read(WhichItems::Ids(reversed))),
        store.change_items(read(all)),
    );
    let changed = [a, b, c].map(|changed| changed.expect("changed").ids.len());
    assert_eq!(changed.iter().sum::<usize>(), 6, "{changed:?}");
}

pub(crate) async fn a_user_keeps_the_newest_items(store: &dyn Store) {
    let app = app(store, "a").await;
    let mut sent = Vec::new();
    for _ in 0..ITEM_ROWS + 5 {
        sent.push(send(store, app, to(&["u1"], None)).await);
    }
    sent.reverse();
    sent.truncate(ITEM_ROWS as usize);
    assert_eq!(ids(store, page(app, "u1")).await, sent);
    assert_eq!(store.delete_items(app, &user("u1")).await.expect("deleted"), u64::from(ITEM_ROWS));
    assert!(ids(store, page(app, "u1")).await.is_empty());
    let next = send(store, app, to(&["u1"], None)).await;
    assert_eq!(ids(store, page(app, "u1")).await, [next], "a deleted user may get items again");
}

pub(crate) async fn items_end_with_their_retention(store: &dyn Store) {
    let app = app(store, "a").await;
    let short = ItemRequest { category: None, retention: Duration::from_secs(60) };
    let short = Request { item: Some(short), ..stored(users(&["u1", "u2"])) };
    let ending = send(store, app, short).await;
    let staying = send(store, app, to(&["u1"], None)).await;
    let at = |seconds: u64| NOW.saturating_add(Duration::from_secs(seconds));
    let listed = async |now: Timestamp| ids(store, ItemPage { now, ..page(app, "u1") }).await;
    let total =
        async |now: Timestamp| store.item_counts(app, vec![user("u1")], now).await.expect("counted")[0].total;
    assert_eq!((listed(at(59)).await, total(at(59)).await), (vec![staying, ending], 2));
    assert_eq!((listed(at(60)).await, total(at(60)).await), (vec![staying], 1), "before it is removed");
    let mut removed = 0;
    loop {
        let pruned = store.prune(at(61), 1).await.expect("pruned");
        removed += pruned.items;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(removed, 2);
    assert_eq!(ids(store, page(app, "u1")).await, [staying], "its row is gone");
}

pub(crate) async fn a_cancelled_notification_has_no_items(store: &dyn Store) {
    let app = app(store, "a").await;
    let other = super::fixture::app(store, "b").await;
    let id = send(store, app, to(&["u1"], None)).await;
    store.cancel(other, id, NOW).await.expect_err("of another app");
    assert_eq!(counts(store, app, "u1").await.total, 1);
    store.cancel(app, id, NOW).await.expect("cancelled");
    assert_eq!((counts(store, app, "u1").await.total, ids(store, page(app, "u1")).await.len()), (0, 0));
    // Items outlive the notification's trace.
    let id = send(store, app, to(&["u1"], None)).await;
    let late = NOW.saturating_add(Duration::from_secs(20 * 86_400));
    while store.prune(late, 100).await.expect("pruned").more {}
    assert!(store.notification(app, id, late).await.expect("read").is_none());
    assert_eq!(ids(store, ItemPage { now: late, ..page(app, "u1") }).await, [id]);
    store.cancel(app, id, late).await.expect("cancelled");
    assert!(ids(store, ItemPage { now: late, ..page(app, "u1") }).await.is_empty());
    store.cancel(app, id, late).await.expect_err("nothing is left");
}

pub(crate) async fn the_first_call_counts_items(store: &dyn Store) {
    let app = app(store, "a").await;
    join(store, app, "d1", "u1", &[]).await;
    let device = DeviceId::parse("d1").expect("an id");
    let unread = async || {
        let call = store.first_call(app, &device, 10, NOW).await.expect("read").expect("a device");
        call.unread_items
    };
    assert_eq!(unread().await, 0);
    let id = send(store, app, to(&["u1"], None)).await;
    send(store, app, to(&["u2"], None)).await;
    assert_eq!(unread().await, 1);
    change(store, app, "u1", ItemAction::Read, named(&[id])).await;
    assert_eq!(unread().await, 0);
}

pub(crate) async fn items_end_with_their_app(store: &dyn Store) {
    let (gone, stays) = (app(store, "gone").await, app(store, "stays").await);
    for app in [gone, stays] {
        send(store, app, to(&["u1", "u2"], Some("x"))).await;
    }
    store.delete_app(gone).await.expect("deleted");
    assert!(ids(store, page(gone, "u1")).await.is_empty());
    assert_eq!(ids(store, page(stays, "u1")).await.len(), 1);
    // A node that has not learned of the deletion writes these.
    send(store, gone, to(&["u1"], None)).await;
    while store.prune(NOW.saturating_add(Duration::from_secs(1)), 100).await.expect("pruned").more {}
    assert!(ids(store, page(gone, "u1")).await.is_empty());
}

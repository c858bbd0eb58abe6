//! Experiments and maintenance notices, and the first call of an app.

use noroshi_store::{Definition, DefinitionKind, Error, NewDefinition, Store};
use noroshi_types::{AppId, JsonText, Label, Timestamp};

use super::fixture::*;

use DefinitionKind::{Experiment, Notice};

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn definition(app: AppId, kind: DefinitionKind, name: &str, ends_at: Option<Timestamp>) -> NewDefinition {
    NewDefinition { app, kind, name: label(name), spec: JsonText::from_valid("{\"a\":1}"), ends_at }
}

async fn put(store: &dyn Store, new: NewDefinition) -> Definition {
    store.put_definition(new, 10, NOW).await.expect("kept")
}

fn names(definitions: &[Definition]) -> Vec<&str> {
    definitions.iter().map(|one| one.name.as_str()).collect()
}

pub(crate) async fn a_definition_is_created_changed_and_archived(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let made = put(store, definition(mine, Experiment, "button", Some(at(60)))).await;
    assert_eq!((made.app, made.kind, made.name.as_str()), (mine, Experiment, "button"));
    assert_eq!((made.ends_at, made.created_at, made.updated_at), (Some(at(60)), NOW, NOW));
    assert_eq!((made.spec.as_str(), made.archived_at), ("{\"a\":1}", None));
    // Another kind and another app have their own.
    put(store, definition(mine, Notice, "button", None)).await;
    put(store, definition(theirs, Experiment, "button", None)).await;
    let change =
        NewDefinition { spec: JsonText::from_valid("2"), ..definition(mine, Experiment, "button", None) };
    let changed = store.put_definition(change, 10, at(5)).await.expect("changed");
    let expected =
        Definition { spec: JsonText::from_valid("2"), ends_at: None, updated_at: at(5), ..made.clone() };
    assert_eq!(changed, expected);
    assert_eq!(
        store.definition(mine, Experiment, &label("button")).await.expect("read"),
        Some(changed.clone())
    );
    let live = store.live_definitions(Some(mine)).await.expect("read");
    assert!(live.len() == 2 && live[0] == changed && live[1].kind == Notice, "{live:?}");
    assert_eq!(store.live_definitions(None).await.expect("read").len(), 3);

    let archived =
        store.archive_definition(mine, Experiment, &label("button"), at(9)).await.expect("archived");
    assert_eq!(archived, Definition { archived_at: Some(at(9)), ..changed });
    let again = store.archive_definition(mine, Experiment, &label("button"), at(9)).await;
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
    assert_eq!(store.live_definitions(Some(mine)).await.expect("read").len(), 1);
    assert_eq!(store.definition(mine, Experiment, &label("button")).await.expect("read"), Some(archived));
    // The name is free again, and the live definition is found first.
    let second = put(store, definition(mine, Experiment, "button", None)).await;
    assert!(second.num > made.num && second.created_at == NOW);
    assert_eq!(store.definition(mine, Experiment, &label("button")).await.expect("read"), Some(second));
    assert_eq!(store.definition(mine, Experiment, &label("other")).await.expect("read"), None);
    let nobodys = store.put_definition(definition(AppId(99), Notice, "x", None), 10, NOW).await;
    assert!(matches!(nobodys, Err(Error::NotFound)), "{nobodys:?}");
}

pub(crate) async fn ended_definitions_are_archived_in_pages(store: &dyn Store) {
    let app = app(store, "shop").await;
    for (name, ends_at) in [("a", Some(at(10))), ("b", Some(at(20))), ("c", Some(at(30))), ("d", None)] {
        put(store, definition(app, Experiment, name, ends_at)).await;
    }
    put(store, definition(app, Notice, "n", Some(at(10)))).await;
    assert_eq!(store.archive_ended(Experiment, at(9), 10).await.expect("none yet"), 0);
    assert_eq!(store.archive_ended(Experiment, at(20), 1).await.expect("a page"), 1);
    assert_eq!(names(&store.live_definitions(Some(app)).await.expect("read")), ["b", "c", "d", "n"]);
    assert_eq!(store.archive_ended(Experiment, at(20), 10).await.expect("the rest"), 1);
    assert_eq!(store.archive_ended(Experiment, at(20), 10).await.expect("none"), 0);
    assert_eq!(names(&store.live_definitions(Some(app)).await.expect("read")), ["c", "d", "n"]);
    let gone = store.definition(app, Experiment, &label("a")).await.expect("read").expect("archived");
    assert_eq!(gone.archived_at, Some(at(20)));
}

pub(crate) async fn an_app_has_a_bounded_number_of_live_definitions(store: &dyn Store) {
    let app = app(store, "shop").await;
    let one = |name: &'static str| store.put_definition(definition(app, Notice, name, None), 2, NOW);
    one("a").await.expect("the first");
    one("b").await.expect("the second");
    let third = one("c").await;
    assert!(matches!(&third, Err(Error::Limit(rule)) if rule.contains("at most 2 maintenance")), "{third:?}");
    one("b").await.expect("one change less");
    put(store, definition(app, Experiment, "c", None)).await;
    store.archive_definition(app, Notice, &label("a"), NOW).await.expect("archived");
    one("c").await.expect("there is room again");
}

pub(crate) async fn archived_definitions_come_in_pages(store: &dyn Store) {
    let app = app(store, "shop").await;
    for name in ["a", "b", "c"] {
        put(store, definition(app, Experiment, name, Some(at(1)))).await;
    }
    put(store, definition(app, Experiment, "live", None)).await;
    store.archive_ended(Experiment, at(1), 10).await.expect("archived");
    let page = async |before| store.archived_definitions(app, Experiment, before, 2).await.expect("read");
    let first = page(None).await;
    assert_eq!(names(&first), ["c", "b"]);
    assert_eq!(names(&page(Some(first[1].num)).await), ["a"]);
    assert_eq!(store.archived_definitions(app, Notice, None, 2).await.expect("read"), []);
}

pub(crate) async fn deleting_an_app_removes_its_definitions(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    put(store, definition(mine, Experiment, "x", None)).await;
    put(store, definition(mine, Experiment, "y", Some(NOW))).await;
    store.archive_ended(Experiment, NOW, 10).await.expect("archived");
    put(store, definition(theirs, Experiment, "z", None)).await;
    store.delete_app(mine).await.expect("deleted");
    assert_eq!(names(&store.live_definitions(None).await.expect("read")), ["z"]);
    assert_eq!(store.archived_definitions(mine, Experiment, None, 9).await.expect("read"), []);
}

pub(crate) async fn a_first_call_reads_everything_at_once(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    join(store, mine, "d1", "u1", &["news", "Zebra", "a/b"]).await;
    join(store, theirs, "d1", "u2", &[]).await;
    let call = async |app, id: &str| store.first_call(app, &device(id), 10, NOW).await.expect("read");
    let empty = call(mine, "d1").await.expect("present");
    assert_eq!(Some(empty.device), store.device(mine, &device("d1")).await.expect("read"));
    assert_eq!((empty.unread, empty.newest.len(), empty.expires_at), (0, 0, None));
    let (first, second) =
        (send(store, mine, stored(users(&["u1"]))).await, send(store, mine, stored(devices(&["d1"]))).await);
    let call_two = call(mine, "d1").await.expect("present");
    assert_eq!((call_two.unread, ids(&call_two.newest)), (2, vec![second, first]));
    let listed = store.inbox(mine, &device("d1"), 10, NOW).await.expect("read");
    let newest_first: Vec<_> = listed.0.into_iter().rev().collect();
    assert_eq!(call_two.newest, newest_first);
    assert_eq!(call(theirs, "d1").await.expect("present").unread, 0);
    assert!(call(mine, "nobody").await.is_none());
    // A device without a user and subscriptions.
    let lone = noroshi_store::Registration { device: Some(device("d2")), ..Default::default() };
    store.register(mine, vec![lone], NOW).await.expect("registered");
    let lone = call(mine, "d2").await.expect("present");
    assert!(lone.device.topics.is_empty() && lone.device.user.is_none());
}

pub(crate) async fn a_first_call_shows_the_newest_that_have_not_expired(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let mut sent = Vec::new();
    for seconds in [100, 50, 200, 10] {
        let request = noroshi_types::Request { ttl: ttl(seconds), ..stored(users(&["u1"])) };
        sent.push(send(store, app, request).await);
    }
    let call = async |newest, seconds| {
        let call =
            store.first_call(app, &device("d1"), newest, at(seconds)).await.expect("read").expect("present");
        (call.unread, ids(&call.newest), call.expires_at)
    };
    assert_eq!(call(2, 0).await, (4, vec![sent[3], sent[2]], Some(at(10))));
    assert_eq!(call(2, 20).await, (3, vec![sent[2], sent[1]], Some(at(50))));
    assert_eq!(call(9, 60).await, (2, vec![sent[2], sent[0]], Some(at(100))));
    assert_eq!(call(9, 300).await, (0, vec![], None));
}

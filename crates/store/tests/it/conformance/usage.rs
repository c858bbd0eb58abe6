//! How much an app holds, and the gate before its inboxes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_store::{
    Accept, DefinitionKind, Error, Gate, Idempotency, NewDefinition, NewEndpoint, Registration, Store,
    Subscribing,
};
use noroshi_types::{AppId, JsonText, Label, Quota, Request, Timestamp, Urgency};

use super::fixture::*;

/// The content of each message from `send`: `{"title":"狼煙"}` and `[1,2]`.
const MESSAGE_BYTES: u64 = 18 + 5;

async fn usage(store: &dyn Store, app: AppId) -> Vec<u64> {
    let counted = store.usage(app, &Quota::STORED, NOW).await.expect("counted");
    assert_eq!(
        counted.iter().map(|(quota, _)| *quota).collect::<Vec<_>>(),
        Quota::STORED,
        "in the requested order"
    );
    counted.into_iter().map(|(_, used)| used).collect()
}

pub(crate) async fn usage_of_an_app_is_counted(store: &dyn Store) {
    let (counted, other) = (app(store, "counted").await, app(store, "other").await);
    assert_eq!(usage(store, counted).await, [0; 8], "everyone's topic is not its own");
    for app in [counted, other] {
        join(store, app, "d1", "u1", &["news"]).await;
        join(store, app, "d2", "u1", &[]).await;
        send(store, app, stored(users(&["u1"]))).await;
    }
    send(store, counted, stored(devices(&["d1"]))).await;
    send(store, counted, Request { retain: true, ..stored(to_topic("news")) }).await;
    send(store, counted, stored(to_topic("sport"))).await;
    let endpoint = |hash: u8, expires_at: Option<Timestamp>| NewEndpoint {
        app: counted,
        device: device("d1"),
        hash: noroshi_store::EndpointHash([hash; 32]),
        base: "https://push.example".to_owned(),
        vapid_key: None,
        label: None,
        idle_urgency: Urgency::VeryLow,
        expires_at,
    };
    store.create_endpoint(endpoint(1, None), NOW).await.expect("created");
    store.create_endpoint(endpoint(2, Some(NOW)), Timestamp(NOW.0 - 1)).await.expect("created");
    for (kind, name) in [(DefinitionKind::Experiment, "e"), (DefinitionKind::Notice, "n")] {
        let (name, spec) = (Label::parse(name).expect("a label"), JsonText::from_valid("{}"));
        let new = NewDefinition { app: counted, kind, name, spec, ends_at: None };
        store.put_definition(new, 10, NOW).await.expect("kept");
    }
    let expected = [2, 2, 3, 3 * MESSAGE_BYTES, MESSAGE_BYTES, 0, 1, 1];
    assert_eq!(usage(store, counted).await, expected);
    assert_eq!(usage(store, other).await[..4], [2, 1, 2, 2 * MESSAGE_BYTES]);
    let some = store.usage(counted, &[Quota::Keys, Quota::Topics, Quota::Connections], NOW).await;
    assert_eq!(some.expect("counted"), [(Quota::Topics, 2)], "unknown devices are left out");
    store.delete_device(counted, &device("d2"), NOW).await.expect("deleted");
    assert_eq!(usage(store, counted).await[..4], [1, 2, 2, 2 * MESSAGE_BYTES]);
}

pub(crate) async fn unknown_names_are_reported_once(store: &dyn Store) {
    let (counted, other) = (app(store, "counted").await, app(store, "other").await);
    join(store, counted, "d1", "u1", &["news"]).await;
    join(store, other, "d2", "u1", &["sport"]).await;
    let asked = topics(&["sport", "news", "sport"]);
    assert_eq!(store.unknown_topics(counted, &asked).await.expect("read"), topics(&["sport"]));
    let asked = [device("d2"), device("d1"), device("d2")];
    assert_eq!(store.unknown_devices(counted, &asked).await.expect("read"), [device("d2")]);
    assert_eq!(store.unknown_devices(counted, &[]).await.expect("read"), []);
}

pub(crate) async fn subscriptions_of_many_devices_are_counted(store: &dyn Store) {
    let (counted, other) = (app(store, "counted").await, app(store, "other").await);
    join(store, counted, "d1", "u1", &["news", "sport"]).await;
    join(store, other, "d2", "u1", &["sport"]).await;
    let wanted = |name: &str, wanted: &[&str]| (device(name), topics(wanted).into_iter().collect());
    let asked = [
        wanted("d2", &["news"]),
        wanted("d1", &["sport", "news", "arts"]),
        wanted("d1", &["sport"]),
        wanted("d1", &[]),
    ];
    let answer = |present: u64, new: u64| Subscribing { present, new };
    let expected = [answer(0, 1), answer(2, 1), answer(2, 0), answer(2, 0)];
    assert_eq!(store.subscribing(counted, &asked).await.expect("read"), expected);
    assert_eq!(store.subscribing(counted, &[]).await.expect("read"), []);
}

pub(crate) async fn a_gate_refuses_inbox_rows(store: &dyn Store) {
    let app = app(store, "shop").await;
    for id in ["d1", "d2"] {
        join(store, app, id, "u1", &[]).await;
    }
    let asked = Arc::new(AtomicU64::new(0));
    let send = async |request: Request, passes: bool| {
        let asked = asked.clone();
        let gate = Some(Gate::new(move |rows| {
            asked.store(rows + 1, Ordering::SeqCst);
            passes
        }));
        let idempotency = Some(Idempotency { key: "k".into(), body_hash: [1; 32] });
        accept(store, Accept { app, request: request.into(), now: NOW, idempotency, campaign: None, gate })
            .await
    };
    let refused = send(stored(users(&["u1", "nobody"])), false).await;
    assert!(matches!(refused, Err(Error::Refused)), "{refused:?}");
    assert_eq!(asked.swap(0, Ordering::SeqCst), 2 + 1, "two rows");
    assert_eq!(usage(store, app).await[2], 0, "nothing was stored");
    let kept = send(stored(users(&["u1", "nobody"])), true).await.expect("accepted");
    assert_eq!((kept.kept(), kept.replayed), (2, false), "a refused request does not use its key");
    let again = send(stored(users(&["u1", "nobody"])), false).await.expect("answered again");
    assert!(again.replayed, "a repeated request is not refused later");
    asked.store(0, Ordering::SeqCst);
    let registration = Registration { device: Some(device("d3")), ..Registration::default() };
    store.register(app, vec![registration], NOW).await.expect("registered");
    let gate = Some(Gate::new(|_| false));
    let request = stored(to_topic("news")).into();
    let topic =
        accept(store, Accept { app, request, now: NOW, idempotency: None, campaign: None, gate }).await;
    assert!(topic.is_ok(), "a topic's log does not count as an inbox");
}

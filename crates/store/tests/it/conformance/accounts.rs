//! Apps, keys and secrets.

use noroshi_store::{AppSettings, Before, DeviceFilter, Error, KeyHash, NewKey, Registration, Store};
use noroshi_types::{AppId, AppName, KeyId, Scope, Scopes, Target};

use super::fixture::*;

fn key(app: AppId, hash: u8) -> NewKey {
    NewKey {
        app,
        name: "ci".to_owned(),
        hash: KeyHash([hash; 32]),
        scopes: Scopes::default().with(Scope::Publish).with(Scope::Read),
        expires_at: None,
    }
}

pub(crate) async fn apps_and_keys_are_stored(store: &dyn Store) {
    assert_eq!(store.apps().await.expect("read"), []);
    let settings = AppSettings {
        jwt_secret: Some(vec![1, 2]),
        jwks_url: Some("https://x/jwks".to_owned()),
        ..AppSettings::default()
    };
    let name = AppName::parse("shop").expect("a name");
    let app = store.create_app(name, settings.clone(), NOW).await.expect("created");
    assert_eq!((app.settings.clone(), app.created_at), (settings, NOW));
    let other = self::app(store, "news").await;
    assert_eq!(
        store.apps().await.expect("read").iter().map(|app| app.id).collect::<Vec<_>>(),
        [app.id, other]
    );
    assert_eq!(store.apps().await.expect("read")[0], app);

    let changed = AppSettings {
        jwks: Some("{}".to_owned()),
        issuer: Some("https://id.example".to_owned()),
        audience: Some("shop-api".to_owned()),
        topic_rules: Some("[]".to_owned()),
        ..AppSettings::default()
    };
    let ruled = store.set_topic_rules(app.id, Some("{}".to_owned())).await.expect("changed");
    let rules = AppSettings { topic_rules: Some("{}".to_owned()), ..app.settings.clone() };
    assert_eq!(ruled, noroshi_store::App { settings: rules, ..app.clone() }, "nothing else changes");
    let updated = store.update_app(app.id, changed.clone()).await.expect("updated");
    let settings = AppSettings { topic_rules: Some("{}".to_owned()), ..changed };
    assert_eq!(updated, noroshi_store::App { settings, ..app.clone() }, "the rules are unchanged");
    assert_eq!(store.apps().await.expect("read")[0], updated);

    let quotas = Some(r#"{"devices":5}"#.to_owned());
    let limited = store.set_quotas(app.id, Before::Any, quotas.clone()).await.expect("changed");
    let settings = AppSettings { quotas: quotas.clone(), ..updated.settings.clone() };
    assert_eq!(limited, noroshi_store::App { settings, ..updated.clone() });
    let again = store.update_app(app.id, updated.settings.clone()).await.expect("updated");
    assert_eq!(again, limited, "another change does not affect the quotas");
    let stale = store.set_quotas(app.id, Before::This(None), Some("{}".to_owned())).await;
    assert!(matches!(stale, Err(Error::Conflict)), "{stale:?}");
    assert_eq!(store.set_quotas(app.id, Before::This(quotas), None).await.expect("changed"), updated);
    for before in [Before::Any, Before::This(None)] {
        assert!(matches!(store.set_quotas(AppId(99), before, None).await, Err(Error::NotFound)));
    }

    let key = store.create_key(key(app.id, 1), NOW).await.expect("created");
    assert_eq!(store.keys().await.expect("read"), std::slice::from_ref(&key));
    assert!(matches!(store.revoke_key(other, key.id).await, Err(Error::NotFound)), "a key of another app");
    store.revoke_key(app.id, key.id).await.expect("revoked");
    assert_eq!(store.keys().await.expect("read"), []);
    assert!(matches!(store.revoke_key(app.id, key.id).await, Err(Error::NotFound)));
}

pub(crate) async fn expired_keys_are_listed(store: &dyn Store) {
    let app = app(store, "shop").await;
    let never = store.create_key(key(app, 1), NOW).await.expect("created");
    let new = NewKey { expires_at: Some(at(1)), ..key(app, 2) };
    let expires = store.create_key(new, NOW).await.expect("created");
    assert_eq!((never.expires_at, expires.expires_at), (None, Some(at(1))));
    let expired = |now| [&never, &expires].map(|key| key.has_expired(now));
    assert_eq!([expired(NOW), expired(at(1)), expired(at(2))], [[false; 2], [false, true], [false, true]]);
    store.prune(at(1_000_000), 1_000).await.expect("pruned");
    assert_eq!(store.keys().await.expect("read"), [never, expires]);
}

pub(crate) async fn names_and_hashes_are_unique(store: &dyn Store) {
    let app = app(store, "shop").await;
    let again = store.create_app(AppName::parse("shop").expect("a name"), AppSettings::default(), NOW).await;
    assert!(matches!(again, Err(Error::Exists)), "{again:?}");
    store.create_key(key(app, 1), NOW).await.expect("created");
    let again = store.create_key(key(app, 1), NOW).await;
    assert!(matches!(again, Err(Error::Exists)), "{again:?}");
    store.create_key(key(app, 2), NOW).await.expect("another hash");
    assert!(matches!(store.create_key(key(AppId(99), 3), NOW).await, Err(Error::NotFound)));
    assert!(matches!(store.update_app(AppId(99), AppSettings::default()).await, Err(Error::NotFound)));
    assert!(matches!(store.set_topic_rules(AppId(99), None).await, Err(Error::NotFound)));
    assert!(matches!(store.delete_app(AppId(99)).await, Err(Error::NotFound)));
    assert!(matches!(store.revoke_key(app, KeyId(99)).await, Err(Error::NotFound)));
}

pub(crate) async fn deleting_an_app_removes_everything_it_owns(store: &dyn Store) {
    let (gone, stays) = (app(store, "gone").await, app(store, "stays").await);
    for app in [gone, stays] {
        join(store, app, "d1", "u1", &["news"]).await;
        store.create_key(key(app, app.0 as u8), NOW).await.expect("created");
    }
    let direct =
        send_once(store, gone, stored(users(&["u1"])), "k", 1, NOW).await.expect("accepted").message.id;
    let on_topic =
        send(store, gone, noroshi_types::Request { retain: true, ..stored(to_topic("news")) }).await;
    let kept = send(store, stays, stored(users(&["u1"]))).await;
    store.delete_app(gone).await.expect("deleted");

    assert_eq!(store.apps().await.expect("read").len(), 1);
    assert_eq!(store.keys().await.expect("read").iter().map(|key| key.app).collect::<Vec<_>>(), [stays]);
    assert_eq!(store.device(gone, &device("d1")).await.expect("read"), None);
    for id in [direct, on_topic] {
        assert!(store.notification(gone, id, NOW).await.expect("read").is_none());
    }
    assert_eq!(store.topic(gone, &topic("news")).await.expect("read").position, None);
    assert!(store.retained(gone, &topic("news"), NOW).await.expect("read").is_none());
    assert_eq!(waiting(store, stays, "d1", NOW).await, [kept], "the other app lost nothing");
    // The name is free, and the new app has another id.
    let again = app(store, "gone").await;
    assert_ne!(again, gone);
    join(store, again, "d1", "u1", &["news"]).await;
    assert_eq!(waiting(store, again, "d1", NOW).await, []);
    assert!(!send_once(store, again, stored(users(&["u1"])), "k", 2, NOW).await.expect("a new key").replayed);
}

pub(crate) async fn late_rows_of_a_deleted_app_are_removed(store: &dyn Store) {
    let (gone, stays) = (app(store, "gone").await, app(store, "stays").await);
    // More rows than one commit removes.
    let many = (0..1_200)
        .map(|i| Registration { device: Some(device(&format!("d{i}"))), ..Registration::default() });
    for device in store.register(gone, many.collect(), NOW).await.expect("registered") {
        device.expect("within the limits");
    }
    let kept = join(store, stays, "d1", "u1", &["news"]).await;
    let message = send(store, stays, stored(users(&["u1"]))).await;
    store.delete_app(gone).await.expect("deleted");
    let left = DeviceFilter { limit: 10, ..DeviceFilter::default() };
    assert_eq!(store.devices(gone, left.clone()).await.expect("read"), []);

    let clean_up = async |seconds| while store.prune(at(seconds), 100).await.expect("pruned").more {};
    clean_up(1).await;
    // A node that has not learned of the deletion writes these.
    join(store, gone, "late", "u1", &["news"]).await;
    let late = [stored(users(&["u1"])), stored(to_topic("news")), stored(Target::Everyone)];
    let mut sent = Vec::new();
    for request in late {
        sent.push(send(store, gone, request).await);
    }
    clean_up(60).await;
    assert_eq!(store.devices(gone, left).await.expect("read"), []);
    for id in sent {
        assert!(store.notification(gone, id, NOW).await.expect("read").is_none());
    }
    assert_eq!(store.topics(gone, None, 9).await.expect("read"), []);
    assert_eq!(waiting(store, stays, "d1", NOW).await, [message], "the other app lost nothing");
    assert_eq!(join(store, stays, "d1", "u1", &["news"]).await, kept);
    clean_up(60 + 3_600).await;
    assert_eq!(waiting(store, stays, "d1", NOW).await, [message]);
}

pub(crate) async fn concurrent_first_calls_agree_on_a_secret(store: &dyn Store) {
    let (a, b) = tokio::join!(store.secret("tokens", vec![1; 32]), store.secret("tokens", vec![2; 32]));
    let (a, b) = (a.expect("drawn"), b.expect("drawn"));
    assert_eq!(a, b);
    assert!(a == [1; 32] || a == [2; 32]);
    assert_eq!(store.secret("tokens", vec![3; 32]).await.expect("found"), a);
    assert_eq!(store.secret("other", vec![3; 32]).await.expect("drawn"), [3; 32]);
}

//! Devices, their tokens and durable subscriptions.

use std::collections::BTreeMap;

use noroshi_store::{Attributes, DeviceChange, DeviceFilter, Error, Registration, Store};
use noroshi_types::{DeviceId, Outcome, Topic, limits};

use super::fixture::*;

fn full(id: &str) -> Registration {
    Registration {
        device: Some(device(id)),
        user: Some(user("u1")),
        attributes: Attributes {
            platform: Some("ios".to_owned()),
            locale: Some("ja-JP".to_owned()),
            timezone: Some("Asia/Tokyo".to_owned()),
            app_version: Some("1.2.3".to_owned()),
            tags: tags(&[("tier", "gold")]),
        },
        topics: topics(&["news", "a"]),
        push_token: Some(apns_token("00ff")),
        ..Registration::default()
    }
}

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn registration_of(id: &str) -> Registration {
    Registration { device: Some(device(id)), ..Registration::default() }
}

pub(crate) async fn a_device_is_registered_and_read_back(store: &dyn Store) {
    let app = app(store, "shop").await;
    let answers =
        store.register(app, vec![full("d1"), registration_of("d2")], NOW).await.expect("registered");
    let made: Vec<_> = answers.into_iter().map(|answer| answer.expect("within the limits")).collect();
    assert_eq!(made[0].attributes, full("d1").attributes);
    assert_eq!(made[0].topics, topics(&["a", "news"]), "sorted, without $everyone");
    assert_eq!((&made[0].user, &made[0].push_token), (&full("d1").user, &full("d1").push_token));
    assert_eq!((made[0].app, made[0].created_at, made[0].token_version), (app, NOW, 1));
    assert_ne!(made[0].num, made[1].num);
    for device in made {
        let read = store.device(app, &device.id).await.expect("read");
        assert_eq!(read, Some(device));
    }
    let unnamed = store.register(app, vec![Registration::default()], NOW).await.expect("registered");
    assert!(unnamed[0].as_ref().is_ok_and(|device| !device.id.as_str().is_empty()), "{unnamed:?}");
}

pub(crate) async fn an_update_changes_only_what_it_names(store: &dyn Store) {
    let app = app(store, "shop").await;
    let before =
        store.register(app, vec![full("d1")], NOW).await.expect("registered").remove(0).expect("created");
    let named = Registration {
        attributes: Attributes {
            locale: Some("de".to_owned()),
            tags: tags(&[("beta", "yes")]),
            ..Attributes::default()
        },
        topics: topics(&["b", "news"]),
        ..registration_of("d1")
    };
    let after =
        store.register(app, vec![named], at(9)).await.expect("registered").remove(0).expect("updated");
    let mut expected = before.clone();
    expected.attributes.locale = Some("de".to_owned());
    expected.attributes.tags = tags(&[("tier", "gold"), ("beta", "yes")]);
    expected.topics = topics(&["a", "b", "news"]);
    assert_eq!(after, expected);
    assert_eq!(store.device(app, &device("d1")).await.expect("read"), Some(expected));
}

pub(crate) async fn a_patch_sets_clears_and_keeps_fields(store: &dyn Store) {
    let app = app(store, "shop").await;
    let before =
        store.register(app, vec![full("d1")], NOW).await.expect("registered").remove(0).expect("created");
    let change = DeviceChange {
        platform: Some(None),
        locale: Some(Some("de".to_owned())),
        tags: BTreeMap::from([("tier".to_owned(), None), ("beta".to_owned(), Some("yes".to_owned()))]),
        push_token: Some(None),
        ..DeviceChange::default()
    };
    let after = store.update_device(app, &device("d1"), change, NOW).await.expect("updated");
    let mut expected = before;
    expected.attributes.platform = None;
    expected.attributes.locale = Some("de".to_owned());
    expected.attributes.tags = tags(&[("beta", "yes")]);
    (expected.push_token, expected.push_token_at) = (None, None);
    assert_eq!(after, expected);
    assert_eq!(store.device(app, &device("d1")).await.expect("read"), Some(expected));
}

pub(crate) async fn another_user_finds_an_empty_inbox(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = join(store, app, "d1", "u1", &[]).await;
    let first = send(store, app, stored(users(&["u1"]))).await;
    join(store, app, "d1", "u1", &[]).await;
    assert_eq!(waiting(store, app, "d1", NOW).await, [first], "the same user keeps it");
    assert_eq!(join(store, app, "d1", "u2", &[]).await, num, "the device stays the same");
    assert_eq!(waiting(store, app, "d1", NOW).await, []);
    assert_eq!(counts(store, app, first).await, [(Outcome::Kept, 1), (Outcome::Cancelled, 1)]);

    let second = send(store, app, stored(users(&["u2"]))).await;
    let change = DeviceChange { user: Some(None), ..DeviceChange::default() };
    let patched = store.update_device(app, &device("d1"), change, at(1)).await.expect("updated");
    assert_eq!(patched.user, None);
    assert_eq!(waiting(store, app, "d1", NOW).await, []);
    assert_eq!(counts(store, app, second).await, [(Outcome::Kept, 1), (Outcome::Cancelled, 1)]);
    let nobody = send(store, app, stored(users(&["u2"]))).await;
    assert_eq!(counts(store, app, nobody).await, [(Outcome::Unknown, 1)]);
}

pub(crate) async fn only_a_device_over_its_limits_is_refused(store: &dyn Store) {
    let app = app(store, "shop").await;
    let many: Vec<Topic> = (0..=limits::TOPICS_PER_DEVICE_MAX).map(|i| topic(&format!("t{i}"))).collect();
    let tagged = (0..=limits::TAGS_MAX).map(|i| (format!("n{i}"), String::new())).collect();
    let batch = vec![
        registration_of("d1"),
        Registration { topics: many.clone(), ..registration_of("d2") },
        Registration {
            attributes: Attributes { tags: tagged, ..Attributes::default() },
            ..registration_of("d3")
        },
        Registration { topics: many[1..].to_vec(), ..registration_of("d4") },
    ];
    let answers = store.register(app, batch, NOW).await.expect("registered");
    assert!(matches!(answers[..], [Ok(_), Err(Error::Limit(_)), Err(Error::Limit(_)), Ok(_)]), "{answers:?}");
    assert_eq!(store.device(app, &device("d2")).await.expect("read"), None);
    assert_eq!(store.device(app, &device("d3")).await.expect("read"), None);

    let full = device("d4");
    assert!(matches!(store.subscribe(app, &full, &many[0], NOW).await, Err(Error::Limit(_))));
    assert!(
        matches!(store.subscribe(app, &full, &many[1], NOW).await, Ok(false)),
        "the device has that topic"
    );
    let more = store
        .register(app, vec![Registration { topics: topics(&["x"]), ..registration_of("d4") }], NOW)
        .await;
    assert!(matches!(more.expect("registered")[..], [Err(Error::Limit(_))]));
}

pub(crate) async fn revoked_tokens_stay_revoked(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let d1 = device("d1");
    assert_eq!(store.revoke_tokens(app, &d1, NOW).await.expect("revoked"), 2);
    assert_eq!(store.revoke_tokens(app, &d1, NOW).await.expect("revoked"), 3);
    assert_eq!(store.device(app, &d1).await.expect("read").expect("found").token_version, 3);
    assert!(matches!(store.revoke_tokens(app, &device("d9"), NOW).await, Err(Error::NotFound)));
    // A new device of the same id does not accept tokens of the deleted one.
    store.delete_device(app, &d1, NOW).await.expect("deleted");
    join(store, app, "d1", "u1", &[]).await;
    assert_eq!(store.device(app, &d1).await.expect("read").expect("found").token_version, 4);
}

pub(crate) async fn devices_are_listed_in_pages(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut nums = Vec::new();
    for (id, of) in [("d3", "u1"), ("d1", "u2"), ("d2", "u1")] {
        nums.push(join(store, app, id, of, &["news"]).await);
        join(store, other, id, of, &[]).await;
    }
    let list = async |filter: DeviceFilter| {
        let devices = store.devices(app, filter).await.expect("read");
        assert!(devices.iter().all(|device| device.app == app && device.topics == topics(&["news"])));
        devices.into_iter().map(|device| device.num).collect::<Vec<_>>()
    };
    assert_eq!(list(DeviceFilter { limit: 10, ..DeviceFilter::default() }).await, nums);
    assert_eq!(list(DeviceFilter { limit: 2, ..DeviceFilter::default() }).await, nums[..2]);
    assert_eq!(list(DeviceFilter { limit: 2, after: Some(nums[1]), user: None }).await, nums[2..]);
    assert_eq!(
        list(DeviceFilter { limit: 10, after: None, user: Some(user("u1")) }).await,
        [nums[0], nums[2]]
    );
    assert_eq!(
        list(DeviceFilter { limit: 10, after: Some(nums[0]), user: Some(user("u1")) }).await,
        nums[2..]
    );
    assert_eq!(list(DeviceFilter { limit: 10, after: None, user: Some(user("u9")) }).await, []);
}

pub(crate) async fn subscriptions_are_added_and_removed(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let (d1, news) = (device("d1"), topic("news"));
    assert!(store.subscribe(app, &d1, &news, NOW).await.expect("subscribed"));
    assert!(!store.subscribe(app, &d1, &news, NOW).await.expect("repeated"));
    assert_eq!(
        store.device(app, &d1).await.expect("read").expect("found").topics,
        std::slice::from_ref(&news)
    );
    assert!(store.unsubscribe(app, &d1, &news).await.expect("unsubscribed"));
    assert!(!store.unsubscribe(app, &d1, &news).await.expect("repeated"));
    assert!(!store.unsubscribe(app, &d1, &topic("never")).await.expect("nothing to remove"));
    assert_eq!(store.device(app, &d1).await.expect("read").expect("found").topics, []);
    let missed = send(store, app, stored(to_topic("news"))).await;
    assert!(!waiting(store, app, "d1", NOW).await.contains(&missed));
}

pub(crate) async fn deleting_a_device_removes_its_rows(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = join(store, app, "d1", "u1", &["news"]).await;
    let id = send(store, app, stored(users(&["u1"]))).await;
    assert_eq!(store.delete_device(app, &device("d1"), at(1)).await.expect("deleted"), num);
    assert_eq!(store.device(app, &device("d1")).await.expect("read"), None);
    assert_eq!(counts(store, app, id).await, [(Outcome::Kept, 1), (Outcome::Cancelled, 1)]);
    assert_eq!(store.topic(app, &topic("news")).await.expect("read").subscribers, 0);
    let again = join(store, app, "d1", "u1", &[]).await;
    assert_ne!(again, num, "numbers are never used twice");
    assert_eq!(waiting_of(store, app).await, []);
}

async fn waiting_of(store: &dyn Store, app: noroshi_types::AppId) -> Vec<noroshi_types::NotificationId> {
    let login = noroshi_store::Login { token_version: None, ..login(app, "d1") };
    ids(&log_in(store, login).await.page.messages)
}

pub(crate) async fn unknown_rows_are_not_found(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d9: DeviceId = device("d9");
    assert_eq!(store.device(app, &d9).await.expect("read"), None);
    assert!(matches!(store.delete_device(app, &d9, NOW).await, Err(Error::NotFound)));
    assert!(matches!(
        store.update_device(app, &d9, DeviceChange::default(), NOW).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(store.subscribe(app, &d9, &topic("news"), NOW).await, Err(Error::NotFound)));
    assert!(matches!(store.unsubscribe(app, &d9, &topic("news")).await, Err(Error::NotFound)));
    assert!(matches!(store.inbox(app, &d9, 10, NOW).await, Err(Error::NotFound)));
}

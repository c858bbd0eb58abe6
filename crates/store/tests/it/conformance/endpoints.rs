//! Web Push endpoints of devices, and messages that wait until the device is in use.

use noroshi_store::{Backlog, Device, Endpoint, EndpointHash, Error, NewEndpoint, Registration, Store};
use noroshi_types::{AppId, DeviceNum, EndpointId, Request, Timestamp, Urgency, limits};

use super::fixture::*;

fn new(app: AppId, of: &str, hash: u8) -> NewEndpoint {
    NewEndpoint {
        app,
        device: device(of),
        hash: EndpointHash([hash; 32]),
        base: "https://push.example.com".to_owned(),
        vapid_key: None,
        label: None,
        idle_urgency: Urgency::Normal,
        expires_at: None,
    }
}

async fn find(store: &dyn Store, hash: u8, now: Timestamp) -> Option<Endpoint> {
    store.endpoint(&EndpointHash([hash; 32]), now).await.expect("read")
}

async fn list(store: &dyn Store, app: AppId, of: &str, now: Timestamp) -> Vec<Endpoint> {
    store.endpoints(app, &device(of), now).await.expect("read")
}

pub(crate) async fn an_endpoint_is_stored_found_and_deleted(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    for app in [mine, theirs] {
        join(store, app, "d1", "u1", &[]).await;
    }
    let full = NewEndpoint {
        vapid_key: Some([4; 65]),
        label: Some("chat 狼煙".to_owned()),
        idle_urgency: Urgency::High,
        expires_at: Some(at(60)),
        ..new(mine, "d1", 1)
    };
    let made = store.create_endpoint(full, NOW).await.expect("created");
    let expected = Endpoint {
        id: made.id,
        app: mine,
        device: device("d1"),
        base: "https://push.example.com".to_owned(),
        vapid_key: Some([4; 65]),
        label: Some("chat 狼煙".to_owned()),
        idle_urgency: Urgency::High,
        created_at: NOW,
        expires_at: Some(at(60)),
    };
    assert_eq!(made, expected);
    let plain = store.create_endpoint(new(mine, "d1", 2), at(1)).await.expect("created");
    assert_eq!(find(store, 1, at(59)).await, Some(made.clone()));
    assert_eq!(find(store, 2, at(59)).await, Some(plain.clone()));
    assert_eq!(find(store, 3, at(59)).await, None);
    assert_eq!(list(store, mine, "d1", at(59)).await, [made.clone(), plain.clone()]);
    assert_eq!(list(store, theirs, "d1", at(59)).await, []);
    assert_eq!(list(store, mine, "stranger", at(59)).await, []);
    for (app, of, id) in
        [(theirs, "d1", plain.id), (mine, "d2", plain.id), (mine, "d1", EndpointId(plain.id.0 + 9))]
    {
        let refused = store.delete_endpoint(app, &device(of), id).await;
        assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
    }
    store.delete_endpoint(mine, &device("d1"), plain.id).await.expect("deleted");
    assert_eq!((find(store, 2, NOW).await, find(store, 1, NOW).await), (None, Some(made)));
    let nobodys = store.create_endpoint(new(mine, "d2", 9), NOW).await;
    assert!(matches!(nobodys, Err(Error::NotFound)), "{nobodys:?}");
}

pub(crate) async fn a_device_has_a_bounded_number_of_endpoints(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u1", &[]).await;
    let max = u8::try_from(limits::ENDPOINTS_PER_DEVICE_MAX).expect("within the limit");
    for hash in 0..max {
        let expires_at = (hash == 7).then_some(at(60));
        store
            .create_endpoint(NewEndpoint { expires_at, ..new(app, "d1", hash) }, NOW)
            .await
            .expect("created");
    }
    let refused = store.create_endpoint(new(app, "d1", max), at(59)).await;
    assert!(matches!(refused, Err(Error::Limit(_))), "{refused:?}");
    store.create_endpoint(new(app, "d2", max + 1), at(59)).await.expect("of another device");
    // An expired endpoint does not count.
    assert_eq!((find(store, 7, at(59)).await.is_some(), find(store, 7, at(60)).await), (true, None));
    assert_eq!(list(store, app, "d1", at(60)).await.len(), usize::from(max) - 1);
    store.create_endpoint(new(app, "d1", max), at(60)).await.expect("room");
    assert_eq!(find(store, 7, NOW).await, None);
}

async fn register(store: &dyn Store, app: AppId, of: &str) -> Device {
    let registration =
        Registration { device: Some(device("d1")), user: Some(user(of)), ..Registration::default() };
    store.register(app, vec![registration], NOW).await.expect("registered").remove(0).expect("fits")
}

pub(crate) async fn an_endpoint_is_removed_with_its_user_device_or_app(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u1", &[]).await;
    store.create_endpoint(new(app, "d1", 1), NOW).await.expect("created");
    store.create_endpoint(new(app, "d2", 2), NOW).await.expect("created");
    register(store, app, "u1").await;
    assert!(find(store, 1, NOW).await.is_some(), "the same user registers again");
    register(store, app, "u2").await;
    assert_eq!(find(store, 1, NOW).await, None, "issued by another user");
    store.create_endpoint(new(app, "d1", 3), NOW).await.expect("created");
    store.delete_device(app, &device("d1"), NOW).await.expect("deleted");
    assert_eq!(find(store, 3, NOW).await, None);
    join(store, app, "d1", "u2", &[]).await;
    assert_eq!(list(store, app, "d1", NOW).await, [], "a later device of the same id has none");
    assert!(find(store, 2, NOW).await.is_some());
    store.delete_app(app).await.expect("deleted");
    assert_eq!(find(store, 2, NOW).await, None);
}

pub(crate) async fn messages_that_wait_for_use_are_marked(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num: DeviceNum = join(store, app, "d1", "u1", &[]).await;
    for waits_for_use in [true, false] {
        let request = Request { waits_for_use, ..stored(devices(&["d1"])) };
        assert_eq!(send_at(store, app, request, NOW).await.message.waits_for_use, waits_for_use);
    }
    let backlog =
        Backlog { app, device: num, after: None, session_topics: Vec::new(), session_since: None, now: NOW };
    let page = store.backlog(backlog).await.expect("read");
    let waits: Vec<bool> = page.messages.iter().map(|message| message.waits_for_use).collect();
    assert_eq!(waits, [true, false]);
}

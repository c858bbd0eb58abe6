//! Devices, log-ins and acknowledgements on two nodes at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use noroshi_store::{
    Ack, DeviceChange, DeviceFilter, Devices, Error, Login, Notifications, Postgres, Sessions, State, Topics,
};
use noroshi_types::{AppId, DeviceNum, JsonText, NotificationId, Request, Target};

use super::{open, two};
use crate::conformance::fixture::*;

fn jwt(app: AppId, id: &str, of: &str) -> Login {
    Login {
        user: Some(user(of)),
        create: true,
        token_version: None,
        topics: topics(&["news", "sale"]),
        ..login(app, id)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_ins_on_two_nodes_create_a_device_once() {
    let (_database, one, other) = two().await;
    let app = app(&one, "shop").await;
    for round in 0..10 {
        let logins = |step: usize| -> Vec<Login> {
            (0..16).map(|i| jwt(app, &format!("d{round}-{}", i * step % 17), "u1")).collect()
        };
        // Almost the same devices, in other orders.
        let (first, second) = tokio::join!(one.log_in(logins(1)), other.log_in(logins(5)));
        let (first, second) = (first.expect("read"), second.expect("read"));
        let mut nums: HashMap<String, HashSet<u64>> = HashMap::new();
        for (logins, answers) in [(logins(1), first), (logins(5), second)] {
            for (login, answer) in logins.iter().zip(answers) {
                let logged_in = answer.expect("logged in");
                assert_eq!((logged_in.user, logged_in.topics.len()), (Some(user("u1")), 3));
                nums.entry(login.device.as_str().to_owned()).or_default().insert(logged_in.num.0);
            }
        }
        assert!(nums.values().all(|nums| nums.len() == 1), "each device has one number: {nums:?}");
        let devices = one.devices(app, DeviceFilter { limit: 1_000, ..DeviceFilter::default() }).await;
        let ours = devices
            .expect("read")
            .iter()
            .filter(|d| d.id.as_str().starts_with(&format!("d{round}-")))
            .count();
        assert_eq!(ours, nums.len());
    }
    for name in ["news", "sale"] {
        assert_eq!(one.topics(app, None, 9).await.expect("read").len(), 2, "{name} was created once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_do_not_reach_a_devices_next_user() {
    let (_database, one, other) = two().await;
    let app = app(&one, "shop").await;
    let of = |name: &str| Request {
        data: Some(JsonText::from_valid(format!("{name:?}"))),
        ..stored(users(&[name]))
    };
    for round in 0..20 {
        let id = format!("d{round}");
        join(&one, app, &id, "u1", &[]).await;
        // Sent from both nodes while the device changes its user.
        let sending = async {
            for _ in 0..6 {
                tokio::join!(send(&one, app, of("u1")), send(&other, app, of("u2")));
            }
        };
        let moving = async {
            for name in ["u2", "u1", "u2"] {
                let change = DeviceChange { user: Some(Some(user(name))), ..DeviceChange::default() };
                other.update_device(app, &device(&id), change, NOW).await.expect("moved");
                let logged_in = log_in(&one, login(app, &id)).await;
                assert_eq!(logged_in.user, Some(user(name)));
                let data = |messages: &[Arc<noroshi_types::Message>]| -> HashSet<String> {
                    messages.iter().map(|m| m.data.as_ref().expect("data").as_str().to_owned()).collect()
                };
                let received = data(&logged_in.page.messages);
                assert!(
                    received.iter().all(|received| received == &format!("{name:?}")),
                    "{name} receives {received:?}"
                );
            }
        };
        tokio::join!(sending, moving);
        let left = waiting(&other, app, &id, NOW).await;
        for id in left {
            let state = one.notification(app, id, NOW).await.expect("read").expect("found");
            assert_eq!(state.message.data.as_ref().map(JsonText::as_str), Some("\"u2\""));
        }
        other.delete_device(app, &device(&id), NOW).await.expect("deleted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_covers_later_messages() {
    let (_database, one, other) = two().await;
    let app = app(&one, "shop").await;
    for round in 0..20 {
        // Both nodes create the unused topic.
        let (id, name) = (format!("d{round}"), format!("t{round}"));
        join(&one, app, &id, "u1", &[]).await;
        let subscribed = AtomicBool::new(false);
        let publishing = async {
            let mut after = Vec::new();
            for _ in 0..8 {
                let counts = subscribed.load(Ordering::SeqCst);
                let id = send(&one, app, stored(to_topic(&name))).await;
                if counts {
                    after.push(id);
                }
            }
            after
        };
        let subscribing = async {
            assert!(other.subscribe(app, &device(&id), &topic(&name), NOW).await.expect("subscribed"));
            subscribed.store(true, Ordering::SeqCst);
        };
        let (after, ()) = tokio::join!(publishing, subscribing);
        let logged_in = log_in(&other, login(app, &id)).await;
        let received: HashSet<NotificationId> = ids(&logged_in.page.messages).into_iter().collect();
        // The logs of the stores under test are short.
        let kept = after.len().min(crate::conformance::TOPIC_LOG_ROWS as usize);
        assert!(after[after.len() - kept..].iter().all(|id| received.contains(id)), "round {round}");
    }
}

/// A user with devices and notifications for all of them.
async fn outstanding(store: &Postgres, app: AppId, devices: usize) -> (Vec<DeviceNum>, Vec<NotificationId>) {
    let mut nums = Vec::new();
    for i in 0..devices {
        nums.push(join(store, app, &format!("d{i}"), "u1", &["news"]).await);
    }
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    sent.push(send(store, app, stored(to_topic("news"))).await);
    sent.push(send(store, app, stored(to_topic("news"))).await);
    (nums, sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_counts_once_on_any_node() {
    let (_database, one, other) = two().await;
    let app = app(&one, "shop").await;
    let (devices, sent) = outstanding(&one, app, 40).await;
    let all = devices.iter().map(|device| Ack { device: *device, ids: sent.clone() }).collect::<Vec<_>>();
    let backwards = all.iter().rev().cloned().collect::<Vec<_>>();
    let halves = all[..20].to_vec();
    let (a, b, c) =
        tokio::join!(one.ack(all.clone(), at(1)), other.ack(backwards, at(1)), other.ack(halves, at(1)));
    let mut counted: HashMap<NotificationId, u64> = HashMap::new();
    for acked in [a, b, c].into_iter().flat_map(|acked| acked.expect("acknowledged")) {
        *counted.entry(acked.id).or_default() += acked.count;
    }
    assert_eq!(counted, sent.iter().map(|id| (*id, 40)).collect());
    for id in &sent[..3] {
        let state = one.notification(app, *id, NOW).await.expect("read").expect("found").state;
        assert_eq!(state, State::Done);
    }
    assert_eq!(waiting(&one, app, "d0", NOW).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_device_leaves_nothing_outstanding() {
    let (_database, one, other) = two().await;
    let app = app(&one, "shop").await;
    for round in 0..10 {
        let id = format!("d{round}");
        join(&one, app, &id, "u1", &["news"]).await;
        let sent = std::sync::Mutex::new(Vec::new());
        let sending = async {
            for _ in 0..5 {
                let id = send(&one, app, stored(users(&["u1"]))).await;
                sent.lock().expect("free").push(id);
            }
        };
        let ending = async { other.delete_device(app, &device(&id), NOW).await.expect("deleted") };
        let revoking = async {
            match one.revoke_tokens(app, &device(&id), NOW).await {
                Ok(version) => assert_eq!(version, 2),
                Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
            }
        };
        tokio::join!(sending, ending, revoking);
        for id in sent.into_inner().expect("free") {
            let state = one.notification(app, id, NOW).await.expect("read").expect("found").state;
            assert_eq!(state, State::Done, "round {round}");
        }
        // A recreated device continues its token versions.
        join(&one, app, &id, "u1", &[]).await;
        let made = one.device(app, &device(&id)).await.expect("read").expect("created");
        assert!(made.token_version >= 2, "{}", made.token_version);
        one.delete_device(app, &device(&id), NOW).await.expect("deleted");
    }
}

/// Registrations, subscriptions, moves and log-ins of the same devices on two nodes: every call is answered, and the
/// final state is consistent.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_of_the_same_devices_are_serialized() {
    let (database, one, other) = two().await;
    let third = open(&database).await;
    let app = app(&one, "shop").await;
    let next = AtomicUsize::new(0);
    let work = async |store: &Postgres, salt: usize| {
        for _ in 0..40 {
            let n = next.fetch_add(1, Ordering::Relaxed) * 7 + salt;
            let (id, of) = (format!("d{}", n % 5), format!("u{}", n % 3));
            let name = format!("t{}", n % 4);
            match n % 6 {
                0 => drop(join(store, app, &id, &of, &[&name]).await),
                1 => drop(store.subscribe(app, &device(&id), &topic(&name), NOW).await.or_else(missing)),
                2 => drop(store.unsubscribe(app, &device(&id), &topic(&name)).await.or_else(missing)),
                3 => drop(store.log_in(vec![jwt(app, &id, &of), jwt(app, "d9", &of)]).await.expect("read")),
                4 => drop(
                    send(
                        store,
                        app,
                        stored(if n.is_multiple_of(4) { Target::Everyone } else { users(&[&of]) }),
                    )
                    .await,
                ),
                _ => drop(store.delete_device(app, &device(&id), NOW).await.map_err(|error| {
                    assert!(matches!(error, Error::NotFound), "{error}");
                })),
            }
        }
    };
    tokio::join!(work(&one, 0), work(&other, 1), work(&third, 2));
    let found = one.devices(app, DeviceFilter { limit: 100, ..DeviceFilter::default() }).await.expect("read");
    let client = database.client().await;
    for sql in [
        "SELECT count(*) FROM inbox WHERE device NOT IN (SELECT num FROM devices)",
        "SELECT count(*) FROM subscriptions WHERE device NOT IN (SELECT num FROM devices)",
        "SELECT count(*) FROM devices d WHERE NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.device = d.num AND s.named = 0)",
    ] {
        assert_eq!(client.query_one(sql, &[]).await.expect("read").get::<_, i64>(0), 0, "{sql}");
    }
    assert!(found.iter().all(|device| device.user.is_some()));
}

fn missing(error: Error) -> Result<bool, Error> {
    assert!(matches!(error, Error::NotFound), "{error}");
    Ok(false)
}

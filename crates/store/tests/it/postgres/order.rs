//! Several nodes on one database: one order of commits and hand-overs, and a group of accepts has the same result as
//! single ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures_util::FutureExt as _;
use noroshi_store::{
    Accept, Accepted, DeviceChange, Devices as _, Error, Idempotency, Notifications as _, Options, Postgres,
    PostgresOptions, Recover, Store,
};
use noroshi_types::{AppId, NotificationId, Position, Request, When};
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use super::{fresh, options, server, two};
use crate::conformance::INBOX_ROWS;
use crate::conformance::fixture::*;

/// Ids and offsets, in the order of the answers.
type Calls = Vec<(NotificationId, Option<u64>)>;

fn plain(app: AppId, request: Request) -> Accept {
    Accept { app, request: request.into(), now: NOW, idempotency: None, campaign: None, gate: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_answers_follow_the_commit_order_of_all_nodes() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    join(&one, app, "d1", "u1", &["news"]).await;
    let calls: Arc<Mutex<Calls>> = Arc::default();
    let accept_many = async |store: &Postgres| {
        let mut answers = Vec::new();
        for i in 0..300 {
            let target = if i % 3 == 0 { users(&["u1"]) } else { to_topic("news") };
            let (calls, (answer, answered)) = (Arc::clone(&calls), oneshot::channel());
            let done = move |result: Result<Accepted, Error>| {
                let message = result.expect("accepted").message;
                let offset = message.topic.as_ref().map(|place| place.position.offset);
                calls.lock().expect("not poisoned").push((message.id, offset));
                let _ = answer.send(());
            };
            store.accept(plain(app, stored(target)), Box::new(done));
            answers.push(answered);
            if i % 50 == 0 {
                // So that both have several groups.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        for answered in answers {
            answered.await.expect("answered");
        }
    };
    tokio::join!(accept_many(&one), accept_many(&other));
    let calls = calls.lock().expect("not poisoned").clone();
    assert_eq!(calls.len(), 600);
    assert!(calls.is_sorted_by(|a, b| a.0 < b.0), "answers of both nodes are in the order of ids");
    let offsets = calls.iter().filter_map(|(_, offset)| *offset);
    assert!(offsets.eq(1..=400), "offsets have no gaps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inboxes_keep_their_limit_whichever_node_adds() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let names: Vec<String> = (0..200).map(|number| format!("u{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = join_many(&one, app, &all).await;
    let mut sent = Vec::new();
    // The first node knows the inboxes until the other one adds to them.
    for (store, count) in [(&one, 3), (&other, 1), (&one, 1), (&other, 4), (&one, 3), (&other, 3), (&one, 2)]
    {
        for _ in 0..count {
            sent.push(send(store, app, stored(users(&all))).await);
        }
        let kept = &sent[sent.len().saturating_sub(INBOX_ROWS as usize)..];
        for name in ["u0", "u77", "u199"] {
            assert_eq!(waiting(&one, app, name, NOW).await, kept, "{name}");
        }
    }
    // An emptied inbox has room for as many again.
    assert_eq!(ack(&other, found[77], &sent).await, u64::from(INBOX_ROWS));
    let before = sent.len();
    for _ in 0..INBOX_ROWS {
        sent.push(send(&one, app, stored(users(&all))).await);
        assert_eq!(waiting(&one, app, "u77", NOW).await, sent[before..]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_commits_during_a_hand_over() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    join(&one, app, "d1", "u1", &[]).await;
    let (under_way, times) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
    let (flag, count) = (Arc::clone(&under_way), Arc::clone(&times));
    one.hand_over(Arc::new(move || {
        let (flag, count) = (Arc::clone(&flag), Arc::clone(&count));
        async move {
            flag.store(true, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            flag.store(false, Ordering::SeqCst);
            *count.lock().expect("not poisoned") += 1;
        }
        .boxed()
    }));
    let accept_many = async |store: &Postgres| {
        for _ in 0..20 {
            let (answer, answered) = oneshot::channel();
            let under_way = Arc::clone(&under_way);
            let done = move |result: Result<Accepted, Error>| {
                result.expect("accepted");
                let _ = answer.send(under_way.load(Ordering::SeqCst));
            };
            store.accept(plain(app, stored(users(&["u1"]))), Box::new(done));
            assert!(!answered.await.expect("answered"), "answered during the hand-over of another group");
        }
    };
    tokio::join!(accept_many(&one), accept_many(&other));
    // The last group may still be in progress.
    assert!(*times.lock().expect("not poisoned") >= 19);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_of_the_order_lock_does_not_stop_others() {
    let database = server().database().await;
    let impatient = PostgresOptions { idle_timeout: Duration::from_secs(1), ..options(&database) };
    let other = Postgres::open(impatient.clone(), &mut Registry::default()).await.expect("opened");
    let app = app(&other, "shop").await;
    join(&other, app, "d1", "u1", &[]).await;
    // A node whose only thread blocks during the hand-over looks like a stopped node to the server.
    let (go_on, wait) = mpsc::sync_channel::<()>(1);
    let (stops, stopped) = oneshot::channel();
    let node = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let store = Postgres::open(impatient, &mut Registry::default()).await.expect("opened");
            let once = Mutex::new(Some((wait, stops)));
            store.hand_over(Arc::new(move || {
                if let Some((wait, stops)) = once.lock().expect("not poisoned").take() {
                    stops.send(()).expect("the test waits");
                    wait.recv().expect("the test sends the signal");
                }
                async {}.boxed()
            }));
            let first = send(&store, app, stored(users(&["u1"]))).await;
            let second = send(&store, app, stored(users(&["u1"]))).await;
            (first, second)
        })
    });
    stopped.await.expect("stopped");
    let meanwhile = send(&other, app, stored(users(&["u1"]))).await;
    go_on.send(()).expect("waiting");
    let (first, second) = node.join().expect("completed");
    assert!(first < meanwhile && meanwhile < second, "{first:?} {meanwhile:?} {second:?}");
    assert_eq!(waiting(&other, app, "d1", NOW).await, [first, meanwhile, second]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_gets_nothing_of_its_previous_user() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    join(&one, app, "d1", "u1", &[]).await;
    for _ in 0..60 {
        let to = |name: &str| DeviceChange { user: Some(Some(user(name))), ..DeviceChange::default() };
        let d1 = device("d1");
        let (_, changed) = tokio::join!(
            send(&one, app, stored(users(&["u1"]))),
            other.update_device(app, &d1, to("u2"), NOW)
        );
        changed.expect("changed");
        assert_eq!(waiting(&other, app, "d1", NOW).await, []);
        other.update_device(app, &d1, to("u1"), NOW).await.expect("changed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_text_that_cannot_be_stored_is_refused() {
    let (_guard, store) = fresh().await;
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    let answers = (0..9).map(|i| {
        // PostgreSQL does not allow a zero byte in a text.
        let collapse_key = (i == 4).then(|| "a\0b".into());
        accept(&store, plain(app, Request { collapse_key, ..stored(users(&["u1"])) }))
    });
    let answers = futures_util::future::join_all(answers).await;
    let refused: Vec<usize> = (0..9).filter(|i| answers[*i].is_err()).collect();
    assert_eq!(refused, [4]);
    assert_eq!(waiting(&store, app, "d1", NOW).await.len(), 5, "what an inbox takes");
}

/// A few hundred requests that replace, evict, trim, repeat keys and name unknown recipients.
fn script() -> Vec<(Request, Option<Idempotency>)> {
    let mut state = 7u64;
    let mut draw = move |below: u64| {
        // The constants of Numerical Recipes: the same script every time.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..400)
        .map(|i| {
            let target = match draw(6) {
                0 => to_topic(&format!("t{}", draw(3))),
                1 => noroshi_types::Target::Everyone,
                2 => devices(&[&format!("d{}", draw(6)), "nobody"]),
                _ => users(&[&format!("u{}", draw(3)), &format!("u{}", 3 + draw(2))]),
            };
            let request = Request {
                collapse_key: (draw(3) == 0).then(|| format!("k{}", draw(2)).into()),
                retain: draw(4) == 0,
                when: if draw(8) == 0 { When::Connected } else { When::Stored },
                push: if draw(3) == 0 {
                    crate::conformance::push_fixture::always()
                } else {
                    Default::default()
                },
                ..stored(target)
            };
            let key = draw(5) == 0;
            let idempotency = key.then(|| Idempotency {
                key: format!("key{}", draw(40)).into(),
                body_hash: [(i % 3) as u8; 32],
            });
            (request, idempotency)
        })
        .collect()
}

/// Targets, stored rows, replayed, offset.
type Answered = (Option<u64>, u64, bool, Option<u64>);

/// The answers and final state of a store, with indices of the script instead of ids.
#[derive(Debug, PartialEq)]
struct Outcome {
    answers: Vec<Option<Answered>>,
    inboxes: Vec<Vec<usize>>,
    logs: Vec<(Vec<usize>, bool, u64)>,
    states: Vec<noroshi_store::State>,
}

async fn play(store: &dyn Store, burst: usize) -> Outcome {
    let app = app(store, "shop").await;
    for i in 0..5 {
        join(store, app, &format!("d{i}"), &format!("u{i}"), &["t0", "t1"]).await;
    }
    let script = script();
    let (mut answers, mut places) = (Vec::new(), BTreeMap::new());
    for (first, burst) in script.chunks(burst).enumerate().map(|(i, chunk)| (i * burst, chunk)) {
        let accepts = burst.iter().map(|(request, idempotency)| {
            let request = Accept { idempotency: idempotency.clone(), ..plain(app, request.clone()) };
            accept(store, request)
        });
        for (i, answer) in futures_util::future::join_all(accepts).await.into_iter().enumerate() {
            answers.push(answer.ok().map(|accepted| {
                if !accepted.replayed {
                    places.insert(accepted.message.id, first + i);
                }
                let offset = accepted.message.topic.as_ref().map(|place| place.position.offset);
                (accepted.targets, accepted.kept(), accepted.replayed, offset)
            }));
        }
    }
    let place = |ids: Vec<NotificationId>| ids.into_iter().map(|id| places[&id]).collect::<Vec<_>>();
    let mut inboxes = Vec::new();
    for i in 0..5 {
        let (messages, total) = store.inbox(app, &device(&format!("d{i}")), 99, NOW).await.expect("read");
        assert_eq!(messages.len() as u64, total);
        inboxes.push(place(ids(&messages)));
    }
    let mut logs = Vec::new();
    for name in ["t0", "t1", "t2", "$everyone"] {
        let topic = noroshi_types::Topic::from_trusted(name);
        let head = store.topic(app, &topic).await.expect("read");
        let position = head.position.expect("published");
        let since = Some(Position { offset: 0, ..position });
        let recover = Recover { app, topic, since, retained: true, now: NOW };
        let page = store.recover(recover).await.expect("read");
        assert_eq!(page.messages.len() as u64, head.log_rows);
        let all = [ids(&page.messages), ids(&page.retained)].concat();
        logs.push((place(all), page.heads[0].complete, position.offset));
    }
    let mut states = Vec::new();
    for id in places.keys() {
        states.push(store.notification(app, *id, NOW).await.expect("read").expect("found").state);
    }
    Outcome { answers, inboxes, logs, states }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_has_the_same_result_as_single_requests() {
    let small = Options {
        inbox_rows: crate::conformance::INBOX_ROWS,
        item_rows: crate::conformance::ITEM_ROWS,
        topic_log_rows: crate::conformance::TOPIC_LOG_ROWS,
        ..Options::default()
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sqlite = noroshi_store::Sqlite::open(folder.path(), small, &mut Registry::default())
        .expect("opened a fresh store");
    let expected = play(&sqlite, 1).await;
    assert!(expected.answers.iter().any(Option::is_none), "the script has conflicts");
    for burst in [1, 7, 100] {
        let (_guard, store) = fresh().await;
        let found = play(&store, burst).await;
        assert_eq!(found.answers, expected.answers, "bursts of {burst}");
        assert_eq!(found, expected, "bursts of {burst}");
    }
}

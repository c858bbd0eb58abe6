//! The decisions against a real store and an edge that only records.

mod cluster;
mod emitted;
mod fake_outlet;
mod push;
mod recording_edge;
mod seen;
mod session_edge;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::{Clock, Delivery, Error, metrics::Metrics};
use noroshi_store::{
    Apps, Devices, Idempotency, Notifications, Registration, Sessions, Sqlite, Store, sqlite::Options,
};
use noroshi_types::{
    AppId, AppName, DeviceId, DeviceNum, JsonText, Outcome, Push, Request, Target, Timestamp, Topic, Ttl,
    Urgency, UserId, When,
};
use recording_edge::RecordingEdge;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

struct Bench {
    delivery: Arc<Delivery>,
    edge: Arc<RecordingEdge>,
    store: Arc<Sqlite>,
    app: AppId,
    registry: noroshi_telemetry::Registry,
    _folder: tempfile::TempDir,
}

async fn bench() -> Bench {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Arc::new(Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store"));
    let name = AppName::parse("dev").expect("a name");
    let app = store.create_app(name, Default::default(), NOW).await.expect("an app").id;
    let metrics = Metrics::new(&mut registry);
    let runtime = tokio::runtime::Handle::current();
    let delivery = Delivery::new(store.clone() as Arc<dyn Store>, Clock::fixed(NOW), metrics, runtime);
    let edge = Arc::new(RecordingEdge::default());
    delivery.context.attach_edge(edge.clone());
    Bench { delivery, edge, store, app, registry, _folder: folder }
}

impl Bench {
    async fn device(&self, user: &str) -> (DeviceId, DeviceNum) {
        let id = DeviceId::parse(&format!("d-{user}")).expect("an id");
        let user = UserId::parse(user).expect("an id");
        let registration =
            Registration { device: Some(id.clone()), user: Some(user), ..Registration::default() };
        let mut made = self.store.register(self.app, vec![registration], NOW).await.expect("registered");
        (id, made.remove(0).expect("accepted").num)
    }
}

/// Writes all events into a file in the folder.
fn event_log(delivery: &Delivery, folder: &Path) -> noroshi_events::Service {
    let file = noroshi_events::config::File::new(folder.join("events"));
    let config = noroshi_events::Config {
        sinks: vec![noroshi_events::config::Sink::File(file)],
        ..noroshi_events::Config::new("n", folder.join("spool"))
    };
    let metrics = noroshi_events::Metrics::new(&mut noroshi_telemetry::registry());
    let names = Arc::new(|_| None);
    let log =
        noroshi_events::Service::start(&config, names, None, &Default::default(), &metrics).expect("a log");
    delivery.context.outcomes.attach_events(log.events());
    log
}

/// The events in that file.
fn written_events(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("events/events.ndjson")).unwrap_or_default()
}

fn request(target: Target, when: When) -> Request {
    Request {
        target,
        when,
        ttl: Ttl::default(),
        urgency: Urgency::Normal,
        waits_for_use: false,
        category: None,
        collapse_key: None,
        retain: false,
        notification: None,
        data: Some(JsonText::from_valid("1")),
        push: Push::default(),
        item: None,
        trace: None,
    }
}

fn users(names: &[&str]) -> Target {
    Target::Users(names.iter().map(|name| UserId::parse(name).expect("an id")).collect())
}

#[tokio::test]
async fn a_stored_message_reaches_the_edge_before_the_answer() {
    let bench = bench().await;
    let (_, num) = bench.device("u1").await;
    let receipt =
        bench.delivery.publisher.publish(bench.app, request(users(&["u1", "u2"]), When::Stored), None).await;
    let receipt = receipt.expect("accepted");
    assert_eq!(receipt.targets, Some(2));
    assert_eq!(bench.edge.delivered(), [receipt.id]);
    let acked = bench.delivery.acks.ack_now(bench.app, num, vec![receipt.id]).await.expect("written");
    assert_eq!(acked, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_edge_gets_stored_messages_in_commit_order() {
    let bench = bench().await;
    let topic = Topic::parse("news").expect("a topic");
    let publishes: Vec<_> = (0..200)
        .map(|i| {
            let (delivery, app) = (bench.delivery.clone(), bench.app);
            let target = if i % 2 == 0 { Target::Topic(topic.clone()) } else { users(&["u1"]) };
            tokio::spawn(
                async move { delivery.publisher.publish(app, request(target, When::Stored), None).await },
            )
        })
        .collect();
    for publish in publishes {
        publish.await.expect("no panic").expect("accepted");
    }
    let delivered = bench.edge.delivered();
    assert_eq!(delivered.len(), 200);
    assert!(delivered.is_sorted(), "ids are in commit order");
    let offsets = bench.edge.offsets();
    assert_eq!(offsets, (1..=100).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_repeated_request_is_answered_without_a_second_delivery() {
    let bench = bench().await;
    bench.device("u1").await;
    let idempotency = |hash: u8| Some(Idempotency { key: "k".into(), body_hash: [hash; 32] });
    let publish = |hash| {
        bench.delivery.publisher.publish(
            bench.app,
            request(users(&["u1"]), When::Connected),
            idempotency(hash),
        )
    };
    let first = publish(1).await.expect("accepted");
    let again = publish(1).await.expect("answered");
    assert_eq!((again.id, again.targets, again.replayed), (first.id, first.targets, true));
    assert_eq!(bench.edge.delivered(), [first.id]);
    let conflict = publish(2).await;
    assert!(matches!(conflict, Err(Error::Store(noroshi_store::Error::IdempotencyConflict))));
}

#[tokio::test]
async fn sessions_read_the_store_after_a_panic_in_the_hand_over() {
    let bench = bench().await;
    let (device, _) = bench.device("u1").await;
    let publish = || bench.delivery.publisher.publish(bench.app, request(users(&["u1"]), When::Stored), None);
    bench.edge.break_next();
    let broken = publish().await.expect("it is accepted: it is on disk");
    assert_eq!((bench.edge.delivered(), bench.edge.rereads()), (Vec::new(), 1));
    let next = publish().await.expect("accepted");
    assert_eq!((bench.edge.delivered(), bench.edge.rereads()), (vec![next.id], 1));
    let (_, total) = bench.store.inbox(bench.app, &device, 10, NOW).await.expect("read");
    assert_eq!(total, 2);
    assert!(broken.id < next.id);
}

#[tokio::test]
async fn publishes_are_refused_while_the_shards_are_behind() {
    let bench = bench().await;
    let (device, _) = bench.device("u1").await;
    bench.edge.set_room(false);
    let refused =
        bench.delivery.publisher.publish(bench.app, request(users(&["u1"]), When::Stored), None).await;
    assert!(matches!(refused, Err(Error::NoRoom { .. })));
    let (_, total) = bench.store.inbox(bench.app, &device, 10, NOW).await.expect("read");
    assert_eq!((total, bench.edge.delivered().len()), (0, 0));
}

#[tokio::test]
async fn a_message_for_connected_devices_leaves_a_trace() {
    let bench = bench().await;
    let receipt =
        bench.delivery.publisher.publish(bench.app, request(users(&["u1"]), When::Connected), None).await;
    let id = receipt.expect("accepted").id;
    assert_eq!(bench.edge.delivered(), [id]);
    // Written in the background: the next write follows it.
    bench.device("u1").await;
    let state = bench.store.notification(bench.app, id, NOW).await.expect("read").expect("known");
    assert_eq!(state.message.when, When::Connected);
}

#[tokio::test]
async fn queued_acknowledgements_are_written_at_the_drain() {
    let bench = bench().await;
    let (device, num) = bench.device("u1").await;
    let receipt =
        bench.delivery.publisher.publish(bench.app, request(users(&["u1"]), When::Stored), None).await;
    let id = receipt.expect("accepted").id;
    bench.delivery.acks.push(bench.app, num, vec![id]);
    bench.delivery.clone().run(std::future::ready(())).await;
    let (_, total) = bench.store.inbox(bench.app, &device, 10, NOW).await.expect("read");
    assert_eq!(total, 0);
    let trace = bench.store.trace(bench.app, id, &device).await.expect("read").expect("known");
    assert!(trace.steps.iter().any(|step| step.outcome == Outcome::Acked));
}

#[tokio::test]
async fn an_invented_acknowledgement_is_not_measured() {
    let bench = bench().await;
    let (_, num) = bench.device("u1").await;
    let made_up =
        noroshi_types::NotificationId::parse("01900000-0000-7000-8000-000000000000").expect("an id");
    assert_eq!(bench.delivery.acks.ack_now(bench.app, num, vec![made_up]).await.expect("answered"), 0);
    let text = noroshi_telemetry::encode(&bench.registry).expect("text");
    assert!(text.contains("noroshi_acked_seconds_count 0\n"), "{text}");
}

#[tokio::test]
async fn a_device_without_a_push_token_is_reported() {
    let bench = bench().await;
    bench.device("u1").await;
    let mut wanted = request(users(&["u1"]), When::Stored);
    wanted.push.mode = noroshi_types::PushMode::Always;
    let id = bench.delivery.publisher.publish(bench.app, wanted, None).await.expect("accepted").id;
    bench.device("u2").await;
    let state = bench.store.notification(bench.app, id, NOW).await.expect("read").expect("known");
    assert!(state.counts.contains(&(Outcome::NoPushToken, 1)), "{:?}", state.counts);
}

#[tokio::test]
async fn a_deleted_device_loses_its_connection() {
    let bench = bench().await;
    let (device, _) = bench.device("u1").await;
    bench.delivery.delete_device(bench.app, &device).await.expect("deleted");
    assert_eq!(bench.edge.closed(), [device]);
}

#[tokio::test]
async fn inbox_outcomes_are_counted_as_they_are_recorded() {
    let bench = bench().await;
    bench.device("u1").await;
    let mut collapsing = request(users(&["u1", "nobody"]), When::Stored);
    collapsing.collapse_key = Some("score".into());
    for _ in 0..2 {
        bench.delivery.publisher.publish(bench.app, collapsing.clone(), None).await.expect("accepted");
    }
    let last = bench.delivery.publisher.publish(bench.app, request(users(&["u1"]), When::Stored), None).await;
    let id = last.expect("accepted").id;
    assert_eq!(bench.delivery.publisher.cancel(bench.app, id).await.expect("cancelled").removed, 1);
    let metrics = noroshi_telemetry::encode(&bench.registry).expect("text");
    for (outcome, count) in [("kept", 3), ("unknown", 2), ("collapsed", 1), ("cancelled", 1)] {
        let line = format!("noroshi_outcomes_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_leaves_an_inbox_is_reported_with_its_device() {
    let bench = bench().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = event_log(&bench.delivery, folder.path());
    let (_, num) = bench.device("u1").await;
    let publish = async |collapse_key: Option<&str>, ttl_seconds| {
        let ttl = Ttl::new(Duration::from_secs(ttl_seconds)).expect("a ttl");
        let wanted = Request { ttl, ..request(users(&["u1"]), When::Stored) };
        let wanted = Request { collapse_key: collapse_key.map(Into::into), ..wanted };
        bench.delivery.publisher.publish(bench.app, wanted, None).await.expect("accepted").id
    };
    let collapsed = publish(Some("score"), 86_400).await;
    publish(Some("score"), 86_400).await;
    let expired = publish(None, 10).await;
    bench.delivery.clock().set(NOW.saturating_add(Duration::from_secs(10)));
    let run = tokio::spawn(bench.delivery.clone().run(std::future::pending()));
    let line = |id, event: &str, why: &str| {
        format!(r#""event":"{event}","id":"{id}",{why},"count":1,"devices":[{}]}}"#, num.0)
    };
    let expected =
        [line(collapsed, "dropped", r#""why":"collapsed""#), line(expired, "expired", r#""of":"inbox""#)];
    let told = async {
        while !expected.iter().all(|line| written_events(folder.path()).contains(line)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await;
    assert!(told.is_ok(), "{expected:?} in {}", written_events(folder.path()));
    run.abort();
    tokio::task::spawn_blocking(move || log.drain()).await.expect("drained");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acceptance_names_its_topic_and_to_a_tap_its_recipients() {
    use noroshi_events::{Event, Record, Tap, event::Named};

    #[derive(Default)]
    struct Reader(std::sync::Mutex<Vec<noroshi_events::event::Accepted>>);
    impl Tap for Reader {
        fn read(&self, records: &mut Vec<Record>, _: u64) {
            let accepted = records.drain(..).filter_map(|record| match record.event {
                Event::Accepted(accepted) => Some(*accepted),
                _ => None,
            });
            self.0.lock().expect("no panic").extend(accepted);
        }
    }

    let bench = bench().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = event_log(&bench.delivery, folder.path());
    bench.device("u1").await;
    let publish = async |target| {
        let request = request(target, When::Stored);
        bench.delivery.publisher.publish(bench.app, request, None).await.expect("accepted").id
    };
    // Without a tap, nothing copies recipients.
    let first = publish(users(&["u1"])).await;
    let reader = Arc::<Reader>::default();
    let tap: std::sync::Weak<dyn Tap> = Arc::<Reader>::downgrade(&reader);
    log.events().attach_tap(tap);
    log.events().set_tapped(true);
    let to_user = publish(users(&["u1", "u2"])).await;
    let to_topic = publish(Target::Topic(Topic::parse("news").expect("a topic"))).await;
    let seen = async {
        while !reader.0.lock().expect("no panic").iter().any(|accepted| accepted.id == to_topic) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.expect("in time");
    let seen = reader.0.lock().expect("no panic").clone();
    let of = |id| seen.iter().find(|accepted| accepted.id == id);
    assert!(of(first).is_none_or(|accepted| accepted.named.is_none()));
    let named = of(to_user).and_then(|accepted| accepted.named.clone());
    assert!(matches!(named, Some(Named::Users(users)) if users.len() == 2));
    let of_topic = of(to_topic).expect("seen");
    assert_eq!((of_topic.topic.as_ref().map(Topic::as_str), &of_topic.named), (Some("news"), &None));
    tokio::task::spawn_blocking(move || log.drain()).await.expect("drained");
    let lines = written_events(folder.path());
    assert!(lines.contains(r#""target":"topic","topic":"news""#) && !lines.contains("u2"), "{lines}");
}

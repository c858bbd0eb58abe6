//! Push work from publish to outcome, with a real store.

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::push::{self, Outlet, retry::Backoff};
use noroshi_delivery::{Clock, Delivery, metrics::Metrics};
use noroshi_push::{Answer, Vault};
use noroshi_store::{
    Apps, Devices, Maintenance, Notifications, PushQueue, Registration, Sqlite, Store, sqlite::Options,
};
use noroshi_types::{
    AppId, AppName, DeviceId, DeviceNum, JsonText, NotificationId, Outcome, Push, PushEnvironment, PushMode,
    PushService, PushToken, Request, Target, Timestamp, Topic, Ttl, UserId, When,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake_outlet::FakeOutlet;
use crate::{event_log, request, written_events};

mod activity;
mod broadcasts;
pub(crate) mod campaign;
mod failing;
mod other_services;
mod preferences;
mod restart;
mod services;
mod several;
mod variants;

/// Generous: only a failing test waits this long.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Bench {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) store: Arc<Sqlite>,
    pub(crate) outlet: Arc<FakeOutlet>,
    pub(crate) app: AppId,
    pub(crate) registry: noroshi_telemetry::Registry,
    run: JoinHandle<()>,
    /// Dropped, it starts the drain.
    drain: Option<oneshot::Sender<()>>,
}

pub(crate) fn config() -> push::Config {
    let backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_millis(100) };
    push::Config { backoff, drain: Duration::from_secs(5), ..push::Config::default() }
}

/// A node on a folder that may have data, with fake push services.
pub(crate) async fn open(folder: &std::path::Path, config: push::Config) -> Bench {
    let outlet = Arc::new(FakeOutlet::default());
    let bench = open_with(folder, outlet.clone(), config).await;
    Bench { outlet, ..bench }
}

pub(crate) async fn open_with(
    folder: &std::path::Path,
    services: Arc<dyn Outlet>,
    config: push::Config,
) -> Bench {
    open_at(folder, services, config, Clock::system()).await
}

pub(crate) async fn open_at(
    folder: &std::path::Path,
    services: Arc<dyn Outlet>,
    config: push::Config,
    clock: Clock,
) -> Bench {
    let mut registry = noroshi_telemetry::registry();
    let store = Arc::new(Sqlite::open(folder, Options::default(), &mut registry).expect("a store"));
    let app = match store.apps().await.expect("read").first() {
        Some(app) => app.id,
        None => {
            let name = AppName::parse("dev").expect("a name");
            store.create_app(name, Default::default(), clock.now()).await.expect("an app").id
        }
    };
    let metrics = Metrics::new(&mut registry);
    let runtime = tokio::runtime::Handle::current();
    let delivery = Delivery::new(store.clone() as Arc<dyn Store>, clock, metrics, runtime);
    delivery.push.attach(services, Some(Vault::new([1; 32])), config);
    delivery.push.credentials().expect("push services").load().await.expect("read");
    let (drain, drained) = oneshot::channel::<()>();
    let run = tokio::spawn(delivery.clone().run(async {
        let _ = drained.await;
    }));
    Bench { delivery, store, outlet: Arc::default(), app, registry, run, drain: Some(drain) }
}

impl Bench {
    pub(crate) fn credentials(&self) -> &push::Credentials {
        self.delivery.push.credentials().expect("push services")
    }

    /// Devices of users with these names, with the tokens `t-name`.
    pub(crate) async fn devices(&self, names: &[&str]) -> Vec<(DeviceId, DeviceNum)> {
        let registrations = names.iter().map(|name| registration(name, &["all"])).collect();
        let made = self.store.register(self.app, registrations, self.delivery.clock().now()).await;
        let made = made.expect("registered").into_iter();
        made.map(|device| device.map(|device| (device.id, device.num)).expect("accepted")).collect()
    }

    pub(crate) async fn many(&self, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|n| format!("u{n:05}")).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        for part in borrowed.chunks(1_000) {
            self.devices(part).await;
        }
        names.iter().map(|name| format!("t-{name}")).collect()
    }

    pub(crate) async fn publish(&self, request: Request) -> NotificationId {
        self.delivery.publisher.publish(self.app, request, None).await.expect("accepted").id
    }

    pub(crate) async fn counts(&self, id: NotificationId) -> Vec<(Outcome, u64)> {
        let now = self.delivery.clock().now();
        self.store.notification(self.app, id, now).await.expect("read").expect("known").counts
    }

    pub(crate) async fn count(&self, id: NotificationId, outcome: Outcome) -> u64 {
        let counts = self.counts(id).await;
        counts.iter().find(|(other, _)| *other == outcome).map_or(0, |(_, count)| *count)
    }

    /// Waits until this many devices have the outcome.
    pub(crate) async fn until(&self, id: NotificationId, outcome: Outcome, count: u64) {
        let reached = async {
            while self.count(id, outcome).await < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            panic!("{outcome:?} × {count} expected: {:?}", self.counts(id).await);
        }
    }

    /// Stops at once, as a crash does: nothing is finished.
    pub(crate) async fn crash(mut self) {
        self.run.abort();
        let _ = (&mut self.run).await;
        self.store.close().await;
    }

    pub(crate) async fn stop(mut self) {
        drop(self.drain.take());
        let _ = (&mut self.run).await;
        self.store.close().await;
    }
}

pub(crate) async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let waited = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, waited).await.is_ok(), "{what}");
}

fn registration(name: &str, topics: &[&str]) -> Registration {
    Registration {
        device: Some(DeviceId::parse(&format!("d-{name}")).expect("an id")),
        user: Some(UserId::parse(name).expect("an id")),
        topics: topics.iter().map(|topic| Topic::parse(topic).expect("a topic")).collect(),
        push_token: Some(PushToken {
            service: PushService::Fcm,
            environment: PushEnvironment::Production,
            json: JsonText::from_valid(format!(r#"{{"service":"fcm","token":"t-{name}"}}"#)),
        }),
        ..Registration::default()
    }
}

fn pushed(target: Target, when: When, mode: PushMode, after: Duration) -> Request {
    Request { push: Push { mode, after, ..Push::default() }, ..request(target, when) }
}

pub(crate) fn always(names: &[&str]) -> Request {
    pushed(users(names), When::Stored, PushMode::Always, Duration::ZERO)
}

fn users(names: &[&str]) -> Target {
    Target::Users(names.iter().map(|name| UserId::parse(name).expect("an id")).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_goes_out_and_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["a", "b"]).await;
    for when in [When::Stored, When::Active] {
        let id = bench.publish(pushed(users(&["a", "b"]), when, PushMode::Always, Duration::ZERO)).await;
        bench.until(id, Outcome::Pushed, 2).await;
    }
    let mut tokens = bench.outlet.tokens();
    tokens.sort();
    assert_eq!(tokens, ["t-a", "t-a", "t-b", "t-b"]);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_reaches_every_subscriber_page_by_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(1_700).await;
    let topic = Target::Topic(Topic::parse("all").expect("a topic"));
    let id = bench.publish(pushed(topic, When::Stored, PushMode::Always, Duration::ZERO)).await;
    bench.until(id, Outcome::Pushed, 1_700).await;
    let tokens: std::collections::HashSet<String> = bench.outlet.tokens().into_iter().collect();
    assert_eq!((tokens.len(), bench.outlet.count()), (1_700, 1_700));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_ack_and_push_wins() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let names: Vec<String> = (0..200).map(|n| format!("u{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let devices = bench.devices(&names).await;
    let after = Duration::from_millis(150);
    for round in 0..4 {
        let before = bench.outlet.count();
        let id = bench.publish(pushed(users(&names), When::Stored, PushMode::Fallback, after)).await;
        // Acknowledgements arrive around the time at which pushes are due.
        let acks = devices.iter().enumerate().map(|(n, (_, num))| {
            let (delivery, app, num) = (bench.delivery.clone(), bench.app, *num);
            async move {
                let at = Duration::from_millis(100 + (n as u64 * 7 + round) % 100);
                tokio::time::sleep(at).await;
                delivery.acks.ack_now(app, num, vec![id]).await.expect("written")
            }
        });
        let acks: Vec<_> = acks.map(tokio::spawn).collect();
        for ack in acks {
            assert_eq!(ack.await.expect("no panic"), 1);
        }
        let both = async {
            while bench.count(id, Outcome::Pushed).await + bench.count(id, Outcome::PushNotNeeded).await < 200
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, both).await.expect("each device has one of the two");
        let (pushes, not_needed) =
            (bench.count(id, Outcome::Pushed).await, bench.count(id, Outcome::PushNotNeeded).await);
        assert_eq!(pushes + not_needed, 200);
        assert_eq!((bench.outlet.count() - before) as u64, pushes);
    }
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_of_the_queue_are_reported_with_notification_and_devices() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outlet, clock) = (Arc::new(FakeOutlet::default()), Clock::fixed(Timestamp(1_700_000_000_000)));
    let bench = open_at(folder.path(), outlet.clone(), config(), clock.clone()).await;
    let log = event_log(&bench.delivery, folder.path());
    let nums: Vec<DeviceNum> =
        bench.devices(&["a", "b", "c"]).await.into_iter().map(|(_, num)| num).collect();
    let waits =
        |names: &[&str]| pushed(users(names), When::Stored, PushMode::Fallback, Duration::from_secs(60));
    let spared = bench.publish(waits(&["a", "b"])).await;
    bench.delivery.acks.ack_now(bench.app, nums[0], vec![spared]).await.expect("written");
    let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
    let expired = bench.publish(Request { ttl, ..waits(&["b"]) }).await;
    outlet.hold("t-c");
    // It is in no inbox, so only its push is reported.
    let live = pushed(users(&["c"]), When::Active, PushMode::Always, Duration::ZERO);
    let cancelled = bench.publish(live).await;
    eventually("asked", || outlet.count() == 1).await;
    bench.delivery.publisher.cancel(bench.app, cancelled).await.expect("cancelled");
    let unsent = bench.publish(waits(&["c"])).await;
    bench.delivery.acks.ack_now(bench.app, nums[2], vec![unsent]).await.expect("written");
    bench.delivery.publisher.cancel(bench.app, unsent).await.expect("cancelled");
    outlet.release_with(&Answer::Later { reason: "UNAVAILABLE", after: Duration::ZERO });
    clock.set(clock.now().saturating_add(Duration::from_secs(60)));
    // Any publish makes the sender look at the queue.
    bench.publish(always(&["b"])).await;
    let line = |id, event: &str, why: &str, num: DeviceNum| {
        format!(r#""event":"{event}","id":"{id}",{why},"count":1,"devices":[{}]}}"#, num.0)
    };
    let expected = [
        line(spared, "push_skipped", r#""why":"push_not_needed""#, nums[0]),
        line(expired, "expired", r#""of":"push""#, nums[1]),
        line(cancelled, "dropped", r#""why":"cancelled""#, nums[2]),
        line(unsent, "dropped", r#""why":"cancelled""#, nums[2]),
    ];
    for line in &expected {
        eventually(line, || written_events(folder.path()).contains(line)).await;
    }
    bench.stop().await;
    tokio::task::spawn_blocking(move || log.drain()).await.expect("drained");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_failure_is_retried_with_the_same_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["a", "b"]).await;
    let later = Answer::Later { reason: "UNAVAILABLE", after: Duration::ZERO };
    bench.outlet.script("t-a", [later.clone(), later]);
    let id = bench.publish(always(&["a", "b"])).await;
    bench.until(id, Outcome::Pushed, 2).await;
    let of_a: Vec<_> = bench.outlet.received().into_iter().filter(|push| push.token == "t-a").collect();
    assert_eq!(of_a.len(), 3);
    assert!(of_a.iter().all(|push| push.id == of_a[0].id));
    let metrics = noroshi_telemetry::encode(&bench.registry).expect("text");
    assert!(metrics.contains("noroshi_push_retries_total 2\n"), "{metrics}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_removed_on_proof_and_set_aside_on_suspicion() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let devices = bench.devices(&["gone", "again", "doubted", "fine"]).await;
    bench.outlet.script("t-gone", [Answer::Gone { reason: "UNREGISTERED", since: None }]);
    // The service's time is before the registration of the token.
    bench.outlet.script("t-again", [Answer::Gone { reason: "Unregistered", since: Some(Timestamp(1)) }]);
    bench.outlet.script("t-doubted", [Answer::Suspect { reason: "SENDER_ID_MISMATCH" }]);
    let names = ["gone", "again", "doubted", "fine"];
    let id = bench.publish(always(&names)).await;
    for outcome in [Outcome::PushTokenGone, Outcome::PushRefused, Outcome::PushTokenSuspect, Outcome::Pushed]
    {
        bench.until(id, outcome, 1).await;
    }
    let second = bench.publish(always(&names)).await;
    bench.until(second, Outcome::Pushed, 2).await;
    assert_eq!(bench.count(second, Outcome::NoPushToken).await, 1);
    assert_eq!(bench.count(second, Outcome::PushTokenSuspect).await, 1);
    let gone = bench.store.device(bench.app, &devices[0].0).await.expect("read").expect("there");
    assert_eq!(gone.push_token, None);
    let doubted = bench.store.device(bench.app, &devices[2].0).await.expect("read").expect("there");
    assert!(doubted.push_token.is_some() && doubted.push_suspect.is_some());
    let invalidations = bench.store.invalidations(bench.app, 0, 10).await.expect("read");
    let told: Vec<_> = invalidations.iter().map(|one| (one.reason.as_str(), one.removed)).collect();
    assert_eq!(told, [("UNREGISTERED", true), ("SENDER_ID_MISMATCH", false)]);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_tokens_are_suspect_an_alarm_is_raised_instead() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let tokens = bench.many(100).await;
    for token in &tokens {
        bench.outlet.script(token, [Answer::Suspect { reason: "BadDeviceToken" }]);
    }
    let id = bench.publish(pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO)).await;
    bench.until(id, Outcome::PushRefused, 100).await;
    let metrics = noroshi_telemetry::encode(&bench.registry).expect("text");
    let alarm = r#"service="fcm",environment="production"} 1"#;
    assert!(metrics.lines().any(|line| line.contains("suspect_alarm") && line.ends_with(alarm)), "{metrics}");
    let second =
        bench.publish(pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO)).await;
    bench.until(second, Outcome::Pushed, 100).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_recipient_does_not_delay_later_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["slow", "a", "b"]).await;
    bench.outlet.hold("t-slow");
    let held = bench.publish(always(&["slow", "a"])).await;
    eventually("the slow one is asked", || bench.outlet.tokens().contains(&"t-slow".to_owned())).await;
    for _ in 0..20 {
        let id = bench.publish(always(&["a", "b"])).await;
        bench.until(id, Outcome::Pushed, 2).await;
    }
    // The batch waits for it, the other result does not.
    bench.until(held, Outcome::Pushed, 1).await;
    assert_eq!(bench.count(held, Outcome::Pushed).await, 1);
    bench.outlet.release();
    bench.until(held, Outcome::Pushed, 2).await;
    bench.stop().await;
}

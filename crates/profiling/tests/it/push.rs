//! Continuous profiling: the server's requests, failures, precedence of on-demand profiles, and the shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_egress::Egress;
use noroshi_profiling::push::Label;
use noroshi_profiling::{Config, Metrics, Profiler, Pusher};
use noroshi_testkit::pyroscope::{Expected, Mood, Pyroscope};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::take::{ASK, Load, TURN, profiler, spin_in_a_leaf};

struct Running {
    registry: Registry,
    profiler: Profiler,
    end: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    folder: tempfile::TempDir,
}

fn start(server: &Pyroscope, change: impl FnOnce(&mut Config)) -> Running {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("password"), "opensesame\n").expect("written");
    let mut config = Config {
        server: server.origin(),
        application: "noroshi".to_owned(),
        interval: Duration::from_millis(500),
        hz: 199,
        heap: false,
        labels: vec![Label::new("region", "eu-1")],
        user: Some("node".to_owned()),
        password_file: Some(folder.path().join("password")),
        tenant: Some("team-7".to_owned()),
    };
    change(&mut config);
    let mut registry = Registry::default();
    let profiler = profiler();
    let own = vec![
        Label::new("node", "host-1:8080"),
        Label::new("role", "api+gateway"),
        Label::new("version", "0.1.0"),
    ];
    let allow = vec!["127.0.0.0/8".parse().expect("a network")];
    let egress = Egress::new(noroshi_egress::Config { allow, ..Default::default() }).expect("egress");
    let metrics = Metrics::new(&mut registry);
    let pusher = Pusher::new(config, own, profiler.clone(), Arc::new(egress), metrics);
    let end = CancellationToken::new();
    let task = tokio::spawn(pusher.run(end.clone()));
    Running { registry, profiler, end, task, folder }
}

impl Running {
    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("text");
        text
    }

    async fn end(self) {
        self.end.cancel();
        tokio::time::timeout(Duration::from_secs(60), self.task).await.expect("in time").expect("no panic");
    }
}

fn expected() -> Expected {
    // node:opensesame
    Expected {
        authorization: Some("Basic bm9kZTpvcGVuc2VzYW1l".to_owned()),
        tenant: Some("team-7".to_owned()),
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_follow_each_other_with_labels_credentials_and_functions() {
    let _turn = TURN.lock().await;
    let _load = Load::start(1, spin_in_a_leaf);
    let server = Pyroscope::start(expected()).expect("a server");
    let running = start(&server, |_| {});
    until("three windows", || server.pushes().len() >= 3 || server.violation().is_some()).await;
    assert_eq!(server.violation(), None);
    let pushes = server.pushes();
    for push in &pushes {
        assert_eq!((push.application.as_str(), push.sample_rate), ("noroshi", 199));
        let labels: Vec<_> = push.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["node=host-1:8080", "region=eu-1", "role=api+gateway", "version=0.1.0"]);
        assert_eq!(push.profile.types[1], ("cpu".to_owned(), "nanoseconds".to_owned()));
        assert_eq!(push.sample_type_config, None);
    }
    assert!(pushes.windows(2).all(|pair| pair[0].profile.time_nanos < pair[1].profile.time_nanos));
    let leaf = |push: &noroshi_testkit::pyroscope::Push| {
        push.profile
            .samples
            .iter()
            .any(|sample| sample.stack.iter().any(|name| name.contains("spin_in_a_leaf")))
    };
    assert!(pushes.iter().any(leaf));
    // A changed password takes effect without a restart: here it is wrong.
    std::fs::write(running.folder.path().join("password"), "changed").expect("written");
    until("the new password", || server.violation().is_some()).await;
    assert!(server.violation().is_some_and(|why| why.starts_with("authorization")));
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_gets_the_newest_when_it_is_back() {
    let _turn = TURN.lock().await;
    let _load = Load::start(1, spin_in_a_leaf);
    let server = Pyroscope::start(expected()).expect("a server");
    server.behave(Mood::Overloaded);
    let running = start(&server, |_| {});
    until("two failures", || server.turned_away() >= 2).await;
    server.behave(Mood::Away);
    until("another", || server.turned_away() >= 3).await;
    assert_eq!(server.pushes().len(), 0);
    let back = std::time::SystemTime::now();
    server.behave(Mood::Well);
    until("it is back", || !server.pushes().is_empty()).await;
    // Windows of half a second: older ones were replaced, not queued.
    let age = back
        .duration_since(std::time::UNIX_EPOCH)
        .expect("time")
        .as_secs()
        .saturating_sub(server.pushes()[0].until);
    assert!(age <= 10, "the first is {age} s old");
    let value = |name: &str| {
        let metrics = running.metrics();
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    // The server has it a moment before the node counts it.
    until("it is counted", || value("profiling_pushed_total") >= 1).await;
    assert!(value("profiling_push_failures_total") >= 3, "{}", running.metrics());
    assert!(value("profiling_replaced_total") >= 1, "{}", running.metrics());
    assert_eq!(server.violation(), None);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_on_demand_profile_takes_precedence_and_the_last_window_is_pushed() {
    let _turn = TURN.lock().await;
    let _load = Load::start(1, spin_in_a_leaf);
    let server = Pyroscope::start(expected()).expect("a server");
    let running = start(&server, |config| config.interval = Duration::from_secs(3_600));
    let began = Instant::now();
    while server.pushes().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(90), "the window was not cut");
        let asked = tokio::time::timeout(Duration::from_secs(60), running.profiler.cpu(ASK)).await;
        asked.expect("an hour's window does not hold it up").expect("a profile");
        // Until the next request a window holds the sampler.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let before = server.pushes().len();
    // The next window samples something before the end.
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.end().await;
    assert!(server.pushes().len() > before, "the last window");
    assert_eq!(server.violation(), None);
}

/// Counts what is logged at a level that operators see.
#[derive(Default)]
struct Logged(std::sync::atomic::AtomicU64);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("noroshi_profiling::push") && *metadata.level() <= tracing::Level::INFO
    }

    fn event(&self, _event: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    fn new_span(&self, _attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

// One thread: the subscriber is that thread's.
#[tokio::test]
async fn a_server_that_fails_now_and_then_is_one_line_in_the_log() {
    let _turn = TURN.lock().await;
    let _load = Load::start(1, spin_in_a_leaf);
    let logged = Arc::new(Logged::default());
    let _default = tracing::subscriber::set_default(logged.clone());
    let server = Pyroscope::start(expected()).expect("a server");
    let running = start(&server, |_| {});
    for round in 1..=3 {
        // Different reasons.
        server.behave(if round == 2 { Mood::Away } else { Mood::Overloaded });
        let (pushes, turned_away) = (server.pushes().len(), server.turned_away());
        until("a failure", || server.turned_away() > turned_away).await;
        server.behave(Mood::Well);
        until("a success", || server.pushes().len() > pushes).await;
    }
    running.end().await;
    // That profiles are pushed, and that it failed.
    assert_eq!(logged.0.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert_eq!(server.violation(), None);
}

//! Several nodes that send from one store: each takes batches itself, or all pull from a queue. With a real PostgreSQL;
//! the nodes are parts of this process, and share one clock.

#[path = "../../../../store/tests/it/postgres/server.rs"]
#[allow(dead_code, reason = "the store's tests trouble their server more than these do")]
mod server;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::batches::{BatchQueue, InProcess, QueuedBatch};
use noroshi_delivery::campaign::{Audience, CampaignProgress, Spec};
use noroshi_delivery::push::{Config, Outlet};
use noroshi_delivery::{Clock, Delivery, metrics::Metrics};
use noroshi_push::{Credential, CredentialStatus, Push};
use noroshi_store::{CampaignState, Devices, Postgres, PostgresOptions, Sqlite, Store};
use noroshi_types::{AppId, AppName, CampaignId, NotificationId, Outcome, PushMode, Target, When};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::campaign::spec;
use super::variants::{self, Sending};
use super::{DEADLINE, config, eventually, pushed, registration};
use crate::fake_outlet::FakeOutlet;

const DEVICES: usize = 4_000;

struct Node {
    delivery: Arc<Delivery>,
    outlet: Arc<FakeOutlet>,
    registry: noroshi_telemetry::Registry,
    run: JoinHandle<()>,
    drain: Option<oneshot::Sender<()>>,
}

fn shared() -> Config {
    // Few recipients in flight, so that every node gets a part.
    Config { shared: true, recipients_max: 1_500, recipients_per_service_max: 1_500, ..config() }
}

fn node(store: Arc<dyn Store>, config: Config, queue: Option<Arc<dyn BatchQueue>>) -> Node {
    let outlet = Arc::new(FakeOutlet::default());
    let node = node_with(store, config, queue, outlet.clone());
    Node { outlet, ..node }
}

fn node_with(
    store: Arc<dyn Store>,
    config: Config,
    queue: Option<Arc<dyn BatchQueue>>,
    services: Arc<dyn Outlet>,
) -> Node {
    let mut registry = noroshi_telemetry::registry();
    let metrics = Metrics::new(&mut registry);
    let delivery = Delivery::new(store, Clock::system(), metrics, tokio::runtime::Handle::current());
    delivery.push.attach(services, None, config);
    if let Some(queue) = queue {
        delivery.push.attach_batches(queue);
    }
    let (drain, drained) = oneshot::channel::<()>();
    let run = tokio::spawn(delivery.clone().run(async {
        let _ = drained.await;
    }));
    Node { delivery, outlet: Arc::default(), registry, run, drain: Some(drain) }
}

impl Node {
    async fn stop(mut self) {
        drop(self.drain.take());
        tokio::time::timeout(DEADLINE, &mut self.run).await.expect("it drains").expect("it ends");
    }

    /// Ends the node without a drain, as SIGKILL does.
    async fn kill(self) -> Arc<FakeOutlet> {
        self.run.abort();
        let _ = self.run.await;
        self.outlet
    }

    fn metric(&self, line: &str) -> u64 {
        let text = noroshi_telemetry::encode(&self.registry).expect("text");
        let found = text.lines().find_map(|one| one.strip_prefix(&format!("noroshi_push_{line} ")));
        found.map_or(0, |value| value.parse().expect("a number"))
    }
}

/// A database with devices; each node opens its own store on it.
struct Cell {
    database: server::Database,
    store: Arc<Postgres>,
    app: AppId,
}

impl Cell {
    async fn new(devices: usize) -> Self {
        let database = server::server().database().await;
        let store = open(&database).await;
        let app = make(&*store, devices).await;
        Self { database, store, app }
    }

    async fn node(&self, config: Config, queue: Option<Arc<dyn BatchQueue>>) -> Node {
        node(open(&self.database).await, config, queue)
    }

    fn sending<'a>(&'a self, node: &'a Node) -> Sending<'a> {
        Sending { delivery: &node.delivery, outlet: &node.outlet, store: &*self.store, app: self.app }
    }

    async fn until(&self, id: NotificationId, outcome: Outcome, count: u64) {
        let reached = async { while count_of(&*self.store, self.app, id, outcome).await < count {} };
        let reached = tokio::time::timeout(DEADLINE, reached).await;
        assert!(reached.is_ok(), "{} of {count}", count_of(&*self.store, self.app, id, outcome).await);
    }
}

async fn open(database: &server::Database) -> Arc<Postgres> {
    let options = PostgresOptions {
        connections: 6,
        accept_wait: Duration::from_secs(30),
        ..PostgresOptions::new(&database.url())
    };
    Arc::new(Postgres::open(options, &mut noroshi_telemetry::registry()).await.expect("it opens"))
}

async fn make(store: &dyn Store, devices: usize) -> AppId {
    let now = Clock::system().now();
    let name = AppName::parse("dev").expect("a name");
    let app = store.create_app(name, Default::default(), now).await.expect("an app").id;
    let names: Vec<String> = (0..devices).map(|n| format!("u{n:05}")).collect();
    for part in names.chunks(1_000) {
        let registrations = part.iter().map(|name| registration(name, &["all"])).collect();
        store.register(app, registrations, now).await.expect("registered");
    }
    app
}

async fn count_of(store: &dyn Store, app: AppId, id: NotificationId, outcome: Outcome) -> u64 {
    tokio::time::sleep(Duration::from_millis(10)).await;
    let state = store.notification(app, id, Clock::system().now()).await.expect("read").expect("known");
    state.counts.iter().find(|(other, _)| *other == outcome).map_or(0, |(_, count)| *count)
}

fn everyone() -> noroshi_types::Request {
    pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO)
}

async fn publish(node: &Node, app: AppId) -> NotificationId {
    node.delivery.publisher.publish(app, everyone(), None).await.expect("accepted").id
}

/// The number of pushes to each token.
fn times(outlets: &[&FakeOutlet]) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for token in outlets.iter().flat_map(|outlet| outlet.tokens()) {
        *times.entry(token).or_default() += 1;
    }
    times
}

fn once(outlets: &[&FakeOutlet]) {
    let times = times(outlets);
    let twice = times.values().filter(|times| **times > 1).count();
    assert_eq!((times.len(), twice), (DEVICES, 0), "everyone, and nobody twice");
}

async fn ended(node: &Node, app: AppId, id: CampaignId) -> CampaignProgress {
    let ended = async {
        loop {
            let now = node.delivery.campaigns.get(app, id).await.expect("read");
            if now.campaign.state == CampaignState::Done {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.expect("it ends")
}

fn queue() -> Arc<InProcess> {
    Arc::new(InProcess::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_the_work_and_no_device_gets_a_push_twice() {
    for queue in [None, Some(queue() as Arc<dyn BatchQueue>)] {
        let cell = Cell::new(DEVICES).await;
        let (a, b) = (cell.node(shared(), queue.clone()).await, cell.node(shared(), queue.clone()).await);
        // Both nodes have some before either may continue.
        [&a, &b].iter().for_each(|node| node.outlet.hold_all(true));
        let id = publish(&a, cell.app).await;
        eventually("both send", || a.outlet.count() > 0 && b.outlet.count() > 0).await;
        [&a, &b].iter().for_each(|node| node.outlet.release());
        cell.until(id, Outcome::Pushed, DEVICES as u64).await;
        once(&[&a.outlet, &b.outlet]);
        assert_eq!(a.metric("leader") + b.metric("leader"), 1);
        assert_eq!(a.metric("walk_pages_total") + b.metric("walk_pages_total"), 1, "the leader walks");
        if let Some(queue) = queue {
            eventually("the queue is empty", || {
                let depth = futures_util::FutureExt::now_or_never(queue.depth());
                depth.expect("at once").expect("in process").iter().all(|lane| lane.parcels == 0)
            })
            .await;
        }
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_sends_the_batches_of_a_dead_sender() {
    for queue in [None, Some(queue() as Arc<dyn BatchQueue>)] {
        let cell = Cell::new(DEVICES).await;
        let short = Config { lease: Duration::from_secs(2), ..shared() };
        let a = cell.node(short.clone(), queue.clone()).await;
        a.outlet.hold_all(true);
        eventually("it leads", || a.metric("leader") == 1).await;
        let id = publish(&a, cell.app).await;
        eventually("it is in the middle", || a.outlet.count() >= 1_000).await;
        let b = cell.node(short, queue).await;
        let dead = a.kill().await;
        cell.until(id, Outcome::Pushed, DEVICES as u64).await;
        let times = times(&[&dead, &b.outlet]);
        let twice = times.values().filter(|times| **times > 1).count();
        assert_eq!(times.len(), DEVICES, "nobody is lost");
        assert!(twice <= dead.count(), "{twice} of {} are repeated", dead.count());
        assert!(times.values().all(|times| *times <= 2));
        b.stop().await;
    }
}

/// Suspends the whole thread of its node once, as SIGSTOP and SIGCONT do.
struct Stalling {
    outlet: Arc<FakeOutlet>,
    stall: parking_lot::Mutex<Option<Duration>>,
    /// The number of pushes that were handed over before.
    before: Arc<std::sync::atomic::AtomicUsize>,
}

#[async_trait::async_trait]
impl Outlet for Stalling {
    async fn send(&self, push: Push) {
        if self.outlet.count() == 100
            && let Some(stall) = self.stall.lock().take()
        {
            std::thread::sleep(stall);
            self.before.store(self.outlet.count(), std::sync::atomic::Ordering::SeqCst);
        }
        self.outlet.send(push).await;
    }

    async fn send_with(&self, credential: Credential, push: Push) {
        self.outlet.send_with(credential, push).await;
    }

    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>) {
        self.outlet.set_credentials(app, credentials);
    }

    fn status(&self, app: AppId) -> Vec<CredentialStatus> {
        self.outlet.status(app)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_suspended_for_longer_than_its_lease_sends_nothing_more() {
    let cell = Cell::new(500).await;
    let short = Config { lease: Duration::from_secs(2), ..shared() };
    let outlet = Arc::new(FakeOutlet::default());
    let before = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (store, stalled, handed) = (open(&cell.database).await, outlet.clone(), before.clone());
    let (config, app) = (short.clone(), cell.app);
    let (told, id) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    // The whole node runs on one thread.
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let stall = parking_lot::Mutex::new(Some(Duration::from_secs(8)));
            let services = Arc::new(Stalling { outlet: stalled, stall, before: handed });
            let node = node_with(store, config, None, services);
            told.send(publish(&node, app).await).expect("the test waits");
            let _ = ended.await;
            let lost = node.metric("batches_lost_total");
            node.stop().await;
            lost
        })
    });
    let id = id.await.expect("published");
    eventually("it stopped", || outlet.count() == 100).await;
    let b = cell.node(short, None).await;
    cell.until(id, Outcome::Pushed, 500).await;
    assert_eq!(b.outlet.count(), 500, "the whole batch, by the other");
    eventually("it goes on", || before.load(std::sync::atomic::Ordering::SeqCst) > 0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(end);
    let lost = thread.join().expect("no panic");
    // The push that was being handed over when the node stopped, and none after it.
    assert!(outlet.count() <= 101, "{} were handed over", outlet.count());
    assert_eq!(count_of(&*cell.store, cell.app, id, Outcome::Pushed).await, 500, "each counts once");
    assert!(lost <= 1, "{lost} batches");
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parcel_that_comes_twice_is_sent_once() {
    let cell = Cell::new(DEVICES).await;
    // The lease expires almost at once, while its owner lives.
    let queue: Arc<dyn BatchQueue> = Arc::new(InProcess::new(Duration::from_millis(30)));
    let roomy = Config { recipients_max: 20_000, recipients_per_service_max: 20_000, ..shared() };
    let (a, b) = (cell.node(roomy.clone(), Some(queue.clone())).await, cell.node(roomy, Some(queue)).await);
    [&a, &b].iter().for_each(|node| node.outlet.hold_all(true));
    let id = publish(&a, cell.app).await;
    let stale = |node: &Node| node.metric("parcels_total{result=\"stale\"}");
    eventually("parcels come twice", || stale(&a) + stale(&b) > 0).await;
    [&a, &b].iter().for_each(|node| node.outlet.release());
    cell.until(id, Outcome::Pushed, DEVICES as u64).await;
    once(&[&a.outlet, &b.outlet]);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_and_invalid_parcels_are_sent_from_the_store() {
    let cell = Cell::new(DEVICES).await;
    let queue = queue();
    let short = Config { queue_lease: Duration::from_secs(4), ..shared() };
    let node = cell.node(short, Some(queue.clone())).await;
    queue
        .put(vec![QueuedBatch { key: 1, lane: 3, body: bytes::Bytes::from_static(b"?") }])
        .await
        .expect("put");
    eventually("it is set aside", || node.metric("parcels_total{result=\"poison\"}") == 1).await;
    node.outlet.hold_all(true);
    let id = publish(&node, cell.app).await;
    eventually("it is in the middle", || node.outlet.count() >= 1_000).await;
    queue.wipe();
    node.outlet.release();
    cell.until(id, Outcome::Pushed, DEVICES as u64).await;
    once(&[&node.outlet]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_together_keep_the_rate_of_a_campaign() {
    for queue in [None, Some(queue() as Arc<dyn BatchQueue>)] {
        let cell = Cell::new(600).await;
        let nodes = [cell.node(shared(), queue.clone()).await, cell.node(shared(), queue.clone()).await];
        eventually("one leads", || nodes.iter().map(|node| node.metric("leader")).sum::<u64>() == 1).await;
        let began = Instant::now();
        let limited = Spec { rate_per_second: Some(200), ..spec(Audience::Everyone) };
        let made = nodes[0].delivery.campaigns.create(cell.app, limited, None).await.expect("made").0;
        let ended = ended(&nodes[0], cell.app, made.campaign.id).await;
        assert_eq!((ended.recipients, ended.done), (600, 600));
        // 600 at 200 a second take 3 s, without the last batch.
        assert!(began.elapsed() >= Duration::from_millis(1_900), "it took {:?}", began.elapsed());
        assert_eq!(times(&[&nodes[0].outlet, &nodes[1].outlet]).values().sum::<usize>(), 600);
        for node in nodes {
            node.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_draw_the_same_variants_and_share_one_report() {
    let place = |user: usize| variants::place(&format!("u{user:05}"));
    let sizes = variants::sizes(0..DEVICES);
    for queue in [None, Some(queue() as Arc<dyn BatchQueue>)] {
        let cell = Cell::new(DEVICES).await;
        let nodes = [cell.node(shared(), queue.clone()).await, cell.node(shared(), queue.clone()).await];
        // Both nodes have some before either may continue.
        nodes.iter().for_each(|node| node.outlet.hold_all(true));
        let made = cell.sending(&nodes[0]).start().await;
        eventually("both send", || nodes.iter().all(|node| node.outlet.count() > 0)).await;
        nodes.iter().for_each(|node| node.outlet.release());
        let ended = ended(&nodes[1], cell.app, made).await;
        let mut sent: Vec<usize> = Vec::new();
        for received in nodes.iter().flat_map(|node| node.outlet.received()) {
            let user = received.token.strip_prefix("t-u").and_then(|user| user.parse().ok()).expect("a user");
            let emoji = received.notification.is_some_and(|text| text.as_str() == variants::EMOJI);
            assert_eq!(usize::from(emoji), place(user), "{}", received.token);
            sent.push(user);
        }
        sent.sort_unstable();
        let expected: Vec<usize> = (0..DEVICES).filter(|user| place(*user) != 2).collect();
        assert_eq!(sent, expected, "everyone but those who are held out, and nobody twice");
        assert_eq!(variants::targeted(&ended), sizes);
        let report = ended.report.expect("a report");
        let pushed: Vec<u64> = report.variants.iter().map(|variant| variant.pushed).collect();
        assert_eq!(pushed, [sizes[0], sizes[1], 0]);
        for node in nodes {
            node.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_counts_recipients_that_wait_for_a_retry() {
    for queue in [None, Some(queue() as Arc<dyn BatchQueue>)] {
        let cell = Cell::new(300).await;
        let node = cell.node(shared(), queue).await;
        cell.sending(&node).abort_while_some_wait(300).await;
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drawn_variant_stays_after_a_change_of_the_user() {
    let [from, to] = variants::two_users();
    for queue in [None, Some(queue() as Arc<dyn BatchQueue>)] {
        let cell = Cell::new(0).await;
        let now = Clock::system().now();
        cell.store.register(cell.app, vec![registration(&from, &[])], now).await.expect("registered");
        let node = cell.node(shared(), queue).await;
        cell.sending(&node).change_user_between_attempts(&from, &to).await;
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_leads_soon_after_the_leader_is_gone() {
    let cell = Cell::new(50).await;
    let a = cell.node(shared(), None).await;
    eventually("the first leads", || a.metric("leader") == 1).await;
    let b = cell.node(shared(), None).await;
    a.kill().await;
    let id = publish(&b, cell.app).await;
    cell.until(id, Outcome::Pushed, 50).await;
    assert_eq!(b.metric("leader"), 1);
    let c = cell.node(shared(), None).await;
    let began = Instant::now();
    b.stop().await;
    eventually("the last leads", || c.metric("leader") == 1).await;
    assert!(began.elapsed() < Duration::from_secs(5), "it was told: {:?}", began.elapsed());
    c.stop().await;
}

/// SQLite makes every node the leader: two nodes lead at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leaders_at_once_repeat_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Sqlite::open(folder.path(), noroshi_store::sqlite::Options::default(), &mut registry);
    let store: Arc<dyn Store> = Arc::new(store.expect("a store"));
    let app = make(&*store, DEVICES).await;
    let (a, b) = (node(store.clone(), shared(), None), node(store.clone(), shared(), None));
    eventually("both lead", || a.metric("leader") + b.metric("leader") == 2).await;
    let id = publish(&a, app).await;
    a.delivery.campaigns.create(app, spec(Audience::Everyone), None).await.expect("made");
    let pushed = async { while count_of(&*store, app, id, Outcome::Pushed).await < DEVICES as u64 {} };
    tokio::time::timeout(DEADLINE, pushed).await.expect("all of them");
    eventually("the campaign as well", || a.outlet.count() + b.outlet.count() >= 2 * DEVICES).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let times = times(&[&a.outlet, &b.outlet]);
    assert!(times.values().all(|times| *times == 2), "the push and the campaign, each once");
    a.stop().await;
    b.stop().await;
}

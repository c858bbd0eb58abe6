//! Nodes over one cluster engine and one store, with edges that only record, and the part of their gateways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use noroshi_cluster::in_process::{Node as Member, World};
use noroshi_cluster::{NodeInfo, Roles, Take};
use noroshi_delivery::cluster::{Config, Reload};
use noroshi_delivery::{Clock, Delivery, metrics::Metrics};
use noroshi_store::{
    Apps, Devices, LoggedIn, Login, Notifications, Recover, Registration, Sessions, Sqlite, Store,
    sqlite::Options,
};
use noroshi_types::{
    AppId, AppName, DeviceId, NotificationId, Outcome, Position, Presence, Target, Topic, UserId, When,
};

use crate::session_edge::{FakeSession, SessionEdge};
use crate::{NOW, request};

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Cell {
    pub(super) world: World,
    pub(super) store: Arc<Sqlite>,
    pub(super) app: AppId,
    pub(super) nodes: Vec<Node>,
    pub(super) generation: AtomicU64,
    _folder: tempfile::TempDir,
}

pub(super) struct Node {
    pub(super) delivery: Arc<Delivery>,
    pub(super) edge: Arc<SessionEdge>,
    pub(super) member: Member,
    pub(super) reloads: Arc<Reloads>,
    pub(super) registry: noroshi_telemetry::Registry,
}

#[derive(Default)]
pub(super) struct Reloads(pub(super) AtomicU64);

#[async_trait::async_trait]
impl Reload for Reloads {
    async fn reload(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Intervals so long that nothing happens by time.
pub(super) fn quiet() -> Config {
    let never = Duration::from_secs(3_600);
    Config {
        sweep_interval: never,
        audit_interval: never,
        audit_soon: Duration::ZERO,
        known_after: never,
        reload_interval: never,
        keep_per_second: 1_000_000,
        ..Config::default()
    }
}

pub(super) async fn cell(count: usize) -> Cell {
    cell_with(count, quiet()).await
}

pub(super) async fn cell_with(count: usize, config: Config) -> Cell {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Arc::new(Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store"));
    let name = AppName::parse("dev").expect("a name");
    let app = store.create_app(name, Default::default(), NOW).await.expect("an app").id;
    let world = World::new();
    let generation = AtomicU64::new(NOW.0 << 20);
    let mut cell = Cell { world, store, app, nodes: Vec::new(), generation, _folder: folder };
    for index in 0..count {
        cell.add_node(index, config.clone()).await;
    }
    cell.until("all know each other", |cell| {
        cell.nodes.iter().all(|node| node.member.cluster().members.nodes().len() == count)
    })
    .await;
    // The first sweeps are over; later ones are caused by the test.
    cell.until("first sweeps", |cell| cell.nodes.iter().all(|node| node.metric("sweeps") >= 1)).await;
    cell
}

impl Cell {
    pub(super) async fn add_node(&mut self, index: usize, config: Config) {
        let mut registry = noroshi_telemetry::registry();
        let metrics = Metrics::new(&mut registry);
        let store = self.store.clone() as Arc<dyn Store>;
        let delivery = Delivery::new(store, Clock::fixed(NOW), metrics, tokio::runtime::Handle::current());
        let roles = Roles::ALL;
        let member = self.world.node(NodeInfo { name: format!("n{index}"), roles, ..NodeInfo::default() });
        let reloads = Arc::new(Reloads::default());
        delivery.nodes.attach(member.cluster(), config, reloads.clone());
        let edge = Arc::new(SessionEdge::new(member.cluster().keys));
        delivery.context.attach_edge(edge.clone());
        tokio::spawn(delivery.clone().run(std::future::pending()));
        member.attach(delivery.nodes.receiver());
        self.nodes.push(Node { delivery, edge, member, reloads, registry });
    }

    /// Registers a device of a user.
    pub(super) async fn device(&self, id: &str, user: &str, topics: &[&str]) -> DeviceId {
        let id = DeviceId::parse(id).expect("an id");
        let registration = Registration {
            device: Some(id.clone()),
            user: Some(UserId::parse(user).expect("an id")),
            topics: topics.iter().map(|topic| Topic::parse(topic).expect("a topic")).collect(),
            ..Registration::default()
        };
        let made = self.store.register(self.app, vec![registration], NOW).await.expect("registered");
        made.into_iter().next().expect("one").expect("accepted");
        id
    }

    /// Logs a device in on a node, as its gateway does.
    pub(super) async fn connect(&self, node: usize, device: &DeviceId) -> u64 {
        let generation = self.generation.fetch_add(1, Ordering::SeqCst);
        self.connect_as(node, device, generation).await;
        generation
    }

    pub(super) async fn connect_all(&self, node: usize, devices: &[DeviceId]) {
        let logins = devices.iter().map(|device| self.login(device)).collect();
        let answers = self.store.log_in(logins).await.expect("answered");
        for (device, logged_in) in devices.iter().zip(answers) {
            let generation = self.generation.fetch_add(1, Ordering::SeqCst);
            self.start_session(node, device, logged_in.expect("accepted"), generation).await;
        }
    }

    pub(super) async fn connect_as(&self, node: usize, device: &DeviceId, generation: u64) {
        let mut answers = self.store.log_in(vec![self.login(device)]).await.expect("answered");
        self.start_session(node, device, answers.remove(0).expect("accepted"), generation).await;
    }

    pub(super) async fn start_session(
        &self,
        node: usize,
        device: &DeviceId,
        logged_in: LoggedIn,
        generation: u64,
    ) {
        self.take(node, device, logged_in.user.as_ref(), generation).await;
        self.begin_session(node, device, logged_in, generation);
    }

    /// Processes the answer to a login, as the gateway does.
    pub(super) fn begin_session(&self, node: usize, device: &DeviceId, logged_in: LoggedIn, generation: u64) {
        let session = FakeSession {
            app: self.app,
            user: logged_in.user,
            num: logged_in.num,
            generation,
            revision: logged_in.revision,
            presence: Presence::Active,
            topics: logged_in.topics,
        };
        self.nodes[node].edge.insert(device.clone(), session);
    }

    pub(super) fn login(&self, device: &DeviceId) -> Login {
        Login {
            app: self.app,
            device: device.clone(),
            user: None,
            create: false,
            token_version: None,
            issued: noroshi_store::Issued::Elsewhere,
            topics: Vec::new(),
            session_topics: Vec::new(),
            resume: None,
            now: NOW,
        }
    }

    pub(super) async fn topic_head(&self, name: &str) -> Position {
        let recover = Recover { app: self.app, topic: topic(name), since: None, retained: false, now: NOW };
        self.store.recover(recover).await.expect("read").heads[0].position
    }

    /// The directory entry of a login.
    pub(super) async fn take(&self, node: usize, device: &DeviceId, user: Option<&UserId>, generation: u64) {
        let cluster = self.nodes[node].member.cluster();
        let take = Take {
            device: cluster.keys.device(self.app, device),
            user: user.map(|user| cluster.keys.user(self.app, user)),
            generation,
        };
        let epoch = cluster.members.epoch().expect("a lease");
        cluster.directory.take(epoch, vec![take]).await.expect("taken");
    }

    pub(super) async fn publish(&self, node: usize, target: Target, when: When) -> NotificationId {
        let published =
            self.nodes[node].delivery.publisher.publish(self.app, request(target, when), None).await;
        published.expect("accepted").id
    }

    pub(super) async fn until(&self, what: &str, mut reached: impl FnMut(&Self) -> bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        while !reached(self) {
            assert!(tokio::time::Instant::now() < until, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn until_received(&self, node: usize, device: &DeviceId, ids: &[NotificationId]) {
        self.until("received", |cell| cell.nodes[node].edge.received_by(device).len() >= ids.len()).await;
        assert_eq!(self.nodes[node].edge.received_by(device), ids);
    }

    /// Waits until the node reads the device's inbox again, from before `id` on.
    pub(super) async fn is_reread(&self, node: usize, device: &DeviceId, id: NotificationId) {
        self.until("made good", |cell| {
            let record = cell.nodes[node].edge.record();
            record.reread.iter().any(|(reread, since)| reread == device && *since < id)
        })
        .await;
    }

    /// The number of offline devices recorded for a notification, after background writes.
    pub(super) async fn offline(&self, id: NotificationId) -> u64 {
        self.device("marker", "nobody-else", &[]).await;
        let state = self.store.notification(self.app, id, NOW).await.expect("read").expect("known");
        state.counts.iter().find(|(outcome, _)| *outcome == Outcome::Offline).map_or(0, |(_, count)| *count)
    }
}

impl Node {
    pub(super) fn metric(&self, name: &str) -> u64 {
        let text = noroshi_telemetry::encode(&self.registry).expect("text");
        let name = format!("noroshi_delivery_cluster_{name}_total ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a whole number")
    }
}

pub(super) fn user(name: &str) -> UserId {
    UserId::parse(name).expect("an id")
}

pub(super) fn topic(name: &str) -> Topic {
    Topic::parse(name).expect("a topic")
}

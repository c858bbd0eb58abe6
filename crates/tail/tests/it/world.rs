//! Nodes with a store of their own cell, and an event log without sinks.

use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::NodeInfo;
use noroshi_cluster::in_process::{Node as Member, World as Cluster};
use noroshi_delivery::cluster::{Config, Reload};
use noroshi_delivery::{Clock, Delivery};
use noroshi_events::{Event, Events, Service, Subject};
use noroshi_store::{Apps, Devices, Registration, Sqlite, Store, sqlite};
use noroshi_tail::{Filter, Metrics, Refused, Tails, Viewer};
use noroshi_telemetry::Registry;
use noroshi_types::{
    AppId, AppName, CloseReason, DeviceId, DeviceNum, JsonText, NotificationId, Outcome, PersonId, Push,
    Request, SessionId, Target, Timestamp, Topic, Ttl, Urgency, UserId, When,
};
use serde_json::Value;
use tokio::runtime::Handle;

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// A generous deadline: a machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) store: Arc<Sqlite>,
    pub(crate) shop: AppId,
    pub(crate) game: AppId,
    cluster: Cluster,
    folder: tempfile::TempDir,
}

pub(crate) struct Node {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) tails: Arc<Tails>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) member: Option<Member>,
    _service: Service,
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = noroshi_telemetry::registry();
        let store = Sqlite::open(folder.path(), sqlite::Options::default(), &mut registry).expect("a store");
        let app = async |name| {
            let name = AppName::parse(name).expect("a name");
            store.create_app(name, Default::default(), NOW).await.expect("an app").id
        };
        let (shop, game) = (app("shop").await, app("game").await);
        Self { store: Arc::new(store), shop, game, cluster: Cluster::new(), folder }
    }

    /// A node without a cluster.
    pub(crate) fn alone(&self) -> Node {
        self.node("n", None)
    }

    pub(crate) fn join(&self, name: &str, reports: bool) -> Node {
        let info = NodeInfo { name: name.to_owned(), tails: reports, ..NodeInfo::default() };
        self.node(name, Some(self.cluster.node(info)))
    }

    fn node(&self, name: &str, member: Option<Member>) -> Node {
        let config = noroshi_events::Config::new(name, self.folder.path().join(name));
        let names: noroshi_events::Names = Arc::new(|_| None);
        let service =
            Service::start(&config, names, None, &Default::default(), &Default::default()).expect("a log");
        let metrics = noroshi_delivery::metrics::Metrics::new(&mut Registry::default());
        let store = self.store.clone() as Arc<dyn Store>;
        let delivery = Delivery::new(store, Clock::fixed(NOW), metrics, Handle::current());
        delivery.context.outcomes.attach_events(service.events());
        if let Some(member) = &member {
            delivery.nodes.attach(member.cluster(), Config::default(), Arc::new(NoReload));
            tokio::spawn(delivery.clone().run(std::future::pending()));
            member.attach(delivery.nodes.receiver());
        }
        let (events, metrics) = (service.events(), Metrics::default());
        let tails =
            Tails::new(delivery.clone(), events.clone(), name.to_owned(), Handle::current(), metrics.clone());
        Node { delivery, tails, events, metrics, member, _service: service }
    }

    pub(crate) async fn device(&self, app: AppId, id: &str, user: &str) -> DeviceNum {
        let registration = Registration {
            device: DeviceId::parse(id).ok(),
            user: UserId::parse(user).ok(),
            ..Registration::default()
        };
        let mut made = self.store.register(app, vec![registration], NOW).await.expect("registered");
        made.remove(0).expect("accepted").num
    }
}

struct NoReload;

#[async_trait::async_trait]
impl Reload for NoReload {
    async fn reload(&self) {}
}

impl Node {
    pub(crate) async fn open(&self, filter: Filter) -> Viewer {
        self.open_as(1, filter).await.expect("room")
    }

    pub(crate) async fn open_as(&self, person: u64, filter: Filter) -> Result<Viewer, Refused> {
        self.tails.open(PersonId(person), false, filter).await
    }

    pub(crate) async fn publish(&self, app: AppId, target: Target) -> NotificationId {
        let published = self.delivery.publisher.publish(app, request(target), None).await;
        published.expect("accepted").id
    }

    pub(crate) fn outcome(&self, app: AppId, id: NotificationId, outcome: Outcome, devices: &[DeviceNum]) {
        let (of, count) = (Subject::Notification(id), devices.len() as u64);
        self.events.emit(NOW, || Event::Outcome { app, of, outcome, devices: devices.into(), count });
    }

    pub(crate) fn closed(&self, app: AppId, device: DeviceNum, session: SessionId) {
        self.events.emit(NOW, || Event::Closed { app, device, session, reason: CloseReason::Drain });
    }
}

pub(crate) fn request(target: Target) -> Request {
    Request {
        target,
        when: When::Stored,
        notification: None,
        data: Some(JsonText::from_valid("1")),
        urgency: Urgency::Normal,
        waits_for_use: false,
        ttl: Ttl::default(),
        push: Push::default(),
        collapse_key: None,
        retain: false,
        category: None,
        item: None,
        trace: None,
    }
}

pub(crate) fn users(names: &[&str]) -> Target {
    Target::Users(names.iter().map(|name| UserId::parse(name).expect("an id")).collect())
}

pub(crate) fn topic(name: &str) -> Topic {
    Topic::parse(name).expect("a topic")
}

/// The next text of a tail. `None`: it has ended.
pub(crate) async fn text(viewer: &mut Viewer) -> Option<Value> {
    let bytes = tokio::time::timeout(PATIENCE, viewer.next()).await.expect("in time")?;
    let text = std::str::from_utf8(&bytes).expect("text");
    let data = text.strip_prefix("event: tail\ndata: ").expect("an event");
    Some(serde_json::from_str(data.trim_end()).expect("JSON"))
}

/// What a tail has shown and stated.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) events: Vec<Value>,
    pub(crate) omitted: u64,
    pub(crate) gaps: Vec<String>,
    pub(crate) missing: u64,
}

impl Seen {
    /// Reads on until a condition holds.
    pub(crate) async fn until(&mut self, viewer: &mut Viewer, is: impl Fn(&Self) -> bool) {
        while !is(self) {
            let text = text(viewer).await.expect("the tail is open");
            self.events.extend(text["events"].as_array().expect("a list").iter().cloned());
            let omitted = text["omitted"].as_object().expect("an object").values();
            self.omitted += omitted.filter_map(Value::as_u64).sum::<u64>();
            let gaps = text["gaps"].as_array().expect("a list").iter().filter_map(Value::as_str);
            self.gaps.extend(gaps.map(str::to_owned));
            self.missing = text["nodes_missing"].as_u64().expect("a number");
        }
    }

    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.events.iter().filter_map(|event| event["event"].as_str()).collect()
    }

    pub(crate) fn has(&self, kind: &str) -> bool {
        self.kinds().contains(&kind)
    }
}

//! A client of the line protocol ([`line`]) talks to a gateway over a real socket.

use std::sync::Arc;
use std::time::Duration;

use noroshi_auth::Auth;
use noroshi_delivery::{Clock, Delivery};
use noroshi_store::{Registration, Sqlite, Store, sqlite::Options};
use noroshi_types::{AppId, AppName, DeviceId, JsonText, Push, Request, Target, Topic, Ttl, Urgency, When};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::{Config, Gateway, Listener, Metrics, Speaks};

pub(super) mod line;

struct Node {
    gateway: Arc<Gateway>,
    delivery: Arc<Delivery>,
    auth: Arc<Auth>,
    app: AppId,
    _folder: tempfile::TempDir,
}

impl Node {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = noroshi_telemetry::registry();
        let store = Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store");
        let store: Arc<dyn Store> = Arc::new(store);
        let egress = noroshi_egress::Egress::new(noroshi_egress::Config::default()).expect("egress");
        let auth = Auth::open(store.clone(), Arc::new(egress)).await.expect("auth");
        let (clock, name) = (Clock::system(), AppName::parse("dev").expect("a name"));
        let app = auth.create_app(name, Default::default(), clock.now()).await.expect("an app").id;
        let registration =
            Registration { device: Some(DeviceId::parse("d").expect("an id")), ..Registration::default() };
        store.register(app, vec![registration], clock.now()).await.expect("registered");
        let metrics = noroshi_delivery::metrics::Metrics::new(&mut registry);
        let delivery = Delivery::new(store, clock, metrics, tokio::runtime::Handle::current());
        let address = "127.0.0.1:0".parse().expect("an address");
        let listeners = vec![Listener { speaks: Speaks::Line, address, tls: None }];
        let bound = Gateway::bind(Config { listeners, shards: 1, ..Config::default() }).expect("a port");
        let gateway = bound
            .start(&delivery, auth.clone(), Metrics::new(&mut registry), Arc::new(|_| {}))
            .expect("threads");
        delivery.context.attach_edge(gateway.clone());
        tokio::spawn(delivery.clone().run(std::future::pending()));
        Self { gateway, delivery, auth, app, _folder: folder }
    }

    fn token(&self) -> String {
        let device = DeviceId::parse("d").expect("an id");
        let until = self.delivery.clock().now().saturating_add(Duration::from_secs(3_600));
        self.auth.issue(self.app, &device, 1, until)
    }

    async fn publish(&self, target: Target, when: When, data: &str) -> String {
        let request = Request {
            target,
            when,
            ttl: Ttl::new(Duration::from_secs(60)).expect("a life"),
            urgency: Urgency::Normal,
            waits_for_use: false,
            category: None,
            collapse_key: None,
            retain: false,
            notification: None,
            data: Some(JsonText::from_valid(data)),
            push: Push::default(),
            item: None,
            trace: None,
        };
        self.delivery.publisher.publish(self.app, request, None).await.expect("accepted").id.to_string()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.gateway.stop();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(node: &Node) -> Self {
        let stream = TcpStream::connect(node.gateway.local_addrs()[0]).await.expect("connected");
        Self(BufReader::new(stream))
    }

    async fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).await.expect("sent");
    }

    /// The next line, without its end; empty at the end of the stream.
    async fn receive(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("in time").expect("read");
        line.trim_end().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_line_protocol_receives_what_it_subscribed_to() {
    let node = Node::start().await;
    let mut client = Client::connect(&node).await;
    client.send("PING\nPI").await;
    assert_eq!(client.receive().await, "PONG");
    client.send("NG\n").await;
    assert_eq!(client.receive().await, "PONG");

    client.send(&format!("AUTH {}\n", node.token())).await;
    assert_eq!(client.receive().await, "OK");
    client.send("SUB news\nSUB $everyone\nPING\n").await;
    let answers = [client.receive().await, client.receive().await, client.receive().await];
    assert_eq!(answers, ["OK", "ERR bad_topic", "PONG"]);

    let topic = Topic::parse("news").expect("a topic");
    let id = node.publish(Target::Topic(topic), When::Connected, r#"{"n":1}"#).await;
    assert_eq!(client.receive().await, format!(r#"MSG {id} {{"n":1}}"#));

    // A stored message comes again until it is acknowledged.
    let device = || Target::Devices(vec![DeviceId::parse("d").expect("an id")]);
    let id = node.publish(device(), When::Stored, r#"{"n":2}"#).await;
    let message = format!(r#"MSG {id} {{"n":2}}"#);
    assert_eq!(client.receive().await, message);
    let mut other = Client::connect(&node).await;
    other.send(&format!("AUTH {}\n", node.token())).await;
    assert_eq!(client.receive().await, "ERR replaced");
    assert_eq!([other.receive().await, other.receive().await], ["OK".to_owned(), message]);
    other.send(&format!("ACK {id}\nBYE\n")).await;
    assert_eq!([other.receive().await, other.receive().await], ["ERR bad_message", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_valid_token_is_refused() {
    let node = Node::start().await;
    for (sent, answer) in [("AUTH nonsense\n", "ERR unauthorized"), ("SUB news\n", "ERR bad_message")] {
        let mut client = Client::connect(&node).await;
        client.send(sent).await;
        assert_eq!([client.receive().await, client.receive().await], [answer, ""], "{sent}");
    }
}

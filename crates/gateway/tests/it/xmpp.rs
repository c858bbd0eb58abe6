//! XMPP as a client sees it, with stanzas written by hand: log-ins, messages that wait until the client is available,
//! resumption, takeover by and of other protocols, STARTTLS and plaintext that must not be read with it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use noroshi_delivery::quota::Configured;
use noroshi_gateway::xmpp::Account;
use noroshi_gateway::{Config, Listener, Speaks, drain, tls};
use noroshi_store::{AppSettings, Devices, Registration};
use noroshi_types::quota::{Limit, Quota, Quotas as Overrides};
use noroshi_types::{AppName, DeviceId, Target, UserId, When};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::node::{Node, PATIENCE, plain, request, topic, user};
use crate::secure::certificate;

pub(crate) const HEADER: &str = "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' \
                      xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
const BIND: &str = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
                    <resource>r</resource></bind></iq>";
pub(crate) const FEATURES: &str = "</stream:features>";

/// A listener in the clear behind that of HTTP, and log-ins on it.
pub(crate) fn config() -> Config {
    let mut config = plain();
    listen(&mut config);
    config
}

pub(crate) fn listen(config: &mut Config) {
    let address = "127.0.0.1:0".parse().expect("an address");
    config.listeners.push(Listener { speaks: Speaks::Xmpp, address, tls: None });
    config.xmpp.protocol.allow_plaintext = true;
}

pub(crate) struct Peer<S = TcpStream> {
    socket: S,
    heard: String,
}

impl Peer {
    pub(crate) async fn dial(node: &Node, listener: usize) -> Self {
        let address = node.gateway.local_addrs()[listener];
        Self { socket: TcpStream::connect(address).await.expect("connected"), heard: String::new() }
    }

    /// Small stanzas do not wait until the peer's kernel has acknowledged the stanzas before.
    pub(crate) fn send_at_once(&self) {
        self.socket.set_nodelay(true).expect("set");
    }

    /// With a socket that takes little.
    pub(crate) async fn dial_narrow(node: &Node, listener: usize) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(2_048).expect("set");
        let address = node.gateway.local_addrs()[listener];
        Self { socket: socket.connect(address).await.expect("connected"), heard: String::new() }
    }

    /// Bound as `{device}@localhost/r`, but not there yet.
    pub(crate) async fn log_in(node: &Node, device: &str) -> Self {
        let mut peer = Self::dial(node, 1).await;
        peer.prove(device, &node.token(device)).await;
        peer.bind().await;
        peer
    }

    /// Bound, there, and counting; with the id to resume by.
    async fn managed(node: &Node, device: &str) -> (Self, String) {
        let mut peer = Self::log_in(node, device).await;
        let enabled = peer.ask("<presence/><enable xmlns='urn:xmpp:sm:3' resume='true'/>", "max='300'").await;
        let id = between(&enabled, "<enabled xmlns='urn:xmpp:sm:3' id='", "'").to_owned();
        (peer, id)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) async fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.expect("sent");
    }

    /// Reads up to `end`, and returns the text with it.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.heard.find(end) {
                let rest = self.heard.split_off(at + end.len());
                return std::mem::replace(&mut self.heard, rest);
            }
            let mut more = [0; 4_096];
            let count = tokio::time::timeout(PATIENCE, self.socket.read(&mut more)).await;
            let count = count.unwrap_or_else(|_| panic!("{end} does not come: {}", self.heard));
            let count = count.expect("no error");
            assert!(count > 0, "ended before {end}: {}", self.heard);
            self.heard.push_str(std::str::from_utf8(&more[..count]).expect("ASCII"));
        }
    }

    pub(crate) async fn ask(&mut self, text: &str, end: &str) -> String {
        self.say(text).await;
        self.until(end).await
    }

    /// Everything that was sent up to now, with the whole of the answer that ends it.
    pub(crate) async fn sync(&mut self) -> String {
        self.sync_as("sync").await
    }

    /// With an id of its own: where a session is resumed, answers to earlier pings may come again.
    pub(crate) async fn sync_as(&mut self, id: &str) -> String {
        let id = format!("id='{id}'");
        let ping = format!("<iq type='get' {id} to='localhost'><ping xmlns='urn:xmpp:ping'/></iq>");
        self.ask(&ping, &id).await + &self.until("</iq>").await
    }

    /// Answers the ping that comes next.
    async fn answer(&mut self) {
        let question = self.until("</iq>").await;
        // Messages may come before it.
        let id = between(question.rsplit_once("<iq ").expect("a request").1, "id='", "'");
        self.say(&format!("<iq type='result' id='{id}' to='localhost'/>")).await;
    }

    pub(crate) async fn prove(&mut self, device: &str, token: &str) {
        self.ask(HEADER, FEATURES).await;
        self.ask(&auth(device, token), "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'></success>").await;
    }

    pub(crate) async fn bind(&mut self) {
        self.ask(HEADER, FEATURES).await;
        self.take_resource().await;
    }

    pub(crate) async fn take_resource(&mut self) {
        self.ask(BIND, "@localhost/r</jid></bind></iq>").await;
    }

    /// The rest, when the server has ended it.
    pub(crate) async fn ended(mut self) -> String {
        let mut rest = Vec::new();
        let read = self.socket.read_to_end(&mut rest);
        tokio::time::timeout(PATIENCE, read).await.expect("in time").expect("no error");
        self.heard + &String::from_utf8(rest).expect("text")
    }
}

pub(crate) fn auth(device: &str, token: &str) -> String {
    let plain = STANDARD.encode(format!("\0{device}\0{token}"));
    format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>")
}

pub(crate) fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {text}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} in {rest}")).0
}

pub(crate) fn resume(id: &str, handled: u32) -> String {
    format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='{handled}'/>")
}

pub(crate) fn pubsub(kind: &str, inside: &str) -> String {
    format!(
        "<iq type='{kind}' id='q' to='pubsub.localhost'>\
         <pubsub xmlns='http://jabber.org/protocol/pubsub'>{inside}</pubsub></iq>"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_arrive_when_the_device_is_available() {
    let node = Node::start(config()).await;
    node.device("d1", "u1", &["news"]).await;
    let kept = node.publish(user("u1"), When::Stored, "1").await;
    node.publish(user("u1"), When::Connected, "2").await; // no device was connected
    let mut peer = Peer::log_in(&node, "d1").await;
    // A message of a topic comes at once, the device's own waits.
    node.publish(topic("news"), When::Stored, "3").await;
    let event = peer.until("</message>").await;
    assert!(event.contains("node='news'") && event.contains("\"data\":3"), "{event}");
    peer.answer().await;
    node.publish(user("u1"), When::Connected, "4").await;
    let before = peer.sync().await;
    assert!(!before.contains("<message"), "{before}");
    let own = peer.ask("<presence/>", "</message>").await;
    assert!(own.contains(&format!("<message from='localhost' id='{kept}'")), "{own}");
    assert!(own.contains("\"data\":1") && !own.contains("\"data\":2"), "{own}");
    // The answer to the ping behind the message acknowledges that it was read.
    peer.answer().await;
    node.publish(user("u1"), When::Active, "5").await;
    assert!(peer.until("</message>").await.contains("\"data\":5"));
    // Away: idle, and no recipient of messages for active devices.
    peer.say("<presence><show>away</show></presence>").await;
    peer.sync().await;
    node.publish(user("u1"), When::Active, "6").await;
    node.publish(user("u1"), When::Connected, "7").await;
    assert!(peer.until("</message>").await.contains("\"data\":7"));
    // Acknowledged, and so it does not come again.
    peer.say("</stream:stream>").await;
    assert!(peer.ended().await.ends_with("</stream:stream>"));
    node.until_acknowledged("d1").await;
    let mut again = Peer::log_in(&node, "d1").await;
    again.say("<presence/>").await;
    let heard = again.sync().await;
    assert!(!heard.contains("\"data\":1"), "{heard}");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_resumes_where_it_broke() {
    let node = Node::start(config()).await;
    node.device("d1", "u1", &[]).await;
    let (mut peer, id) = Peer::managed(&node, "d1").await;
    for data in ["1", "2"] {
        node.publish(user("u1"), When::Stored, data).await;
        peer.until("</message>").await;
    }
    // The connection breaks; messages wait meanwhile.
    drop(peer);
    node.until_sessions(0).await;
    node.publish(user("u1"), When::Stored, "3").await;
    // The presence was echoed before it counted; the first message arrived.
    let mut peer = Peer::dial(&node, 1).await;
    peer.prove("d1", &node.token("d1")).await;
    peer.ask(HEADER, FEATURES).await;
    let resumed = peer.ask(&resume(&id, 1), "<resumed").await + &peer.until("/>").await;
    assert!(resumed.contains(&format!("previd='{id}'")), "{resumed}");
    let again = peer.until("</message>").await;
    assert!(again.contains("\"data\":2"), "{again}");
    let new = peer.until("</message>").await;
    assert!(new.contains("\"data\":3"), "{new}");
    peer.say("<a xmlns='urn:xmpp:sm:3' h='3'/>").await;
    let more = peer.sync().await;
    assert!(!more.contains("<message"), "each came once: {more}");
    assert_eq!(node.metric("noroshi_xmpp_sessions_resumed_total"), 1);

    // All were acknowledged: a new session receives none of them.
    node.until("acknowledgements", |node| node.outcome("acked") == 3).await;
    let mut fresh = Peer::log_in(&node, "d1").await;
    fresh.say("<presence/>").await;
    assert!(!fresh.sync().await.contains("<message"));
    let old = peer.ended().await;
    assert!(old.contains("<conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"), "{old}");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed_from_a_connection_that_seems_to_live() {
    let node = Node::start(config()).await;
    node.device("d1", "u1", &[]).await;
    let (mut peer, id) = Peer::managed(&node, "d1").await;
    let subscribe = "<iq type='set' id='s' to='pubsub.localhost'>\
                     <pubsub xmlns='http://jabber.org/protocol/pubsub'>\
                     <subscribe node='sport' jid='d1@localhost/r'/></pubsub></iq>";
    peer.ask(subscribe, "subscription='subscribed'").await;
    let mut next = Peer::dial(&node, 1).await;
    next.prove("d1", &node.token("d1")).await;
    next.ask(HEADER, FEATURES).await;
    next.ask(&resume(&id, 1), "<resumed").await;
    assert!(peer.ended().await.contains("<conflict"));
    // The connection's own subscription is the session's.
    next.sync().await;
    node.publish(topic("sport"), When::Connected, "9").await;
    assert!(next.until("</message>").await.contains("\"data\":9"));
    // Of another id there is nothing.
    drop(next);
    node.until_sessions(0).await;
    let mut other = Peer::dial(&node, 1).await;
    other.prove("d1", &node.token("d1")).await;
    other.ask(HEADER, FEATURES).await;
    other.ask(&resume("nothing", 0), "<item-not-found").await;
    other.ask(BIND, "@localhost/r</jid></bind></iq>").await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_changes_its_protocol() {
    let node = Node::start(config()).await;
    node.device("d1", "u1", &[]).await;
    let peer = Peer::log_in(&node, "d1").await;
    let mut native = node.connect("d1").await;
    assert!(peer.ended().await.contains("<conflict"));
    let mut back = Peer::log_in(&node, "d1").await;
    assert_eq!(native.closed().await.0, "replaced");
    back.say("<presence/>").await;
    back.sync().await;
    node.publish(user("u1"), When::Connected, "1").await;
    assert!(back.until("</message>").await.contains("\"data\":1"));
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_nodes() {
    let node = Node::start(config()).await;
    node.device("d1", "u1", &[]).await;
    for data in ["1", "2", "3"] {
        let mut kept = request(topic("news"), When::Stored, data);
        kept.retain = true;
        node.publish_request(kept).await;
    }
    let mut peer = Peer::managed(&node, "d1").await.0;
    let done = peer.ask(&pubsub("set", "<subscribe node='news' jid='d1@localhost'/>"), "</iq>").await;
    // The retained one may come first: it is another node's path.
    let last = if done.contains("</message>") { done.clone() } else { peer.until("</message>").await };
    assert!(last.contains("\"data\":3"), "{last}");
    let held = peer.ask(&pubsub("get", "<subscriptions/>"), "</iq>").await;
    assert!(
        held.contains("<subscription node='news' jid='d1@localhost' subscription='subscribed'/>"),
        "{held}"
    );
    let items = peer.ask(&pubsub("get", "<items node='news' max_items='2'/>"), "</iq>").await;
    assert!(!items.contains("\"data\":1") && items.contains("\"data\":2") && items.contains("\"data\":3"));
    let first = between(&items, "<item id='", "'").to_owned();
    let named = pubsub("get", &format!("<items node='news'><item id='{first}'/></items>"));
    let one = peer.ask(&named, "</iq>").await;
    assert!(one.contains("\"data\":2"), "{one}");
    let json = "<item><json xmlns='urn:xmpp:json:0'>{}</json></item>";
    let refused = peer.ask(&pubsub("set", &format!("<publish node='news'>{json}</publish>")), "</iq>").await;
    assert!(refused.contains("<forbidden"), "{refused}");
    let done = peer.ask(&pubsub("set", "<unsubscribe node='news' jid='d1@localhost'/>"), "</iq>").await;
    assert!(done.contains("type='result'"), "{done}");
    let twice = peer.ask(&pubsub("set", "<unsubscribe node='news' jid='d1@localhost'/>"), "</iq>").await;
    assert!(twice.contains("not-subscribed"), "{twice}");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_publishes_in_order() {
    let node = Node::start(config()).await;
    let settings = AppSettings { client_publish: vec!["#".to_owned()], ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    let mut overrides = Overrides::default();
    overrides.set(Quota::Topics, Some(Limit::Most(1_000)));
    let name = AppName::parse("dev").expect("a name");
    node.delivery.quotas.configure([Configured { app: node.app, name, overrides }]);
    node.device("d1", "u1", &[]).await;
    let mut peer = Peer::log_in(&node, "d1").await;
    // The store must be asked for every other topic.
    let name = |n: usize| if n.is_multiple_of(2) { format!("new-{n}") } else { "known".to_owned() };
    let publish = |n: usize| {
        let name = name(n);
        let item =
            format!("<publish node='{name}'><item><json xmlns='urn:xmpp:json:0'>{n}</json></item></publish>");
        pubsub("set", &item).replace("id='q'", &format!("id='{n}'"))
    };
    peer.ask(&publish(1), "</iq>").await;
    peer.say(&(0..100).map(publish).collect::<String>()).await;
    let mut answers = Vec::new();
    for _ in 0..100 {
        answers.push(peer.until("</iq>").await);
    }
    let number = |answer: &String| between(answer, " id='", "'").parse::<usize>().expect("a number");
    answers.sort_by_key(number);
    let ids: Vec<&str> = answers.iter().map(|answer| between(answer, "<item id='", "'")).collect();
    let published_to = |answer: &String| between(answer, "<publish node='", "'").to_owned();
    let expected: Vec<String> = (0..100).map(name).collect();
    assert_eq!(answers.iter().map(published_to).collect::<Vec<_>>(), expected, "each is answered");
    assert!(ids.is_sorted(), "{ids:?}");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused_and_a_token_is_for_its_device() {
    let node = Node::start(config()).await;
    node.device("d1", "u1", &[]).await;
    let mut peer = Peer::dial(&node, 1).await;
    peer.ask(HEADER, FEATURES).await;
    let said = peer.ask(&auth("d1", "nonsense"), "</failure>").await;
    let text =
        "<not-authorized/><text xml:lang='en'>the token is invalid or belongs to another device</text>";
    assert!(said.contains(text), "{said}");
    peer.ask(&auth("d2", &node.token("d1")), "</failure>").await;
    let expired = node.token_for("d1", Duration::ZERO);
    let last = peer.ask(&auth("d1", &expired), "</stream:stream>").await;
    assert!(last.contains("<credentials-expired") && last.contains("<policy-violation"), "{last}");
    assert!(last.contains(">too many failed log-ins on one connection</text>"), "{last}");
    let mut lost = Peer::dial(&node, 1).await;
    let last = lost.ask(&HEADER.replace("localhost", "elsewhere"), "</stream:stream>").await;
    let text = ">`to` must be localhost, this service's domain</text>";
    assert!(last.contains("<host-unknown") && last.contains(text), "{last}");
    // Each refusal counts, also those that the log leaves out.
    assert_eq!(node.metric("noroshi_log_ins_refused_total"), 3);
    // The store decides that a token is revoked.
    let token = node.token("d1");
    node.delivery
        .devices
        .revoke(node.app, &noroshi_types::DeviceId::parse("d1").expect("an id"))
        .await
        .expect("revoked");
    let mut peer = Peer::dial(&node, 1).await;
    peer.prove("d1", &token).await;
    peer.ask(HEADER, FEATURES).await;
    peer.say("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>").await;
    let end = peer.ended().await;
    assert!(end.contains("<not-authorized xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"), "{end}");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_redirects_clients() {
    let mut config = config();
    config.xmpp.redirect = Some("next.example.org:5222".into());
    let node = Node::start(config).await;
    node.device("d1", "u1", &[]).await;
    let (peer, _) = Peer::managed(&node, "d1").await;
    let order = drain::Order { rate_per_second: 100, spread: Duration::ZERO, deadline: None };
    node.gateway.drain_devices(order).expect("it serves");
    let end = peer.ended().await;
    assert!(end.contains("next.example.org:5222</see-other-host></stream:error></stream:stream>"), "{end}");
    // No new client is admitted, before or after it authenticates.
    let mut late = Peer::dial(&node, 1).await;
    late.say(&[HEADER, &auth("d1", &node.token("d1"))].concat()).await;
    let end = late.ended().await;
    assert!(end.contains("next.example.org:5222</see-other-host>"), "{end}");
    node.gateway.stop();
}

fn secure(folder: &std::path::Path) -> (Config, CertificateDer<'static>) {
    let (certificate, key, der) = certificate(folder);
    let acceptor = tls::Acceptor::open(&certificate, &key).expect("usable");
    let mut config = config();
    config.xmpp.protocol.allow_plaintext = false;
    config.xmpp.starttls = Some(acceptor.clone());
    let address = "127.0.0.1:0".parse().expect("an address");
    config.listeners.push(Listener { speaks: Speaks::Xmpp, address, tls: Some(acceptor) });
    (config, der)
}

async fn encrypt(
    socket: TcpStream,
    der: &CertificateDer<'static>,
    alpn: &[&str],
) -> std::io::Result<Peer<tokio_rustls::client::TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(der.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    Ok(Peer { socket: connector.connect(name, socket).await?, heard: String::new() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_encrypted_in_the_middle_or_from_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, der) = secure(folder.path());
    let node = Node::start(config).await;
    node.device("d1", "u1", &[]).await;
    let starttls = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
    let proceed = "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
    let mut clear = Peer::dial(&node, 1).await;
    let features = clear.ask(HEADER, FEATURES).await;
    assert!(features.contains("<required/>") && !features.contains("mechanism"), "{features}");
    assert_eq!(clear.ask(starttls, proceed).await, proceed);
    let mut peer = encrypt(clear.socket, &der, &[]).await.expect("a handshake");
    peer.prove("d1", &node.token("d1")).await;
    peer.bind().await;
    peer.say("<presence/>").await;
    peer.sync().await;
    node.publish(user("u1"), When::Connected, &format!("\"{}\"", "x".repeat(3_000))).await;
    assert!(peer.until("</message>").await.contains("xxx"));

    // Plaintext behind the request is rejected.
    let mut hasty = Peer::dial(&node, 1).await;
    hasty.ask(HEADER, FEATURES).await;
    let end = hasty.ask(&format!("{starttls}<presence/>"), "</stream:stream>").await;
    assert!(end.contains("<bad-format"), "{end}");

    // Direct TLS: nothing to negotiate, and for XMPP only.
    let socket = || TcpStream::connect(node.gateway.local_addrs()[2]);
    let mut direct = encrypt(socket().await.expect("connected"), &der, &["xmpp-client"]).await.expect("XMPP");
    assert_eq!(direct.socket.get_ref().1.alpn_protocol(), Some(b"xmpp-client".as_slice()));
    let features = direct.ask(HEADER, FEATURES).await;
    assert!(!features.contains("starttls") && features.contains("PLAIN"), "{features}");
    let wrong = encrypt(socket().await.expect("connected"), &der, &["http/1.1"]).await;
    assert!(wrong.is_err(), "another protocol's client");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_talk_to_each_other() {
    let mut config = config();
    let protocol = &mut config.xmpp.protocol;
    (protocol.registration, protocol.scram) = (true, true);
    config.xmpp.accounts = vec![
        Account { name: "romeo".into(), password: "r1".into() },
        Account { name: "juliet".into(), password: "j1".into() },
    ];
    let node = Node::start(config).await;
    let mut romeo = Peer::dial(&node, 1).await;
    romeo.prove("romeo", "r1").await;
    romeo.bind().await;
    romeo.ask("<presence/>", "</presence>").await;
    // She is away: it waits, with the time it was sent.
    romeo.say("<message to='juliet@localhost' type='chat'><body>hark</body></message>").await;
    romeo.sync().await;
    let mut juliet = Peer::dial(&node, 1).await;
    juliet.prove("juliet", "j1").await;
    juliet.bind().await;
    let waited = juliet.ask("<presence/>", "</message>").await;
    assert!(waited.contains("from='romeo@localhost/r'") && waited.contains("<delay xmlns='urn:xmpp:delay'"));
    juliet.say("<message to='romeo@localhost/r' type='chat'><body>ay me</body></message>").await;
    let said = romeo.until("</message>").await;
    assert!(said.contains("ay me") && said.contains("from='juliet@localhost/r'") && !said.contains("<delay"));
    // RFC 6121 §8.5.1: the same answer as for an offline account.
    romeo.say("<message id='n' to='tybalt@localhost'><body>x</body></message>").await;
    assert!(!romeo.sync().await.contains("<message"));
    let asked = romeo
        .ask(
            "<iq type='get' id='v' to='juliet@localhost/gone'><query xmlns='jabber:iq:version'/></iq>",
            "</iq>",
        )
        .await;
    assert!(asked.contains("<service-unavailable"), "{asked}");
    // In-band registration, then the new account's log-in.
    let mut tybalt = Peer::dial(&node, 1).await;
    tybalt.ask(HEADER, FEATURES).await;
    let register = "<iq type='set' id='g'><query xmlns='jabber:iq:register'><username>tybalt</username>\
                    <password>t1</password></query></iq>";
    tybalt.ask(register, "type='result'").await;
    tybalt.until("</iq>").await;
    tybalt.ask(&auth("tybalt", "t1"), "<success").await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_answer_may_resume() {
    let mut config = config();
    config.ping_interval = Duration::from_secs(1);
    config.ping_timeout = Duration::from_millis(500);
    let node = Node::start(config).await;
    node.device("d1", "u1", &[]).await;
    let (peer, id) = Peer::managed(&node, "d1").await;
    let end = peer.ended().await;
    assert!(end.contains("<r xmlns='urn:xmpp:sm:3'/>") && end.contains("<connection-timeout"), "{end}");
    let mut next = Peer::dial(&node, 1).await;
    next.prove("d1", &node.token("d1")).await;
    next.ask(HEADER, FEATURES).await;
    next.ask(&resume(&id, 0), "<resumed").await;
    node.publish(Target::Everyone, When::Stored, "1").await;
    assert!(next.until("</message>").await.contains("\"data\":1"));
    node.gateway.stop();
}

/// What an archive answers: the data of its messages, or the condition of an error.
async fn archived(peer: &mut Peer, set: &str) -> Vec<String> {
    let set = format!("<set xmlns='http://jabber.org/protocol/rsm'>{set}</set>");
    let said = peer
        .ask(&format!("<iq type='set' id='m'><query xmlns='urn:xmpp:mam:2'>{set}</query></iq>"), "</iq>")
        .await;
    if let Some((_, error)) = said.split_once("<error ") {
        return vec![between(error, "><", " ").to_owned()];
    }
    said.split("\"data\":")
        .skip(1)
        .map(|rest| rest.split([',', '}']).next().unwrap_or("").to_owned())
        .collect()
}

/// Not of another device, be it of the same name with another tenant.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_one_devices_inbox() {
    let node = Node::start(config()).await;
    let name = AppName::parse("other").expect("a name");
    let other = node.auth.create_app(name, AppSettings::default(), node.now()).await.expect("an app").id;
    node.device("d1", "u1", &["news"]).await;
    node.device("d2", "u2", &[]).await;
    let d1 = DeviceId::parse("d1").expect("an id");
    let registration = Registration {
        device: Some(d1.clone()),
        user: Some(UserId::parse("u1").expect("an id")),
        ..Registration::default()
    };
    node.store.register(other, vec![registration], node.now()).await.expect("registered");
    let mine = node.publish(user("u1"), When::Stored, "1").await;
    let of_other_device = node.publish(user("u2"), When::Stored, "2").await;
    let theirs = request(user("u1"), When::Stored, "3");
    let of_other_app = node.delivery.publisher.publish(other, theirs, None).await.expect("published").id;
    node.publish(topic("news"), When::Stored, "4").await;
    let mut peer = Peer::log_in(&node, "d1").await;
    peer.until("\"data\":4").await; // an event of the node, and not of the archive
    peer.answer().await;
    assert_eq!(archived(&mut peer, "").await, ["1"]);
    assert_eq!(archived(&mut peer, &format!("<after>{mine}</after>")).await, [""; 0]);
    for id in [of_other_device, of_other_app] {
        for place in ["after", "before"] {
            let asked = format!("<{place}>{id}</{place}>");
            assert_eq!(archived(&mut peer, &asked).await, ["item-not-found"], "{asked}");
        }
    }
    let mut stranger = Peer::dial(&node, 1).await;
    let token = node.auth.issue(other, &d1, 1, node.now().saturating_add(Duration::from_secs(3_600)));
    stranger.prove("d1", &token).await;
    stranger.bind().await;
    assert_eq!(archived(&mut stranger, "").await, ["3"]);
    // A receipt takes a message out, reading does not.
    let receipt =
        format!("<message to='localhost'><received xmlns='urn:xmpp:receipts' id='{mine}'/></message>");
    peer.say(&receipt).await;
    node.until_acknowledged("d1").await;
    assert_eq!(archived(&mut peer, "").await, [""; 0]);
    // Requests during the revocation of the credential, or afterwards, are not answered.
    node.publish(user("u1"), When::Stored, "5").await;
    node.delivery.devices.revoke(node.app, &d1).await.expect("revoked");
    let heard = peer.ended().await;
    assert!(heard.contains("<not-authorized") && !heard.contains("\"data\":5"), "{heard}");
    node.gateway.stop();
}

/// Reads stanzas, and answers each request of stream management with the number it has read, until this is `read`.
async fn acknowledge(peer: &mut Peer, handled: &mut u32, read: u32) {
    while *handled < read {
        let heard = peer.until("<r xmlns='urn:xmpp:sm:3'/>").await;
        *handled += u32::try_from(heard.matches("<iq ").count()).expect("few");
        peer.say(&format!("<a xmlns='urn:xmpp:sm:3' h='{handled}'/>")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_acknowledges_what_it_reads_stays() {
    const PING: &str = "<iq type='get' id='p' to='localhost'><ping xmlns='urn:xmpp:ping'/></iq>";
    let mut config = config();
    (config.frames_per_second, config.frames_burst) = (1, 3_500);
    let node = Node::start(config).await;
    node.device("d1", "u1", &[]).await;
    let (mut peer, _) = Peer::managed(&node, "d1").await;
    let mut handled = 0;
    // The server requests an acknowledgement of one stanza after a while, of many at once.
    peer.say(PING).await;
    acknowledge(&mut peer, &mut handled, 1).await;
    for _ in 0..50 {
        peer.say(&PING.repeat(60)).await;
        let read = handled + 60;
        acknowledge(&mut peer, &mut handled, read).await;
    }
    assert!(handled >= 3_000);
    peer.sync().await;
    node.gateway.stop();
}

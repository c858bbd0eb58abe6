//! What happens while the pool verifies a token: a fault holds its answers back for as long as a test needs.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::SinkExt;
use noroshi_delivery::quota::Configured;
use noroshi_gateway::Config;
use noroshi_gateway::drain::Order;
use noroshi_store::AppSettings;
use noroshi_supervision::fault;
use noroshi_types::quota::{Limits, Quota};
use ring::rand::SystemRandom;
use ring::signature::{self, KeyPair};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tokio_tungstenite::tungstenite::Message;

use crate::node::{Client, Node, plain};

/// The fault is the whole process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// No verification is answered until this is dropped.
pub(crate) struct Hold {
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Hold {
    pub(crate) async fn begin() -> Self {
        let one = ONE_AT_A_TIME.lock().await;
        fault::arm("stall verified");
        Self { _one_at_a_time: one }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        fault::arm("");
        // If the next test armed the fault before a thread noticed, it would hold this test's answers too.
        while fault::held() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Signs tokens of the node's app with a public key.
pub(crate) struct Signer {
    random: SystemRandom,
    pair: signature::EcdsaKeyPair,
}

impl Signer {
    pub(crate) async fn of(node: &Node) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &signature::ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = signature::EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = signature::EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
        let point = pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        let jwks = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": x, "y": y}]}).to_string();
        let settings = AppSettings { jwks: Some(jwks), ..AppSettings::default() };
        node.auth.update_app(node.app, settings).await.expect("changed");
        Self { random, pair }
    }

    /// A token for an hour; each one differs, so that the pool must verify it.
    pub(crate) fn token(&self, node: &Node, device: &str, user: &str) -> String {
        let claims = json!({"sub": user, "device": device, "exp": node.now().0 / 1_000 + 3_600});
        let encode = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(json!({"alg": "ES256"})), encode(claims));
        let signature = self.pair.sign(&self.random, message.as_bytes()).expect("signed");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

/// A connection whose token is being verified.
async fn logging_in(node: &Node, token: &str) -> Client {
    let mut client = node.open("/v1/connect").await;
    client.send(json!({"t": "connect", "token": token})).await;
    // The shard answers this in order.
    client.socket.send(Message::Ping(Default::default())).await.expect("sent");
    assert!(matches!(client.message().await, Some(Ok(Message::Pong(_)))));
    client
}

/// A frame of some 4,000 bytes that changes nothing.
fn long_ack() -> serde_json::Value {
    json!({"t": "ack", "ids": vec!["01890a5d-ac96-774b-bcce-b302099a8057"; 100]})
}

#[tokio::test(flavor = "multi_thread")]
async fn early_frames_are_bounded_during_a_verification() {
    let node = Node::start(plain()).await;
    let signer = Signer::of(&node).await;
    let _hold = Hold::begin().await;
    let mut client = logging_in(&node, &signer.token(&node, "d1", "u1")).await;
    for _ in 0..5 {
        client.send(long_ack()).await;
    }
    assert_eq!(client.closed().await, ("rate_limited".to_owned(), 4008));
}

#[tokio::test(flavor = "multi_thread")]
async fn early_frames_are_handled_in_order_after_a_verification() {
    let node = Node::start(plain()).await;
    let signer = Signer::of(&node).await;
    let hold = Hold::begin().await;
    let mut client = logging_in(&node, &signer.token(&node, "d1", "u1")).await;
    for frame in [
        long_ack(),
        json!({"t": "ping"}),
        json!({"t": "nonsense"}),
        long_ack(),
        json!({"t": "ping"}),
        json!({"t": "connect", "token": "again"}),
        long_ack(),
        json!({"t": "ping"}),
    ] {
        client.send(frame).await;
    }
    drop(hold);
    for expected in ["ready", "pong", "error", "pong", "error", "pong"] {
        let frame = client.next().await;
        assert_eq!(frame["t"], expected, "{frame}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_apply_in_the_order_in_which_they_were_sent() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let signer = Signer::of(&node).await;
    let mut client = node.connect("d1").await;
    let hold = Hold::begin().await;
    client.send(json!({"t": "token", "token": signer.token(&node, "d1", "u1")})).await;
    let short = node.token_for("d1", Duration::from_secs(5));
    client.send(json!({"t": "token", "token": short})).await;
    client.send(json!({"t": "ping"})).await;
    let mut frame = client.next().await;
    // On a slow machine it may have expired already.
    if frame["t"] == "pong" {
        drop(hold);
        // The first one would let it live for an hour.
        frame = client.next().await;
    }
    assert_eq!((&frame["t"], &frame["reason"]), (&json!("close"), &json!("expired")), "{frame}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_whose_verification_ends_in_a_drain_is_turned_away() {
    let node = Node::start(plain()).await;
    let signer = Signer::of(&node).await;
    let hold = Hold::begin().await;
    let mut client = logging_in(&node, &signer.token(&node, "d1", "u1")).await;
    // The drain itself comes to it a second later.
    let order = Order { rate_per_second: 1, spread: Duration::ZERO, deadline: None };
    node.gateway.drain_devices(order).expect("begun");
    drop(hold);
    let frame = client.next().await;
    assert_eq!((&frame["t"], &frame["reason"]), (&json!("close"), &json!("drain")), "{frame}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_over_the_rate_of_connects_costs_no_verification() {
    let node = Node::start(Config { shards: 1, ..plain() }).await;
    let signer = Signer::of(&node).await;
    let mut limits = Limits::default();
    limits.set(Quota::ConnectsPerSecond, Some(0));
    node.delivery.quotas.set_defaults(limits);
    let name = node.auth.app_name(node.app).expect("an app");
    let configured = Configured { app: node.app, name, overrides: Default::default() };
    node.delivery.quotas.configure([configured]);
    let _hold = Hold::begin().await;
    let mut client = node.open("/v1/connect").await;
    client.send(json!({"t": "connect", "token": signer.token(&node, "d1", "u1")})).await;
    assert_eq!(client.closed().await.0, "quota_exceeded");
}

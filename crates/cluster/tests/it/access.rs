//! Redis as in production: TLS with a private authority, a user with minimal rights, a separate database. The rights
//! are those in docs/cluster.md.

use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::batches::{BatchQueue as _, QueuedBatch};
use noroshi_cluster::redis::{Address, Config, Redis};
use noroshi_cluster::{Error, Taken};
use noroshi_telemetry::registry;
use noroshi_types::Lane;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::engine::{TTL, TestNode, config, info, redis_node};
use crate::recorder::{Recorder, until};
use crate::server::{Server, free_port};

/// The words after `ACL SETUSER noroshi on >secret` in the document.
fn documented_rights() -> Vec<String> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster.md");
    let text = std::fs::read_to_string(document).expect("docs/cluster.md");
    let rights = text.lines().find_map(|line| line.strip_prefix("ACL SETUSER noroshi on >secret "));
    rights.expect("the rights, in one line").split(' ').map(str::to_owned).collect()
}

/// Exercises everything that a node does.
async fn works(a: &TestNode, b: &TestNode) {
    a.events.joined_again().await;
    b.events.joined_again().await;
    a.knows(2).await;
    assert_eq!(a.take("d", Some("u"), 1).await, Taken::Now { previous: None });
    assert_eq!(b.locate(b.user("u")).await, [a.epoch()]);
    let directory = &b.cluster.directory;
    let sessions = vec![crate::engine::session(&b.cluster.keys, "e", Some("u"), 1)];
    directory.keep(b.epoch(), sessions.clone()).await.expect("keep");
    directory.forget(b.epoch(), sessions).await.expect("forget");
    directory.absent(b.epoch(), vec![b.user("u")], 1).await.expect("absent");
    a.cluster.bus.send(vec![(b.epoch(), "hello".into())]).await.expect("send");
    until("the message", || !b.events.messages().is_empty()).await;
}

async fn batches_work(config: Config) {
    let redis = Redis::open(config, None, info("sender"), &mut registry()).expect("configuration");
    let batches = redis.batches();
    let events = Arc::new(Recorder::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(redis.run(events.clone(), stop.clone()));
    events.joined_again().await;
    let lane = Lane::ALL[0] as u8;
    let parcel = QueuedBatch { key: 7, lane, body: "batch".into() };
    batches.put(vec![parcel.clone()]).await.expect("put");
    let pulled = batches.pull(&[lane], 1, Duration::from_secs(5)).await.expect("pull");
    assert_eq!(pulled[0].parcel, parcel);
    let receipts = vec![pulled[0].receipt.clone()];
    batches.extend(&receipts, Duration::from_secs(5)).await.expect("extend");
    batches.done(receipts).await.expect("done");
    assert!(batches.depth().await.expect("depth").iter().all(|depth| depth.parcels == 0));
    stop.cancel();
    running.await.expect("it ends when it is stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice() {
    let server = Server::start();
    let rights = documented_rights();
    let mut words = vec!["ACL", "SETUSER", "noroshi", "on", ">se@cret"];
    words.extend(rights.iter().map(String::as_str));
    server.ask(&words);
    let url = |password: &str| format!("redis://noroshi:{password}@127.0.0.1:{}/3", server.port);
    let node = |name: &str| redis_node(config(&url("se%40cret")), name);
    let (a, b) = (node("a"), node("b"));
    works(&a, &b).await;
    batches_work(config(&url("se%40cret"))).await;
    let keyspace = server.ask_text(&["INFO", "keyspace"]);
    assert!(keyspace.contains("db3:") && !keyspace.contains("db0:"), "{keyspace}");

    let wrong = redis_node(config(&url("wrong")), "c");
    let key = wrong.device("d");
    let mut answer = Ok(Vec::new());
    until("refused", || {
        let locating = wrong.cluster.directory.locate(vec![key]);
        answer = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(locating));
        matches!(answer, Err(Error::Refused(_)))
    })
    .await;
    assert_eq!(wrong.cluster.members.epoch(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_authority_is_trusted_when_it_is_named() {
    let folder = TempDir::new().expect("folder");
    let authority = authority(&folder);
    let tls_port = free_port();
    let port = tls_port.to_string();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key, ca) = (path("cert.pem"), path("key.pem"), path("ca.pem"));
    let _server = Server::with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ]);
    let address = Address::parse(&format!("rediss://localhost:{tls_port}")).expect("address");
    let config = || Config {
        lease_ttl: TTL,
        root_certificate_pem: Some(authority.clone().into()),
        ..Config::new(address.clone(), [3; 16])
    };
    works(&redis_node(config(), "a"), &redis_node(config(), "b")).await;

    let stranger = redis_node(Config { root_certificate_pem: None, ..config() }, "c");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(stranger.cluster.directory.locate(vec![stranger.device("d")]).await.is_err());
    assert_eq!(stranger.metric("servers_up"), 0);
}

/// Writes a certificate for `localhost` with its key, and the authority's certificate, which it returns too.
fn authority(folder: &TempDir) -> String {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().expect("key");
    let ca = params.self_signed(&ca_key).expect("authority");
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().expect("key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("certificate");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("file");
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
    write("ca.pem", ca.pem());
    ca.pem()
}

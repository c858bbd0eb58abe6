//! The identity of a client before and after its log-in, whatever connections it uses.

use noroshi_gateway::Config;
use noroshi_types::limits;
use tokio::net::TcpStream;

use super::{Http, Socket, polling};
use crate::node::{Node, plain};
use crate::verification::{Hold, Signer};

const FAILURES_MAX: usize = limits::FAILED_LOG_INS_PER_CLIENT as usize;
/// A device token with a forged signature.
const FORGED: &str = "nd1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_a_strangers_until_the_token_of_its_session_is_verified() {
    let node = Node::start(Config { shards: 1, unauthenticated_max: 3, ..plain() }).await;
    let signer = Signer::of(&node).await;
    let _hold = Hold::begin().await;
    let mut http = Http::open(&node).await;
    let open = http.get("/socket.io/?EIO=4&transport=polling").await;
    let sid = open.body.split('"').nth(3).expect("a sid").to_owned();
    let path = format!("/socket.io/?EIO=4&transport=polling&sid={sid}");
    let token = signer.token(&node, "d1", "u1");
    assert_eq!(http.post(&path, &format!(r#"40{{"token":"{token}"}}"#)).await.status, 200);
    http.send("GET", &path, "").await;
    // With the session and its connection these are one too many, so the oldest is evicted.
    let _silent = [
        TcpStream::connect(node.address()).await.expect("connected"),
        TcpStream::connect(node.address()).await.expect("connected"),
    ];
    node.until("an eviction", |node| node.metric("noroshi_connections_evicted_total") == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_renewals_of_a_session_that_polls_count_for_its_client() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let path = polling(&node, "/socket.io/").await;
    let mut http = Http::open(&node).await;
    assert_eq!(http.post(&path, &format!(r#"40{{"token":"{}"}}"#, node.token("d1"))).await.status, 200);
    let mut heard = http.get(&path).await.body;
    assert!(heard.contains(r#"40{"sid""#), "{heard}");
    let renewals = vec![format!(r#"420["token","{FORGED}"]"#); FAILURES_MAX + 1].join("\x1e");
    assert_eq!(http.post(&path, &renewals).await.status, 200);
    while heard.matches(r#"430["#).count() <= FAILURES_MAX {
        heard += &http.get(&path).await.body;
    }
    assert_eq!(heard.matches("rate_limited").count(), 1, "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_count_for_the_client_at_the_next_log_in_too() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut socket = Socket::session(&node, "/socket.io/").await;
    socket.say(&format!(r#"40{{"token":"{}"}}"#, node.token("d1"))).await;
    assert!(socket.next().await.starts_with("40"));
    for _ in 0..FAILURES_MAX {
        socket.say(&format!(r#"420["token","{FORGED}"]"#)).await;
        let answer = socket.next().await;
        assert!(answer.contains("unauthorized"), "{answer}");
    }
    socket.say("41").await;
    socket.say(&format!(r#"40{{"token":"{FORGED}"}}"#)).await;
    assert_eq!(socket.closed().await, 4008);
}

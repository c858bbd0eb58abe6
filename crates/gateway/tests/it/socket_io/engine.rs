//! Engine.IO by its raw echo: both transports, the heartbeat, the move from one to the other, and what is
//! refused.

use noroshi_gateway::Config;
use noroshi_types::CloseReason;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use super::{Http, Socket, conformance, echoing, pause, pinging, polling};
use crate::node::{Node, PATIENCE, plain};

const RAW: &str = "/engine.io/";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_on_either_transport() {
    let node = Node::start(conformance()).await;
    let answer = Http::open(&node).await.get("/engine.io/?EIO=4&transport=polling").await;
    let polled: Value = serde_json::from_str(&answer.body[1..]).expect("JSON");
    assert_eq!(polled["upgrades"], serde_json::json!(["websocket"]));
    assert!(answer.head.contains("Access-Control-Allow-Origin: *\r\n"), "{answer:?}");
    let mut socket = Socket::open(&node, "/engine.io/?EIO=4&transport=websocket").await;
    let open: Value = serde_json::from_str(&socket.next().await[1..]).expect("JSON");
    assert_eq!(open["upgrades"], serde_json::json!([]));
    for open in [open, polled] {
        let numbers =
            ["pingInterval", "pingTimeout", "maxPayload"].map(|name| open[name].as_u64().expect("set"));
        assert_eq!(numbers, [300, 200, 1_000_000]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_session_requests_are_refused() {
    let node = Node::start(echoing()).await;
    let unknown = "AAAAAAAAAAAAAAAAAAAA";
    for (method, query, code) in [
        ("GET", "transport=polling", 5),
        ("GET", "EIO=3&transport=polling", 5),
        ("GET", "EIO=abc&transport=polling", 5),
        ("GET", "EIO=4", 0),
        ("GET", "EIO=4&transport=abc", 0),
        ("GET", "EIO=4&transport=polling&j=0", 3),
        ("POST", "EIO=4&transport=polling", 2),
        ("PUT", "EIO=4&transport=polling", 2),
        ("GET", &format!("EIO=4&transport=polling&sid={unknown}"), 1),
        ("POST", &format!("EIO=4&transport=polling&sid={unknown}"), 1),
        // Of a shard that there is not.
        ("GET", "EIO=4&transport=polling&sid=__________________", 1),
        ("GET", "EIO=4&transport=websocket", 3),
    ] {
        let mut http = Http::open(&node).await;
        http.send(method, &format!("{RAW}?{query}"), "").await;
        let answer = http.answer().await;
        let error: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(
            (answer.status, error["code"].as_u64()),
            (400, Some(code)),
            "{method} {query}: {answer:?}"
        );
    }
    node.until("nothing is left", |node| node.gateway.connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_a_payload_are_echoed_in_one() {
    let node = Node::start(echoing()).await;
    // One connection for all of it: it is kept, wherever the session is.
    let mut http = Http::open(&node).await;
    for payload in ["4hello", "4test1\x1e4test2\x1e4test3", "4hello\x1ebAQIDBA=="] {
        let path = polling(&node, RAW).await;
        assert_eq!(http.post(&path, payload).await.body, "ok");
        assert_eq!(http.get(&path).await.body, payload);
    }
    let large = format!("4{}", "x".repeat(999_999));
    let path = polling(&node, RAW).await;
    assert_eq!(http.post(&path, &large).await.body, "ok");
    assert_eq!(http.get(&path).await.body, large);
    let too_large = format!("4{}", "x".repeat(1_000_000));
    assert_eq!(http.post(&path, &too_large).await.status, 413);
    http.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_waits_while_a_post_is_read() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let (mut poll, mut post) = (Http::open(&node).await, Http::open(&node).await);
    for text in ["4a\x1e4b", "4c"] {
        poll.send("GET", &path, "").await;
        assert_eq!(post.post(&path, text).await.body, "ok");
        assert_eq!(poll.answer().await.body, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_may_be_sent_ahead_and_in_pieces() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let mut http = Http::open(&node).await;
    // The first is answered by the second, which came behind it on the same connection only after it.
    let post = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n4hello");
    let get = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let both = format!("{post}{get}{post}{get}");
    for piece in both.as_bytes().chunks(7) {
        tokio::io::AsyncWriteExt::write_all(&mut http.socket, piece).await.expect("sent");
        tokio::task::yield_now().await;
    }
    for _ in 0..2 {
        assert_eq!(http.answer().await.body, "ok");
        assert_eq!(http.answer().await.body, "4hello");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_ends_the_session() {
    let node = Node::start(echoing()).await;
    for body in ["abc", "", "4a\x1e9", "2", "b!", "5"] {
        let path = polling(&node, RAW).await;
        assert_eq!(Http::open(&node).await.post(&path, body).await.status, 400, "{body:?}");
        assert_eq!(Http::open(&node).await.get(&path).await.status, 400, "{body:?}");
    }
    let mut socket = Socket::session(&node, RAW).await;
    socket.say("abc").await;
    assert_eq!(socket.closed().await, CloseReason::BadMessage.websocket_code().expect("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_poll_waits_at_a_time() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let (mut one, mut other) = (Http::open(&node).await, Http::open(&node).await);
    one.send("GET", &path, "").await;
    other.send("GET", &path, "").await;
    // Whichever is read second ends the session.
    let mut answers = [one.answer().await, other.answer().await].map(|answer| (answer.status, answer.body));
    answers.sort();
    assert_eq!((answers[0].0, &*answers[0].1, answers[1].0), (200, "1", 400));
    assert_eq!(one.get(&path).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_is_given_up_ends_the_session() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let mut poll = Http::open(&node).await;
    poll.send("GET", &path, "").await;
    pause(20).await;
    drop(poll);
    node.until("nothing is left", |node| node.gateway.connections() == 0).await;
    assert_eq!(Http::open(&node).await.get(&path).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_pings() {
    let node = Node::start(pinging()).await;
    let path = polling(&node, RAW).await;
    let mut http = Http::open(&node).await;
    for _ in 0..3 {
        assert_eq!(http.get(&path).await.body, "2");
        assert_eq!(http.post(&path, "3").await.body, "ok");
    }
    let mut socket = Socket::session(&node, RAW).await;
    for _ in 0..3 {
        assert_eq!(socket.raw().await, Message::text("2"));
        socket.say("3").await;
    }
}

/// The interval counts from the answer to the last ping. A tick of the shard's wheel is a third of it, so a server that
/// rounds up to ticks is late each time; a busy machine is late now and then.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_heartbeat_is_kept_to_the_millisecond() {
    let node = Node::start(pinging()).await;
    let mut socket = Socket::session(&node, RAW).await;
    assert_eq!(socket.raw().await, Message::text("2"));
    let began = std::time::Instant::now();
    let (mut answered, mut in_time) = (began, 0);
    socket.say("3").await;
    while in_time < 3 {
        assert!(began.elapsed() < PATIENCE, "every ping is late");
        assert_eq!(socket.raw().await, Message::text("2"));
        let after = answered.elapsed();
        assert!(after >= std::time::Duration::from_millis(298), "{after:?}: early");
        in_time += u8::from(after < std::time::Duration::from_millis(345));
        answered = std::time::Instant::now();
        socket.say("3").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_a_session() {
    let node = Node::start(conformance()).await;
    let path = polling(&node, RAW).await;
    let mut socket = Socket::session(&node, RAW).await;
    pause(500).await;
    assert_eq!(Http::open(&node).await.get(&path).await.status, 400);
    assert_eq!(socket.closed().await, CloseReason::PingTimeout.websocket_code().expect("one"));
    node.until("both are counted", |node| node.metrics.closed(CloseReason::PingTimeout) == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_close() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let (mut poll, mut post) = (Http::open(&node).await, Http::open(&node).await);
    poll.send("GET", &path, "").await;
    assert_eq!(post.post(&path, "1").await.body, "ok");
    assert_eq!(poll.answer().await.body, "6");
    assert_eq!(poll.get(&path).await.status, 400);
    // The poll may come second.
    let path = polling(&node, RAW).await;
    assert_eq!(post.post(&path, "1").await.body, "ok");
    assert_eq!(poll.get(&path).await.body, "6");
    let mut socket = Socket::session(&node, RAW).await;
    socket.say("1").await;
    socket.closed().await;
    drop((poll, post, socket));
    node.until("nothing is left", |node| node.gateway.connections() == 0).await;
}

fn websocket(path: &str) -> String {
    path.replace("transport=polling", "transport=websocket")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_moves_to_a_websocket() {
    let node = Node::start(echoing()).await;
    for _ in 0..8 {
        let path = polling(&node, RAW).await;
        let mut poll = Http::open(&node).await;
        assert_eq!(poll.post(&path, "4early").await.body, "ok");
        let mut socket = Socket::open(&node, &websocket(&path)).await;
        socket.say("2probe").await;
        assert_eq!(socket.next().await, "3probe");
        assert_eq!(poll.get(&path).await.body, "4early");
        assert_eq!(poll.get(&path).await.body, "6");
        // All three in one write: what follows the upgrade belongs to the session.
        for text in ["5", "4hello", "4world"] {
            futures_util::SinkExt::feed(&mut socket.0.socket, Message::text(text)).await.expect("fed");
        }
        futures_util::SinkExt::flush(&mut socket.0.socket).await.expect("sent");
        assert_eq!(socket.next().await, "4hello");
        assert_eq!(socket.next().await, "4world");
        // Its id is good for nothing now, and it is not disturbed.
        assert_eq!(poll.get(&path).await.status, 400);
        let mut second = Socket::open(&node, &websocket(&path)).await;
        second.closed().await;
        socket.say_bytes(&[1, 2, 3]).await;
        assert_eq!(socket.next_bytes().await, [1, 2, 3]);
    }
    let gone = |node: &Node| node.gateway.connections() == 0;
    node.until("nothing is left", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_ends_when_the_probe_arrives() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let mut poll = Http::open(&node).await;
    poll.send("GET", &path, "").await;
    let mut socket = Socket::open(&node, &websocket(&path)).await;
    socket.say("2probe").await;
    assert_eq!(socket.next().await, "3probe");
    assert_eq!(poll.answer().await.body, "6");
    // A second one is not let in while the first may still come through.
    Socket::open(&node, &websocket(&path)).await.closed().await;
    socket.say("5").await;
    socket.say("4x").await;
    assert_eq!(socket.next().await, "4x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_fails_leaves_the_session_alone() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let mut http = Http::open(&node).await;
    for mistake in ["4hello", "5", "x", "3"] {
        let mut socket = Socket::open(&node, &websocket(&path)).await;
        socket.say(mistake).await;
        socket.closed().await;
        assert_eq!(http.post(&path, "4still").await.body, "ok");
        assert_eq!(http.get(&path).await.body, "4still");
    }
    // A WebSocket that disconnects after its probe was answered.
    let mut socket = Socket::open(&node, &websocket(&path)).await;
    socket.say("2probe").await;
    assert_eq!(socket.next().await, "3probe");
    drop(socket);
    node.until("it is gone", |node| node.gateway.connections() == 2).await;
    assert_eq!(http.post(&path, "4here").await.body, "ok");
    assert_eq!(http.get(&path).await.body, "4here");
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_may_send_preflight_requests() {
    let node = Node::start(plain()).await;
    let mut http = Http::open(&node).await;
    http.send("OPTIONS", "/socket.io/?EIO=4&transport=polling", "").await;
    let answer = http.answer().await;
    assert_eq!(answer.status, 204);
    for line in ["Access-Control-Allow-Origin: *", "Access-Control-Allow-Methods: GET, POST"] {
        assert!(answer.head.contains(line), "{answer:?}");
    }
    // The connection continues, here and at the API.
    assert_eq!(http.get("/socket.io/?EIO=4&transport=polling").await.status, 200);
    http.send("GET", "/v1/topics", "").await;
    node.until("a hand-over", |node| !node.handed_over.lock().expect("no panic").is_empty()).await;
    // The raw echo is the conformance suite's.
    let mut http = Http::open(&node).await;
    http.send("GET", "/engine.io/?EIO=4&transport=polling", "").await;
    node.until("a hand-over", |node| node.handed_over.lock().expect("no panic").len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_like_connections() {
    let node = Node::start(Config { connects_per_second: 2, ..plain() }).await;
    let (mut opened, mut http) = (0, Http::open(&node).await);
    let refused = loop {
        let answer = http.get("/socket.io/?EIO=4&transport=polling").await;
        if answer.status != 200 || opened == 1_000 {
            break answer;
        }
        opened += 1;
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("Retry-After: "), "{refused:?}");
    assert!((20..200).contains(&opened), "{opened}");
    assert_eq!(node.metric("noroshi_connections"), opened + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_end_is_not_waited_for() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, RAW).await;
    let mut post = Http::open(&node).await;
    let begun = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n4a\x1e4");
    tokio::io::AsyncWriteExt::write_all(&mut post.socket, begun.as_bytes()).await.expect("sent");
    let mut poll = Http::open(&node).await;
    assert_eq!(poll.get(&path).await.body, "4a", "what is whole is heard");
    // Another one beside it is a mistake.
    assert_eq!(Http::open(&node).await.post(&path, "4x").await.status, 400);
    // The session is over: the rest is refused.
    tokio::io::AsyncWriteExt::write_all(&mut post.socket, b"bcdefg").await.expect("sent");
    assert_eq!(post.answer().await.status, 400);
    post.ended().await;
    let ended = tokio::time::timeout(PATIENCE, async { poll.get(&path).await.status });
    assert_eq!(ended.await.expect("in time"), 400);
}

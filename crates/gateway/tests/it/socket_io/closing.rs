//! The packets that a client receives when the server ends its WebSocket, and the messages it misses until it
//! reconnects.

use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_gateway::drain::{Order, State};
use noroshi_types::When;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Socket;
use crate::closing::{bare_websocket, rest};
use crate::node::{Node, plain, read_until, topic};

const PATH: &str = "/socket.io/?EIO=4&transport=websocket";

fn at_once() -> Order {
    Order { rate_per_second: 1_000, spread: Duration::ZERO, deadline: None }
}

/// A frame of a client, masked with zeros.
fn masked(text: &str) -> Vec<u8> {
    // RFC 6455 §5.2: the shortest form.
    let length = u16::try_from(text.len()).expect("short");
    let head = match u8::try_from(length) {
        Ok(length @ 0..126) => vec![0x81, 0x80 | length],
        _ => [&[0x81, 0x80 | 126], &length.to_be_bytes()[..]].concat(),
    };
    [&head[..], &[0; 4], text.as_bytes()].concat()
}

/// A device on a bare socket, which may read nothing and answer nothing.
async fn bare(node: &Node, headers: &str, auth: &str) -> (TcpStream, Value) {
    let mut socket = bare_websocket(node, PATH, headers).await;
    socket.write_all(&masked(&format!("40{auth}"))).await.expect("sent");
    let answer = read_until(&mut socket, b"\"}").await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let connected = answer.split("40{").nth(1).unwrap_or_else(|| panic!("not connected: {answer}"));
    (socket, serde_json::from_str(&format!("{{{connected}")).expect("JSON"))
}

/// The arguments of the `notification` that ends `bytes`.
fn notification(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(bytes);
    let event = text.rsplit("42[\"notification\",").next().expect("an event");
    serde_json::from_str(&format!("[{event}")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ignores_the_close_frame_of_a_drain_recovers_what_it_missed() {
    let node = Node::start(Config { close_linger: Duration::from_secs(3_600), ..plain() }).await;
    node.device("d1", "u1", &["durable"]).await;
    let auth =
        |more: &str| format!(r#"{{"token":"{}","topics":["own"],"offsets":true{more}}}"#, node.token("d1"));
    let (mut socket, connected) = bare(&node, "", &auth("")).await;
    node.publish(topic("own"), When::Stored, "0").await;
    let heard = notification(&read_until(&mut socket, b"\"]").await);
    assert_eq!(heard[0]["data"], 0);
    // One message is in flight when the drain begins, and the others come before the connection has ended.
    node.publish(topic("own"), When::Stored, "1").await;
    node.gateway.drain_devices(at_once()).expect("begun");
    node.until("the session to end", |node| node.gateway.sessions_count() == 0).await;
    node.publish(topic("own"), When::Stored, "2").await;
    node.publish(topic("durable"), When::Stored, "3").await;
    node.until("the connection to be closed", |node| node.gateway.connections() == 0).await;
    assert_eq!(node.gateway.drain_report().state, State::Drained);
    node.publish(topic("own"), When::Stored, "4").await;
    node.gateway.cancel_drain().expect("serving");

    let came_with = format!(r#","pid":{},"offset":{}"#, connected["pid"], heard[1]);
    let mut back = Socket::session(&node, "/socket.io/").await;
    back.say(&format!("40{}", auth(&came_with))).await;
    let again: Value = serde_json::from_str(&back.next().await[2..]).expect("JSON");
    assert_eq!(again["pid"], connected["pid"], "that is how it hears that nothing is missing");
    for n in 1..5 {
        assert_eq!(notification(back.next().await.as_bytes())[0]["data"], json!(n));
    }
}

/// The Java library (OkHttp) reads nothing behind a close frame and does not tell the application of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_okhttp_client_gets_the_end_of_the_connection_instead_of_a_close_frame() {
    for (agent, says) in [("okhttp/3.12.12", false), ("Dart/3.5 (dart:io)", true)] {
        let node = Node::start(Config { close_linger: Duration::from_secs(3_600), ..plain() }).await;
        node.device("d1", "u1", &[]).await;
        let auth = format!(r#"{{"token":"{}"}}"#, node.token("d1"));
        let (mut socket, _) = bare(&node, &format!("User-Agent: {agent}\r\n"), &auth).await;
        node.gateway.drain_devices(at_once()).expect("begun");
        let heard = rest(&mut socket).await;
        let text = String::from_utf8_lossy(&heard);
        assert!(text.contains(r#"42["close",{"reason":"drain","reconnect":true"#), "{agent}: {text}");
        assert_eq!(!text.ends_with("}]"), says, "{agent}: {text}");
        node.until("the connection to be closed", |node| node.gateway.connections() == 0).await;
    }
}

//! The end of a WebSocket whose client does not answer the close frame.

use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_types::CloseReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, PATIENCE, plain, read_until};

/// A WebSocket on a bare socket, after the answer to its request.
pub(crate) async fn bare_websocket(node: &Node, path: &str, headers: &str) -> TcpStream {
    let mut socket = TcpStream::connect(node.address()).await.expect("connected");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    read_until(&mut socket, b"\r\n\r\n").await;
    socket
}

/// Reads everything until the server ends the connection.
pub(crate) async fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    let end = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut read)).await.expect("an end");
    end.expect("no error");
    read
}

/// RFC 6455 §7.1.1: the server closes the TCP connection first.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_closes_the_connection_of_a_client_that_ignores_the_close_frame() {
    let node = Node::start(Config { close_linger: Duration::from_secs(3_600), ..plain() }).await;
    for (path, headers) in [
        ("/v1/connect", ""),
        ("/mqtt", "Sec-WebSocket-Protocol: mqtt\r\n"),
        ("/xmpp", "Sec-WebSocket-Protocol: xmpp\r\n"),
        ("/socket.io/?EIO=4&transport=websocket", ""),
    ] {
        let mut socket = bare_websocket(&node, path, headers).await;
        // A frame without a mask: RFC 6455 §5.1 has the server close with 1002.
        socket.write_all(&[0x81, 0x00]).await.expect("sent");
        let heard = rest(&mut socket).await;
        let code = CloseReason::ProtocolError.websocket_code().expect("one").to_be_bytes();
        assert!(heard.windows(2).any(|two| two == code), "{path}: {heard:?}");
        node.until("the connection to be closed", |node| node.gateway.connections() == 0).await;
    }
}

/// What the peer has not taken is not cut off by that: its time is `close_linger`.
#[tokio::test(flavor = "multi_thread")]
async fn an_unwritten_close_frame_gets_its_time() {
    let node = Node::start(Config { close_linger: Duration::from_secs(3_600), ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    let mut socket = node.bare("d1").await;
    let large = format!("\"{}\"", "x".repeat(4_000));
    // More than the kernel holds for a peer that reads nothing, and less than makes it a slow consumer.
    while node.metric("noroshi_slow_drops_total") == 0 {
        node.publish(crate::node::user("u1"), noroshi_types::When::Connected, &large).await;
    }
    let order =
        noroshi_gateway::drain::Order { rate_per_second: 1_000, spread: Duration::ZERO, deadline: None };
    node.gateway.drain_devices(order).expect("begun");
    node.until("the session to end", |node| node.gateway.sessions_count() == 0).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(node.gateway.connections(), 1, "it waits for the peer to take the rest");
    let heard = rest(&mut socket).await;
    let code = CloseReason::Drain.websocket_code().expect("one").to_be_bytes();
    assert!(heard[heard.len() - 80..].windows(2).any(|two| two == code), "the close frame is the last");
    node.until("the connection to be closed", |node| node.gateway.connections() == 0).await;
}

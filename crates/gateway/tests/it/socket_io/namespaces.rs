//! Socket.IO by the application of the public conformance suite.

use tokio_tungstenite::tungstenite::Message;

use super::{Http, Socket, conformance, echoing, pinging, polling};
use crate::node::Node;

async fn connected(node: &Node) -> Socket {
    let mut socket = Socket::session(node, "/socket.io/").await;
    socket.say("40").await;
    assert!(socket.next().await.starts_with(r#"40{"sid":""#));
    assert_eq!(socket.next().await, r#"42["auth",{}]"#);
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_connected_to() {
    let node = Node::start(echoing()).await;
    for (connect, connected, auth) in [
        ("40", r#"40{"sid":""#, r#"42["auth",{}]"#),
        (r#"40{"token":"123"}"#, r#"40{"sid":""#, r#"42["auth",{"token":"123"}]"#),
        ("40/custom,", r#"40/custom,{"sid":""#, r#"42/custom,["auth",{}]"#),
        (r#"40/custom,{"token":"abc"}"#, r#"40/custom,{"sid":""#, r#"42/custom,["auth",{"token":"abc"}]"#),
    ] {
        let mut socket = Socket::session(&node, "/socket.io/").await;
        socket.say(connect).await;
        let answer = socket.next().await;
        assert!(answer.starts_with(connected), "{answer}");
        assert_eq!(socket.next().await, auth);
    }
    let mut socket = Socket::session(&node, "/socket.io/").await;
    socket.say("40/random").await;
    assert_eq!(socket.next().await, r#"44/random,{"message":"Invalid namespace"}"#);
    for mistake in ["4abc", r#"42["message"]"#, "43", "4"] {
        let mut socket = Socket::session(&node, "/socket.io/").await;
        socket.say(mistake).await;
        socket.closed().await;
    }
    // A client that connects to no namespace is disconnected.
    let node = Node::start(conformance()).await;
    Socket::session(&node, "/socket.io/").await.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_left() {
    let node = Node::start(pinging()).await;
    let mut socket = connected(&node).await;
    socket.say("40/custom").await;
    socket.next().await;
    socket.next().await;
    socket.say("41/custom").await;
    socket.say(r#"42["message","message to main namespace"]"#).await;
    assert_eq!(socket.next().await, r#"42["message-back","message to main namespace"]"#);
    socket.say("41").await;
    assert_eq!(socket.raw().await, Message::text("2"), "the transport goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_echoed() {
    let node = Node::start(echoing()).await;
    let mut socket = connected(&node).await;
    socket.say(r#"42["message",1,"2",{"3":[true]}]"#).await;
    assert_eq!(socket.next().await, r#"42["message-back",1,"2",{"3":[true]}]"#);
    socket.say(r#"42456["message-with-ack",1,"2",{"3":[false]}]"#).await;
    assert_eq!(socket.next().await, r#"43456[1,"2",{"3":[false]}]"#);
    for (said, heard) in
        [(r#"452-["message","#, r#"452-["message-back","#), (r#"452-789["message-with-ack","#, "462-789[")]
    {
        let places = r#"{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;
        socket.say(&format!("{said}{places}")).await;
        for bytes in [[1, 2, 3], [4, 5, 6]] {
            socket.say_bytes(&bytes).await;
        }
        assert_eq!(socket.next().await, format!("{heard}{places}"));
        for bytes in [[1, 2, 3], [4, 5, 6]] {
            assert_eq!(socket.next_bytes().await, bytes);
        }
    }
    for mistake in ["4abc", "42{}", r#"42abc["message-with-ack",1]"#, "42"] {
        let mut socket = connected(&node).await;
        socket.say(mistake).await;
        socket.closed().await;
    }
    let mut socket = connected(&node).await;
    socket.say_bytes(&[1]).await;
    socket.closed().await;
    let mut socket = connected(&node).await;
    socket.say(r#"451-["message",{"_placeholder":true,"num":0}]"#).await;
    socket.say(r#"42["message"]"#).await;
    socket.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_are_polled_too() {
    let node = Node::start(echoing()).await;
    let path = polling(&node, "/socket.io/").await;
    let mut http = Http::open(&node).await;
    let said = "40\x1e451-[\"message\",{\"_placeholder\":true,\"num\":0}]\x1ebAQID";
    assert_eq!(http.post(&path, said).await.body, "ok");
    let heard = http.get(&path).await.body;
    let heard: Vec<_> = heard.split('\x1e').collect();
    assert!(heard[0].starts_with(r#"40{"sid":""#), "{heard:?}");
    let back = r#"451-["message-back",{"_placeholder":true,"num":0}]"#;
    assert_eq!(heard[1..], [r#"42["auth",{}]"#, back, "bAQID"]);
}

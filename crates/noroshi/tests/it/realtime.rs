//! `noroshi listen` as a device: receiving, acknowledging and reconnecting.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::node::{Node, until};

fn node() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start(&folder.path().join("data"));
    (folder, node)
}

/// Listens in the background, with `--json`.
fn listen(node: &Node, arguments: &[&str]) -> Child {
    let mut command = node.command(&[&["listen", "--json", "--timeout", "60s"], arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary")
}

/// The messages received until it exits, which must succeed.
fn received(listening: Child) -> Vec<Value> {
    let output = listening.wait_with_output().expect("the child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn present(node: &Node, user: &str, presence: &str) {
    until("presence", || {
        (node.json(&["presence", user])["users"][user]["presence"] == presence).then_some(())
    });
}

#[test]
fn acknowledged_messages_are_not_redelivered() {
    let (_folder, node) = node();
    for transport in [&[][..], &["--sse"]] {
        let user = format!("u{}", transport.len());
        let device = format!("cli-{user}");
        node.run(&["devices", "register", "--device", &device, "--user", &user]);
        let id = node.json(&["send", "--user", &user, "--title", "kept"])["id"].clone();
        let once = |more: &[&str]| {
            received(listen(&node, &[&["--user", &user, "--count", "1"], transport, more].concat()))
        };
        assert_eq!(once(&["--no-ack"])[0]["id"], id);
        assert_eq!(once(&[])[0]["id"], id, "it was not acknowledged");
        until("the acknowledgement", || {
            (node.json(&["explain", id.as_str().expect("id")])["counts"]["acked"] == 1).then_some(())
        });
        let next = node.json(&["send", "--user", &user, "--title", "next"])["id"].clone();
        assert_eq!(once(&[])[0]["id"], next, "an acknowledged message was redelivered");
    }
}

#[test]
fn presence_changes_reach_the_right_watchers() {
    let (_folder, node) = node();
    let active = listen(&node, &["--user", "a", "--count", "2"]);
    let idle = listen(&node, &["--user", "b", "--idle", "--count", "1"]);
    let stream = listen(&node, &["--user", "c", "--idle", "--sse", "--count", "1"]);
    present(&node, "a", "active");
    present(&node, "b", "idle");
    present(&node, "c", "idle");
    for when in ["active", "connected"] {
        node.run(&["send", "--user", "a", "--user", "b", "--user", "c", "--title", when, "--when", when]);
    }
    let titles = |received: Vec<Value>| {
        received.iter().map(|msg| msg["notification"]["title"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(titles(received(active)), ["\"active\"", "\"connected\""]);
    for idle in [idle, stream] {
        assert_eq!(titles(received(idle)), ["\"connected\""]);
    }
}

#[test]
fn topics_of_a_connection_are_received_with_positions() {
    let (_folder, node) = node();
    let listening = listen(&node, &["--user", "u", "--topics", "news,sport", "--count", "2"]);
    for topic in ["news", "sport"] {
        until("the subscription", || (node.json(&["topics", "show", topic])["connected"] == 1).then_some(()));
        node.run(&["send", "--topic", topic, "--title", topic]);
    }
    let received = received(listening);
    assert_eq!(
        (&received[0]["topic"], &received[1]["topic"]),
        (&"news".into(), &"sport".into()),
        "{received:?}"
    );
    assert_eq!(received[0]["offset"], 1);
}

#[test]
fn listeners_reconnect_after_a_drain() {
    let (_folder, node) = node();
    let data = node.folder.clone();
    let port = node.http.rsplit(':').next().expect("a port").to_owned();
    let listening = listen(&node, &["--user", "u", "--count", "1", "--server", &node.http]);
    present(&node, "u", "active");
    assert_eq!(node.stop(), Some(0), "a connected device does not block the drain");
    let node = Node::start_with(&data, |command| {
        command.args(["--set", &format!("server.http=127.0.0.1:{port}")]);
    });
    node.run(&["send", "--user", "u", "--title", "after the restart"]);
    assert_eq!(received(listening)[0]["notification"]["title"], "after the restart");
}

#[test]
fn too_few_messages_before_the_timeout_is_a_failure() {
    let (_folder, node) = node();
    let printed = node.fails(1, &["listen", "--user", "u", "--count", "1", "--timeout", "200ms"]);
    assert!(printed.contains("0 of 1"), "{printed}");
    assert!(node.fails(2, &["listen"]).contains("--user"));
    let printed = node.fails(1, &["listen", "--user", "u", "--topics", "$nobody", "--timeout", "60s"]);
    assert!(printed.contains("the server refused: ") && printed.contains("(bad_frame)"), "{printed}");
    node.fails(77, &["listen", "--token", "nd1.wrong", "--timeout", "60s"]);
}

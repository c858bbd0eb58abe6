//! `noroshi listen` as a device: what it hears, confirms, and how it comes back.

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

/// What it heard until it ended, which has to be a success.
fn heard(listening: Child) -> Vec<Value> {
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
fn what_is_confirmed_does_not_come_again() {
    let (_folder, node) = node();
    for transport in [&[][..], &["--sse"]] {
        let user = format!("u{}", transport.len());
        let device = format!("cli-{user}");
        node.run(&["devices", "register", "--device", &device, "--user", &user]);
        let id = node.json(&["send", "--user", &user, "--title", "kept"])["id"].clone();
        let once = |more: &[&str]| {
            heard(listen(&node, &[&["--user", &user, "--count", "1"], transport, more].concat()))
        };
        assert_eq!(once(&["--no-ack"])[0]["id"], id);
        assert_eq!(once(&[])[0]["id"], id, "it was not confirmed");
        until("the confirmation", || {
            (node.json(&["explain", id.as_str().expect("id")])["counts"]["acked"] == 1).then_some(())
        });
        let next = node.json(&["send", "--user", &user, "--title", "next"])["id"].clone();
        assert_eq!(once(&[])[0]["id"], next, "what was confirmed came again");
    }
}

#[test]
fn presence_decides_who_hears_what() {
    let (_folder, node) = node();
    let active = listen(&node, &["--user", "a", "--count", "2"]);
    let idle = listen(&node, &["--user", "b", "--idle", "--count", "1"]);
    present(&node, "a", "active");
    present(&node, "b", "idle");
    for when in ["active", "connected"] {
        node.run(&["send", "--user", "a", "--user", "b", "--title", when, "--when", when]);
    }
    let titles = |heard: Vec<Value>| {
        heard.iter().map(|msg| msg["notification"]["title"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(titles(heard(active)), ["\"active\"", "\"connected\""]);
    assert_eq!(titles(heard(idle)), ["\"connected\""]);
}

#[test]
fn topics_of_a_connection_are_heard_with_their_positions() {
    let (_folder, node) = node();
    let listening = listen(&node, &["--user", "u", "--topics", "news,sport", "--count", "2"]);
    for topic in ["news", "sport"] {
        until("the subscription", || (node.json(&["topics", "show", topic])["connected"] == 1).then_some(()));
        node.run(&["send", "--topic", topic, "--title", topic]);
    }
    let heard = heard(listening);
    assert_eq!((&heard[0]["topic"], &heard[1]["topic"]), (&"news".into(), &"sport".into()), "{heard:?}");
    assert_eq!(heard[0]["offset"], 1);
}

#[test]
fn a_drained_node_is_found_again() {
    let (_folder, node) = node();
    let data = node.folder.clone();
    let port = node.http.rsplit(':').next().expect("a port").to_owned();
    let listening = listen(&node, &["--user", "u", "--count", "1", "--server", &node.http]);
    present(&node, "u", "active");
    assert_eq!(node.stop(), Some(0), "a connected device does not hold up the drain");
    let node = Node::start_with(&data, |command| {
        command.args(["--set", &format!("server.http=127.0.0.1:{port}")]);
    });
    node.run(&["send", "--user", "u", "--title", "after the restart"]);
    assert_eq!(heard(listening)[0]["notification"]["title"], "after the restart");
}

#[test]
fn too_few_in_time_is_a_failure() {
    let (_folder, node) = node();
    let said = node.fails(1, &["listen", "--user", "u", "--count", "1", "--timeout", "200ms"]);
    assert!(said.contains("0 of 1"), "{said}");
    assert!(node.fails(2, &["listen"]).contains("--user"));
    let said = node.fails(1, &["listen", "--user", "u", "--topics", "$nobody", "--timeout", "60s"]);
    assert!(said.contains("the server refused: ") && said.contains("(bad_frame)"), "{said}");
    node.fails(77, &["listen", "--token", "nd1.wrong", "--timeout", "60s"]);
}

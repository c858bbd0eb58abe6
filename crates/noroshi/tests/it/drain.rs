//! `noroshi drain`: moves devices away from a running node; they return once allowed.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::node::{Node, get, text, until};

fn node() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start(&folder.path().join("data"));
    (folder, node)
}

/// A device that reconnects whenever its connection ends, until it has received `count` notifications.
fn device(node: &Node, user: &str, count: &str) -> Child {
    let arguments = ["listen", "--json", "--user", user, "--count", count, "--timeout", "60s"];
    let child = node.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    until("the device to be there", || node.run(&["presence", user]).contains("active").then_some(()));
    child.expect("the binary")
}

fn titles(device: Child) -> Vec<String> {
    let output = device.wait_with_output().expect("the child");
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let title =
        |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["notification"]["title"].to_string();
    lines.lines().map(title).collect()
}

#[test]
fn drained_devices_receive_everything_after_reconnecting() {
    let (_folder, node) = node();
    let devices = ["a", "b", "c"].map(|user| device(&node, user, "1"));
    assert_eq!(node.json(&["drain", "--status"])["connections"], 3);
    let done = node.json(&["drain", "--rate", "100000", "--spread", "1s", "--wait"]);
    assert_eq!((&done["state"], &done["moved"]), (&json!("drained"), &json!(3)));
    assert_eq!(get(&node.admin, "/readyz").0, 503);
    assert_eq!(get(&node.admin, "/healthz").0, 200, "the node keeps running");
    let metrics = get(&node.admin, "/metrics").1;
    for line in [
        "noroshi_drain_active 1",
        "noroshi_drain_remaining 0",
        "noroshi_drain_moved_total 3",
        "noroshi_drain_rate 100000",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    assert!(node.log().contains("every device has "), "{}", node.log());
    for user in ["a", "b", "c"] {
        node.run(&["send", "--user", user, "--title", "kept"]);
    }
    assert!(node.run(&["drain", "--status"]).starts_with("drained"), "sending does not end the drain");
    assert!(node.run(&["drain", "--cancel"]).starts_with("not draining"));
    assert_eq!(get(&node.admin, "/readyz").0, 200);
    for device in devices {
        assert_eq!(titles(device), ["\"kept\""]);
    }
    let metrics = get(&node.admin, "/metrics").1;
    assert!(metrics.contains("noroshi_drain_active 0\n"), "{metrics}");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_signal_during_a_drain_stops_the_node_and_a_restart_serves_again() {
    let (_folder, node) = node();
    let (data, port) = (node.folder.clone(), node.http.rsplit(':').next().expect("a port").to_owned());
    let devices = ["a", "b"].map(|user| {
        let arguments =
            ["listen", "--json", "--user", user, "--count", "1", "--timeout", "60s", "--server", &node.http];
        let child = node.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        until("the device to be there", || node.run(&["presence", user]).contains("active").then_some(()));
        child.expect("the binary")
    });
    // At one per second the second device is still connected at the signal, or has just left.
    let begun = node.json(&["drain", "--rate", "1"]);
    assert_eq!(
        (&begun["state"], &begun["rate"], &begun["deadline_at"]),
        (&json!("draining"), &json!(1), &Value::Null)
    );
    for user in ["a", "b"] {
        node.run(&["send", "--user", user, "--title", "kept"]);
    }
    assert_eq!(node.stop(), Some(0));
    let node = Node::start_with(&data, |command| {
        command.args(["--set", &format!("server.http=127.0.0.1:{port}")]);
    });
    assert_eq!(node.json(&["drain", "--status"])["state"], "serving", "a drain does not survive a restart");
    for device in devices {
        assert_eq!(titles(device), ["\"kept\""]);
    }
}

#[test]
fn invalid_drain_requests_are_reported_and_change_nothing() {
    let (_folder, node) = node();
    for (rate, part) in [("0", "rate"), ("10000001", "10000000")] {
        let printed = node.fails(1, &["drain", "--rate", rate]);
        assert!(printed.contains(part) && printed.contains("invalid_field"), "{printed}");
    }
    assert!(node.fails(1, &["drain", "--spread", "2h"]).contains("at most \"1h\""));
    for arguments in [
        &["--rate=-1"][..],
        &["--rate", "fast"],
        &["--deadline", "soon"],
        &["--spread", "7"],
        &["--deadline", "7x"],
        &["--cancel", "--rate", "5"],
        &["--status", "--cancel"],
    ] {
        node.fails(2, &[&["drain"][..], arguments].concat());
    }
    assert_eq!(node.json(&["drain", "--status"])["state"], "serving");
    node.fails(77, &["drain", "--operator-token", "wrong"]);
    assert_eq!(node.json(&["drain", "--cancel"])["state"], "serving", "nothing to cancel is no error");
}

#[test]
fn a_waiting_command_reports_a_cancelled_drain() {
    let (_folder, node) = node();
    let mut devices = ["a", "b", "c", "d", "e", "f"].map(|user| device(&node, user, "1"));
    node.run(&["drain", "--rate", "1"]);
    let watch = |arguments: &[&str]| {
        let arguments = [&["drain", "--wait"], arguments].concat();
        node.command(&arguments).stderr(Stdio::piped()).spawn().expect("the binary")
    };
    let requests = |request: &str| {
        let metrics = get(&node.admin, "/metrics").1;
        metrics
            .contains(&format!("noroshi_http_requests_total{{route=\"{request}\",status=\"2xx\"}}"))
            .then_some(metrics)
    };
    let looking = watch(&["--status"]);
    until("the first look of who only watches", || requests("GET /v1/drain"));
    let ordering = watch(&["--rate", "1"]);
    until("the watcher's order", || {
        let metrics = requests("PUT /v1/drain")?;
        metrics.contains("{route=\"PUT /v1/drain\",status=\"2xx\"} 2\n").then_some(())
    });
    node.run(&["drain", "--cancel"]);
    for watcher in [looking, ordering] {
        let output = watcher.wait_with_output().expect("the child");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("the drain was cancelled"), "{}", text(&output));
    }
    node.run(&["drain", "--status", "--wait"]);
    for device in &mut devices {
        // They would keep listening.
        let _ = device.kill();
        let _ = device.wait();
    }
}

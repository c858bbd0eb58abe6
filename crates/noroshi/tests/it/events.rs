//! The event log of a running node: its files hold the whole history of a notification; a drained node loses
//! nothing and a killed one only what it had not written yet.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::node::{Node, until};

fn start(data: &Path, events: &Path) -> Node {
    Node::start_with(data, |command| {
        command.args(["--set", &format!("events.file.folder={}", events.display())]);
        command.args(["--set", "events.flush_interval=50ms"]);
    })
}

/// Every line must be complete: a truncated line of a killed node is repaired at the next start.
fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("events.ndjson")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn named<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

fn send(node: &Node, title: &str) -> String {
    let sent = node.json(&["send", "--user", "ann", "--title", title, "--when", "stored"]);
    sent["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_drained_node_has_exported_every_event() {
    let folder = tempfile::tempdir().expect("folder");
    let events = folder.path().join("events");
    let node = start(&folder.path().join("data"), &events);
    node.run(&["devices", "register", "--device", "phone", "--user", "ann"]);
    let ids: Vec<String> = (0..5).map(|n| send(&node, &format!("number {n}"))).collect();
    assert_eq!(node.stop(), Some(0));
    let lines = lines(&events);
    assert_eq!(lines[0]["event"], "started");
    let accepted: Vec<_> = named(&lines, "accepted").iter().map(|line| line["id"].clone()).collect();
    assert_eq!(accepted, ids);
    assert_eq!(named(&lines, "accepted")[0]["app"], "dev");
    assert_eq!(named(&lines, "routed").len(), 5);
    let registered = named(&lines, "registered");
    assert_eq!((&registered[0]["device_id"], &registered[0]["user"]), (&"phone".into(), &"ann".into()));
    let kept = named(&lines, "kept");
    assert_eq!(kept.len(), 5);
    for line in kept {
        assert_eq!(line["devices"], serde_json::json!([registered[0]["device"]]), "{line}");
    }
    let numbers: Vec<_> = lines.iter().filter_map(|line| line["n"].as_u64()).collect();
    assert!(numbers.into_iter().eq(1..=lines.len() as u64), "without a gap");
}

#[test]
fn explain_works_from_event_files_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let events = folder.path().join("events");
    let node = start(&folder.path().join("data"), &events);
    let listened = node.run(&["devices", "register", "--device", "phone", "--user", "ann"]);
    assert!(listened.contains("phone"));
    let id = send(&node, "for the phone");
    let mut listener = node
        .command(&["listen", "--device", "phone", "--user", "ann"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("a listener");
    until("the device to acknowledge", || {
        let lines = lines(&events);
        named(&lines, "acked").iter().any(|line| line["id"] == id.as_str()).then_some(())
    });
    listener.kill().expect("killed");
    listener.wait().expect("ended");
    until("the close event", || (!named(&lines(&events), "closed").is_empty()).then_some(()));
    assert_eq!(node.stop(), Some(0));
    let output = crate::node::noroshi()
        .args(["explain", &id, "phone", "--events"])
        .arg(&events)
        .output()
        .expect("the binary");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("text");
    let at = |word: &str| printed.find(word).unwrap_or_else(|| panic!("{word}: {printed}"));
    let order = ["accepted", "kept", "connected", "written", "acked", "closed"].map(at);
    assert!(order.is_sorted(), "{printed}");
}

#[test]
fn a_killed_node_loses_at_most_one_flush_interval() {
    let folder = tempfile::tempdir().expect("folder");
    let (data, events) = (folder.path().join("data"), folder.path().join("events"));
    let mut node = start(&data, &events);
    let before: BTreeSet<String> = (0..5).map(|n| send(&node, &format!("before {n}"))).collect();
    let are_written = |ids: &BTreeSet<String>| {
        let text = std::fs::read_to_string(events.join("events.ndjson")).unwrap_or_default();
        ids.iter().all(|id| text.contains(id.as_str()))
    };
    // One interval later it is in the file, even if the node is killed.
    until("the interval to end", || are_written(&before).then_some(()));
    let last: BTreeSet<String> = (0..5).map(|n| send(&node, &format!("last {n}"))).collect();
    node.signal("KILL");
    node.wait();
    let node = start(&data, &events);
    let after: BTreeSet<String> = (0..5).map(|n| send(&node, &format!("after {n}"))).collect();
    assert_eq!(node.stop(), Some(0));
    let lines = lines(&events);
    assert!(are_written(&before) && are_written(&after));
    let found: BTreeSet<String> =
        named(&lines, "accepted").iter().filter_map(|line| line["id"].as_str().map(str::to_owned)).collect();
    assert!(found.iter().all(|id| before.contains(id) || last.contains(id) || after.contains(id)));
    // Two starts without gaps: only the end of the first was lost.
    let runs: BTreeSet<u64> = lines.iter().filter_map(|line| line["run"].as_u64()).collect();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let of: Vec<u64> =
            lines.iter().filter(|line| line["run"] == run).filter_map(|line| line["n"].as_u64()).collect();
        assert!(of.iter().copied().eq(1..=of.len() as u64), "run {run}");
    }
}

#[test]
fn a_webhook_without_a_secret_is_rejected_before_listening() {
    let folder = tempfile::tempdir().expect("folder");
    let output = crate::node::noroshi()
        .args(["config", "check", "--set", "events.webhook.url=https://example.com/events"])
        .current_dir(folder.path())
        .output()
        .expect("the binary");
    assert_eq!(output.status.code(), Some(64));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("events.webhook.key_file") && printed.contains("whsec_"), "{printed}");
}

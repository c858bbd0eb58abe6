//! `noroshi doctor`: reports the capacity of this machine, with an exit code for scripts.

use serde_json::Value;

use crate::node::{Node, noroshi, text};

fn doctor(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("folder");
    let output =
        noroshi().arg("doctor").args(arguments).current_dir(folder.path()).output().expect("the binary");
    assert!(std::fs::read_dir(folder.path()).expect("folder").next().is_none(), "nothing is created");
    (output.status.code(), text(&output))
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name} is not in {report}"))
}

#[test]
fn required_devices_are_compared_with_the_capacity() {
    let (code, printed) = doctor(&["--connections", "10"]);
    assert_eq!(code, Some(0), "{printed}");
    for part in ["Required: 10 devices", "open files", "Current capacity:"] {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    let (code, printed) = doctor(&["--connections", "100000000", "--tls", "--proxy"]);
    assert_eq!(code, Some(1), "{printed}");
    for part in ["devices with TLS", "LimitNOFILE=100005000", "/etc/sysctl.d/90-noroshi.conf", "sysctl -w"] {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    let (code, printed) = doctor(&["--connections", "100000000", "--json"]);
    let report: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((code, &report["verdict"]), (Some(1), &"fail".into()));
    assert_eq!(report["limit_nofile"], 100_005_000);
    assert_eq!(check(&report, "open files")["verdict"], "fail");
    assert!(report["room"]["devices"].as_u64().is_some_and(|devices| devices > 0), "{report}");
}

#[test]
fn invalid_flags_are_usage_errors_and_configuration_problems_are_listed() {
    for connections in ["0", "-1", "many", "100000001"] {
        assert_eq!(doctor(&[&format!("--connections={connections}")]).0, Some(2));
    }
    let (code, printed) = doctor(&["--set", "gateway.drain.rate=0"]);
    assert_eq!(code, Some(64), "{printed}");
    assert_eq!(doctor(&["--server", "ftp://example.com"]).0, Some(2));
    assert_eq!(doctor(&["--server", "http://127.0.0.1:1"]).0, Some(69));
}

#[test]
fn a_file_is_rejected_as_data_folder() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    let output = noroshi().args(["doctor", "--connections", "10", "--data"]).arg(&file).output();
    let output = output.expect("the binary");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("is not a folder"), "{}", text(&output));
}

#[test]
fn a_running_node_is_checked_with_its_own_limits_and_clock() {
    let folder = tempfile::tempdir().expect("folder");
    let data = folder.path().join("data");
    let node = Node::start(&data);
    let shown = data.to_str().expect("UTF-8");
    let output = noroshi()
        .args(["doctor", "--json", "--data", shown, "--connections", "10", "--server", &node.http])
        .output();
    let output = output.expect("the binary");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    assert_eq!(output.status.code(), Some(0), "{report}");
    let files = check(&report, "open files")["found"].as_str().expect("text").to_owned();
    assert!(files.contains(&format!("of the running node ({})", node.pid())), "{files}");
    assert_eq!(check(&report, "clock of the server")["verdict"], "ok");
    assert_eq!(check(&report, "privacy of the data")["verdict"], "ok");
    assert!(check(&report, "disk")["found"].as_str().expect("text").contains("ms per sync"), "{report}");
    assert!(!data.join("noroshi.doctor").exists(), "the test file is removed");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_node_logs_its_capacity_at_start() {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start_with(&folder.path().join("data"), |command| {
        command.args(["--set", "gateway.connections_max=123"]);
    });
    let printed = "apacity: 123 connections (limited by gateway.connections_max); next limit: ";
    assert!(node.screen().contains(&format!("C{printed}")), "{}", node.screen());
    assert!(node.log().contains(&format!("c{printed}")), "{}", node.log());
    assert_eq!(node.stop(), Some(0));
}

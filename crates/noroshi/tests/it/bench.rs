//! An interrupted `noroshi bench` leaves nothing behind; a killed one leaves its folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::node::{noroshi, text, until};

fn folders(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).expect("the place");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn a_signal_stops_the_benchmark_server_and_removes_its_folder() {
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
        let place = tempfile::tempdir().expect("folder");
        let mut bench = noroshi()
            .args(["bench", "idle", "--counts", "1,2", "--duration", "10m", "--data"])
            .arg(place.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary");
        let admin = until("the server", || {
            assert!(bench.try_wait().expect("the child").is_none(), "exited early");
            let addresses = folders(place.path()).pop()?.join("data/addresses.json");
            let addresses: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(addresses).ok()?).ok()?;
            Some(addresses["admin"].as_str().expect("an address").to_owned())
        });
        let kill = Command::new("kill").arg(format!("-{signal}")).arg(bench.id().to_string()).status();
        assert!(kill.expect("kill").success());
        let status = until("the end", || bench.try_wait().expect("the child"));
        assert_eq!(status.code(), code, "{signal}");
        let address = admin.strip_prefix("http://").expect("plain HTTP");
        let is_gone = || std::net::TcpStream::connect(address).is_err();
        if code.is_some() {
            assert!(is_gone(), "{signal} leaves the server");
            assert!(folders(place.path()).is_empty(), "{signal} leaves {:?}", folders(place.path()));
        }
        until("the server's end", || is_gone().then_some(()));
    }
}

/// Results of a benchmark by key.
fn measured(arguments: &[&str], figure: &str) -> f64 {
    let output = noroshi()
        .args(["bench"])
        .args(arguments)
        .args(["--repeat", "1", "--settle", "0s", "--json"])
        .output();
    let output = output.expect("the binary");
    assert!(output.status.success(), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let found = figures.iter().find(|one| one["key"] == figure);
    found.and_then(|one| one["median"].as_f64()).unwrap_or_else(|| panic!("no {figure} in {report:#}"))
}

#[test]
fn each_push_reaches_the_fake_service_once() {
    let arguments = ["push", "--experiment", "--messages", "10", "--latency", "20ms:80ms"];
    assert_eq!(measured(&arguments, "100_pushes_errors"), 0.0);
    assert_eq!(measured(&["push", "--pushes", "300"], "pushes_that_were_doubled"), 0.0);
}

#[test]
fn a_campaign_reaches_each_device_once_and_yields_to_notifications() {
    let arguments = ["campaign", "--devices", "2000", "--breaking", "--latency", "20ms"];
    assert_eq!(measured(&arguments, "devices_that_got_none"), 0.0);
}

#[test]
fn every_device_of_an_activity_gets_its_last_state() {
    let arguments = [
        "activities",
        "--devices",
        "1200",
        "--activities",
        "2",
        "--interval",
        "200ms",
        "--duration",
        "1s",
        "--latency",
        "20ms",
    ];
    assert_eq!(measured(&arguments, "devices_that_got_none"), 0.0);
}

//! Mass disconnects, mass reconnects, and slow devices.

use std::time::Duration;

use super::fake::{API_KEY, Behaviour, FakeServer};
use super::{measure, run, values};
use crate::Error;
use crate::crew::Crew;
use crate::engine::Setup;
use crate::http::Origin;
use crate::jwt::Signer;
use crate::payload::Names;

#[test]
fn lost_device_is_the_one_that_reconnects() {
    let server = FakeServer::start(Behaviour::Well);
    let setup = Setup {
        homes: Vec::new(),
        spare_homes: 0,
        providers: Vec::new(),
        origin: Origin::parse(&format!("http://{}", server.address)).unwrap(),
        names: Names { prefix: "b".to_owned() },
        signer: Signer::new("s", "dev"),
        api_key: API_KEY.to_owned(),
        topic: None,
        dialect: crate::dialect::Dialect::Native,
        sources_start: 0,
    };
    let mut crew = Crew::start(1, &setup).unwrap();
    let timeout = Duration::from_secs(30);
    crew.connect(3, 3, timeout).unwrap();
    server.end("b-1");
    // A report of a loss may come first.
    loop {
        crew.receive(0, Duration::ZERO).unwrap();
        if !crew.received().unwrap().disconnected.is_empty() {
            break;
        }
    }
    crew.connect(3, 3, timeout).unwrap();
    server.wait_for("all three to be there", |counts| (counts.logged_in, counts.open) == (4, 3));
    server.end("b-1");
}

#[test]
fn server_is_clean_once_it_reports_no_connections() {
    let server = FakeServer::start(Behaviour::Well);
    let line =
        format!("disconnect --connections 20 --processes 2 --repeat 2 --admin http://{}", server.address);
    let report = measure(&server, &line).unwrap();
    let clean = values(&report, "time until clean");
    assert_eq!(clean.len(), 2);
    assert!(clean.iter().zip(values(&report, "time the client took to close")).all(|(all, own)| all >= own));
    assert_eq!(values(&report, "store commits"), [0.0, 0.0]);
    assert_eq!(server.logged_in(), 40, "the second repetition has devices again");
}

#[test]
fn unobservable_server_is_not_measured() {
    let server = FakeServer::start(Behaviour::Well);
    let error =
        measure(&server, "disconnect --connections 2 --repeat 1").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("--admin"), "{error}");
    let line = format!("disconnect --connections 2 --repeat 1 --websocket ws://{}/", server.address);
    let error = run(&line).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("--pid"), "{error}");
    assert_eq!(server.logged_in(), 0);
}

#[test]
fn storm_reconnects_all_and_steady_devices_lose_nothing() {
    let server = FakeServer::start(Behaviour::Crowded);
    let line =
        "storm --connections 15 --steady 6 --targets 3 --rate 50 --before 500ms --processes 2 --repeat 1";
    let report = measure(&server, line).unwrap();
    assert_eq!(server.logged_in(), 6 + 2 * 15);
    assert_eq!(values(&report, "attempts told to come back, Retry-After"), [15.0]);
    assert_eq!(values(&report, "attempts that broke"), [0.0]);
    assert_eq!(values(&report, "deliveries lost"), [0.0]);
    assert_eq!(values(&report, "connections lost that were to stay"), [0.0]);
    assert!(values(&report, "time until all are back")[0] >= 1.0, "they wait as long as they are told");
    assert!(values(&report, "delivery latency before, p99")[0] > 0.0);
    let during = values(&report, "deliveries during the storm")[0];
    assert!(during > 0.0 && (during as u64) < server.published().1);
}

#[test]
fn invalid_storm_options_are_named() {
    let server = FakeServer::start(Behaviour::Well);
    for (line, option) in [
        ("--steady 6 --targets 7", "--steady"),
        ("--at-once 0", "--at-once"),
        ("--rate 0", "--rate"),
        ("--before 0s", "--before"),
        ("--patience 31m", "--patience"),
        ("--connections 0", "device"),
    ] {
        let error = measure(&server, &format!("storm {line}")).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(option), "{option} in: {error}");
    }
    assert_eq!(server.logged_in(), 0);
}

#[test]
fn storm_without_full_recovery_fails() {
    let server = FakeServer::start(Behaviour::Crowded);
    let line = "storm --connections 4 --steady 2 --targets 1 --before 100ms --patience 300ms --repeat 1";
    let error = measure(&server, line).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NotConnected { wanted: 4, connected: 0, .. }), "{error}");
}

#[test]
fn healthy_devices_are_counted_and_slow_ones_are_not() {
    let server = FakeServer::start(Behaviour::Well);
    let line = "slow --connections 12 --silent-share 0.25 --sipping-share 0.25 --rate 20 --duration 500ms \
                --linger 200ms --payload 100 --processes 2 --repeat 1";
    let report = measure(&server, line).unwrap();
    // A second of warm-up and half a second, to six devices; then half a second to all twelve. Six had
    // disconnected, which the server may notice only when it writes to them.
    let written = 6 * (20 + 10) + 12 * 10;
    assert!((written..=written + 6).contains(&server.published().1), "{:?}", server.published());
    assert_eq!(values(&report, "deliveries lost without slow peers"), [0.0]);
    assert_eq!(values(&report, "deliveries lost beside slow peers"), [0.0]);
    assert_eq!(values(&report, "slow peers"), [6.0]);
    assert_eq!(values(&report, "slow peers closed as slow_consumer"), [0.0]);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn shares_without_healthy_or_slow_devices_are_rejected() {
    let server = FakeServer::start(Behaviour::Well);
    for (shares, part) in [
        ("--silent-share 0.5 --sipping-share 0.5", "healthy"),
        ("--silent-share 0 --sipping-share 0", "slow"),
        ("--silent-share 1.5", "0 to 1"),
        ("--rate 0.5", "--rate"),
    ] {
        let error = measure(&server, &format!("slow --connections 10 {shares}")).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn tls_is_measured_if_enabled() {
    let server = FakeServer::start(Behaviour::Well);
    for (line, part) in [("tls", "https://"), ("tls --counts 5", "--counts"), ("tls --count 0", "--count")] {
        let error = measure(&server, line).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

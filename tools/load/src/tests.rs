//! The load generator against a small fake server in this process: real sockets, small numbers, exact counts.

mod fake;
mod foreign;
mod homing;
mod push;
mod stress;
mod tls;

use clap::Parser;

use crate::args::{Args, Scenario};
use crate::report::ReportDocument;
use crate::{Error, scenario};
use fake::{Behaviour, FakeServer};
use foreign::ForeignServer;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Not a test: [`crate::crew`] runs this executable with this test name.
#[test]
#[ignore = "the worker process of other tests"]
fn worker_process_for_other_tests() {
    let output = std::fs::File::options().write(true).open("/proc/self/fd/3").unwrap();
    crate::worker::run(std::io::stdin(), output).unwrap();
}

/// Not a test: [`crate::target`] runs this executable with this test name.
#[test]
#[ignore = "the floor of other tests"]
fn floor_process_for_other_tests() {
    let told = std::env::var("NOROSHI_BENCH_FLOOR").unwrap();
    let (listen, deliveries) = told.split_once(' ').unwrap();
    crate::floor::run(listen.parse().unwrap(), deliveries.parse().unwrap()).unwrap();
}

fn measure(server: &FakeServer, line: &str) -> Result<ReportDocument, Error> {
    let server = format!("--server http://{} --key {} --jwt-secret s", server.address, fake::API_KEY);
    run(&format!("{line} {server}"))
}

fn run(line: &str) -> Result<ReportDocument, Error> {
    let line = format!("bench {line} --settle 0s");
    match Cli::parse_from(line.split_whitespace()).args.scenario {
        Scenario::Direct(args) => scenario::direct::run(&args),
        Scenario::Broadcast(args) => scenario::broadcast::run(&args),
        Scenario::Stored(args) => scenario::stored::run(&args),
        Scenario::Connect(args) => scenario::connect::run(&args),
        Scenario::Idle(args) => scenario::idle::run(&args),
        Scenario::Disconnect(args) => scenario::disconnect::run(&args),
        Scenario::Storm(args) => scenario::storm::run(&args),
        Scenario::Slow(args) => scenario::slow::run(&args),
        Scenario::Tls(args) => scenario::tls::run(&args),
        Scenario::Push(args) => scenario::push::run(&args),
        Scenario::Campaign(args) => scenario::campaign::run(&args),
        Scenario::Activities(args) => scenario::activities::run(&args),
        Scenario::Homing(args) => scenario::homing::run(&args),
        Scenario::Million(args) => {
            scenario::million::run(&args).map(|report| report.expect("not only a plan"))
        }
        Scenario::Events(args) => scenario::events::run(&args),
        Scenario::Me(args) => scenario::me::run(&args),
        Scenario::Tenants(args) => scenario::tenants::run(&args).map(|(report, _)| report),
        Scenario::Floor(_) | Scenario::Worker | Scenario::Bound(_) => panic!("no measurement"),
    }
}

fn values<'a>(report: &'a ReportDocument, name: &str) -> &'a [f64] {
    let figure = report.figures.iter().find(|figure| figure.name == name);
    &figure.unwrap_or_else(|| panic!("no figure {name} in {:?}", report.figures)).values
}

#[test]
fn direct_counts_every_delivery_and_loses_none() {
    let server = FakeServer::start(Behaviour::Well);
    let line = "direct --connections 20 --targets 10 --connected-share 0.5 --payload 200 --in-flight 4 \
                --processes 2 --warm-up 100ms --duration 1s --repeat 2";
    let report = measure(&server, line).unwrap();
    assert_eq!(values(&report, "deliveries lost"), [0.0, 0.0]);
    for (deliveries, requests) in values(&report, "deliveries").iter().zip(values(&report, "requests")) {
        assert!(*requests > 0.0 && *deliveries > 0.0);
    }
    assert!(values(&report, "delivery latency p50")[0] > 0.0);
    // Half of the ten targets are connected, with one device each.
    let (requests, written) = server.published();
    assert_eq!(written, requests * 5);
    assert_eq!(server.registered(), 20);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn rate_is_independent_of_the_server() {
    let server = FakeServer::start(Behaviour::Well);
    let line = "direct --connections 4 --targets 2 --rate 100 --warm-up 0s --duration 1s --repeat 1";
    let report = measure(&server, line).unwrap();
    let requests = server.published().0;
    assert!(
        (95..=100).contains(&requests) || !report.notes.is_empty(),
        "{requests} requests, {:?}",
        report.notes
    );
}

#[test]
fn stored_messages_are_acked() {
    let server = FakeServer::start(Behaviour::Well);
    let line = "direct --connections 4 --targets 2 --connected-share 1 --when stored --warm-up 0s --duration 300ms \
                --repeat 1";
    measure(&server, line).unwrap();
    let written = server.published().1;
    server.wait_for("every message to be acked", |counts| counts.acked == written);
}

#[test]
fn undelivered_messages_are_reported() {
    let server = FakeServer::start(Behaviour::Deaf);
    let line = "direct --connections 4 --targets 2 --connected-share 1 --in-flight 2 --warm-up 0s --duration 300ms \
                --repeat 1";
    let report = measure(&server, line).unwrap();
    assert!(values(&report, "deliveries lost")[0] > 0.0);
}

#[test]
fn rejected_devices_and_closed_connections_reconnect() {
    let server = FakeServer::start(Behaviour::Moody);
    let line = "direct --connections 6 --targets 2 --connected-share 1 --in-flight 2 --rate 50 --warm-up 0s \
                --duration 500ms --repeat 1";
    let report = measure(&server, line).unwrap();
    assert_eq!(server.logged_in(), 6);
    assert_eq!(values(&report, "deliveries lost"), [0.0]);
    let (requests, written) = server.published();
    assert!(requests > 2 && written == requests * 2, "{requests} requests, {written} frames");
    assert!(!report.notes.iter().any(|note| note.contains("rejected requests")), "{:?}", report.notes);
}

#[test]
fn rejections_are_named() {
    let server = FakeServer::start(Behaviour::Busy);
    let line = "direct --connections 4 --targets 2 --warm-up 0s --duration 200ms --repeat 1";
    let error = measure(&server, line).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NothingAccepted { .. }), "{error}");
    assert!(error.to_string().contains("HTTP 503 busy"), "{error}");
}

#[test]
fn rejected_token_fails_at_once_with_advice() {
    let server = FakeServer::start(Behaviour::Strict);
    let error = measure(&server, "connect --connections 30").map(|_| ()).unwrap_err().to_string();
    for part in ["of 30", "HTTP 401 unauthorized", "--jwt-secret"] {
        assert!(error.contains(part), "{part} in: {error}");
    }
}

#[test]
fn broadcast_reaches_every_device_in_every_round() {
    for messages in [1, 5] {
        let server = FakeServer::start(Behaviour::Well);
        let line = format!("broadcast --connections 15 --messages {messages} --rounds 3 --repeat 2");
        let report = measure(&server, &line).unwrap();
        assert_eq!(values(&report, "deliveries").len(), 2);
        // Two rounds of warm-up and two repetitions of three.
        assert_eq!(server.published().1, 15 * (2 + 6) * messages);
    }
}

#[test]
fn stored_counts_rows_by_request_and_target() {
    let server = FakeServer::start(Behaviour::Well);
    let line =
        "stored --devices 50 --targets 10 --in-flight 4 --rate 500 --warm-up 0s --duration 300ms --repeat 1";
    let report = measure(&server, line).unwrap();
    let (rows, requests) = (values(&report, "inbox rows accepted")[0], values(&report, "requests")[0]);
    assert!(rows > 0.0 && (rows / requests - 10.0).abs() < 1e-9);
    assert_eq!((server.registered(), server.published().1), (50, 0));
    assert!(report.notes.iter().any(|note| note.contains("found in the inboxes")), "{:?}", report.notes);
}

#[test]
fn accepted_but_missing_rows_are_reported() {
    let server = FakeServer::start(Behaviour::Deaf);
    let line =
        "stored --devices 50 --targets 10 --in-flight 4 --rate 500 --warm-up 0s --duration 300ms --repeat 1";
    let error = measure(&server, line).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NotKept { kept: 0, accepted: 1.. }), "{error}");
}

#[test]
fn every_round_of_connect_logs_all_devices_in_again() {
    let server = FakeServer::start(Behaviour::Well);
    let report = measure(&server, "connect --connections 12 --handshakes 5 --repeat 2").unwrap();
    assert_eq!(values(&report, "log-ins").len(), 2);
    assert_eq!(server.logged_in(), 36, "the first log-ins make the devices");
}

#[test]
fn idle_holds_its_connections_and_answers_pings() {
    let server = FakeServer::start(Behaviour::Well);
    let line = format!("idle --counts 5,10 --duration 300ms --pid {}", std::process::id());
    let report = measure(&server, &line).unwrap();
    assert_eq!(values(&report, "connections lost"), [0.0]);
    assert_eq!(values(&report, "memory per idle connection").len(), 1);
    assert_eq!(server.logged_in(), 10);
    server.wait_for("a pong from every device", |counts| counts.pongs == 10);
}

#[test]
fn floor_is_measured_alternately_and_shown_as_a_ratio() {
    let server = FakeServer::start(Behaviour::Well);
    let pid = std::process::id();
    for (line, figure) in [
        (
            "direct --connections 20 --targets 10 --in-flight 4 --processes 2 --warm-up 100ms --duration 500ms",
            "deliveries",
        ),
        ("broadcast --connections 15 --messages 3 --rounds 2 --processes 2", "time to reach all"),
        ("connect --connections 12", "log-ins"),
    ] {
        let report = measure(&server, &format!("{line} --repeat 2 --floor --pid {pid}")).unwrap();
        let figure = report.figures.iter().find(|of| of.name == figure).unwrap();
        let (floor, ratio) = (figure.floor.as_ref().unwrap(), figure.ratio.as_ref().unwrap());
        assert_eq!((figure.values.len(), floor.values.len(), ratio.values.len()), (2, 2, 2), "{line}");
        assert!((ratio.values[1] - figure.values[1] / floor.values[1]).abs() < 1e-9);
        assert!(report.table().contains("ratio"));
        if let Some(lost) = report.figures.iter().find(|of| of.name == "deliveries lost") {
            assert_eq!(
                (&lost.values[..], &lost.floor.as_ref().unwrap().values[..]),
                (&[0.0; 2][..], &[0.0; 2][..])
            );
        }
    }
    let report =
        measure(&server, &format!("idle --counts 5,10 --duration 300ms --floor --pid {pid}")).unwrap();
    let lost = report.figures.iter().find(|of| of.name == "connections lost").unwrap();
    assert_eq!(lost.floor.as_ref().unwrap().values, [0.0]);
}

#[test]
fn foreign_server_is_driven_with_its_own_frames() {
    let server = ForeignServer::start();
    let at = format!(
        "--websocket ws://{}/chat?as={{device}} --hello name:{{device}} --hello join --ready joined --answer 2=3",
        server.address
    );
    let post = format!(
        "--publish-url http://{}/all --publish-header X-Key:k --publish-body <{{data}}>",
        server.address
    );
    for (publish, messages) in [("--publish-body say:{data}", 1), (post.as_str(), 1), (post.as_str(), 3)] {
        let line = format!(
            "broadcast --connections 12 --processes 2 --messages {messages} --rounds 3 --repeat 2 {at} {publish}"
        );
        let report = run(&line).unwrap();
        assert_eq!(values(&report, "deliveries").len(), 2);
        assert!(values(&report, "delivery latency p50")[0] > 0.0);
    }
    let report =
        run(&format!("connect --connections 9 --repeat 2 {at} --pid {}", std::process::id())).unwrap();
    assert_eq!(values(&report, "log-ins").len(), 2);
    assert!(!report.figures.iter().any(|figure| figure.name.starts_with("first log-ins")));
    let report = run(&format!("idle --counts 5,10 --duration 300ms {at}")).unwrap();
    assert_eq!(values(&report, "connections lost"), [0.0]);
    assert!(server.pings_answered() >= 10);
}

#[test]
fn publishing_to_a_foreign_server_must_be_configured() {
    let server = ForeignServer::start();
    let error = run(&format!("broadcast --connections 2 --websocket ws://{}/", server.address))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(&error, Error::Usage(text) if text.contains("--publish-body")), "{error}");
}

#[test]
fn server_that_rejects_all_devices_fails_early() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = FakeServer::start(Behaviour::Drained);
    for (address, told) in [(free, "connection refused"), (server.address, "HTTP 503 unavailable")] {
        let line = format!("connect --connections 5000 --server http://{address} --key k --jwt-secret s");
        let started = std::time::Instant::now();
        let Err(Error::NotConnected { connected: 0, reasons, .. }) = run(&line) else { panic!("{told}") };
        // Without giving up early it would take 50 s.
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
        let attempts = reasons.split_once("x ").and_then(|(text, _)| text.rsplit(' ').next());
        let attempts: u64 = attempts.and_then(|count| count.parse().ok()).unwrap();
        assert!(reasons.contains(told) && attempts < 5_000, "{reasons}");
    }
}

#[test]
fn unreachable_server_is_reported() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("bench stored --devices 1 --targets 1 --server http://{free} --key k --jwt-secret s");
    let Scenario::Stored(args) = Cli::parse_from(line.split_whitespace()).args.scenario else {
        panic!("stored")
    };
    let error = scenario::stored::run(&args).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

//! The push client against the strict fake, in this process.

use clap::Parser as _;

use super::{Cli, run, values};
use crate::Error;

#[test]
fn experiment_measures_each_size_without_loss() {
    let line = "push --experiment --messages 5,10 --users 10 --latency 20ms:60ms --repeat 2";
    let report = run(line).unwrap();
    for size in ["50", "100"] {
        let figure = |name: &str| values(&report, &format!("{size} pushes: {name}"))[0];
        assert_eq!(figure("errors"), 0.0, "{:?}", report.notes);
        assert_eq!(figure("pushes that were doubled"), 0.0);
        assert_eq!(figure("connections reset or failed"), 0.0);
        assert!((1.0..=4.0).contains(&figure("connections")));
        let time = |name: &str| figure(&format!("dequeue to answer, {name}"));
        assert!(time("min") > 0.0 && time("min") <= time("median") && time("median") <= time("p99"));
        assert!(time("p99") <= time("max") && figure("client CPU per push") > 0.0);
    }
}

#[test]
fn late_responses_are_reported_separately() {
    let line = "push --experiment --messages 20 --users 10 --latency 5ms --late 10%:700ms --repeat 1";
    let report = run(line).unwrap();
    let time = |name: &str| values(&report, &format!("200 pushes: dequeue to answer, {name}"))[0];
    assert!(time("max") >= 700.0, "{:?}", report.figures);
    assert!(time("median, without the late ones") < time("max"));
    assert_eq!(values(&report, "200 pushes: errors"), [0.0]);
}

#[test]
fn throughput_counts_accepted_pushes() {
    let report = run("push --pushes 500 --cold --repeat 1").unwrap();
    assert!(values(&report, "pushes a second")[0] > 0.0);
    assert_eq!(values(&report, "errors"), [0.0], "{:?}", report.notes);
}

#[test]
fn each_service_accepts_every_push() {
    for service in ["fcm", "webpush", "hms", "wns"] {
        let report = run(&format!("push --pushes 200 --service {service} --repeat 2")).unwrap();
        for name in ["errors", "pushes that were doubled", "connections reset or failed"] {
            assert_eq!(values(&report, name), [0.0, 0.0], "{service}: {name}, {:?}", report.notes);
        }
        assert!(values(&report, "client CPU per push")[0] > 0.0);
        let notes = report.notes.join("\n");
        assert_eq!(notes.contains("200 subscriptions of one origin"), service == "webpush", "{notes}");
        assert_eq!(notes.contains("FCM's rate"), service == "fcm", "{notes}");
    }
}

#[test]
fn late_pushes_of_each_service_are_found() {
    for service in ["fcm", "webpush", "wns"] {
        let line = "push --experiment --messages 10 --users 10 --latency 5ms --late 20%:700ms --repeat 1";
        let report = run(&format!("{line} --service {service}")).unwrap();
        let time = |name: &str| values(&report, &format!("100 pushes: dequeue to answer, {name}"))[0];
        assert!(time("max") >= 700.0, "{service}: {:?}", report.figures);
        assert!(time("median, without the late ones") < time("max"), "{service}: {:?}", report.figures);
    }
}

#[test]
fn options_of_a_receiver_of_apns_are_refused_for_others() {
    let error =
        run("push --pushes 5 --service fcm --server https://localhost:1 --ca-file ca.pem").unwrap_err();
    assert!(error.to_string().contains("--server is for --service apns only"), "{error}");
    for (line, told) in [
        ("push --pushes 5 --service fcm --topic com.example.other", "--server"),
        ("push --pushes 5 --service webpush --key-file key.p8", "--server"),
        ("push --pushes 5 --service webhook", "possible values: apns, fcm, webpush, hms, wns"),
    ] {
        let Err(error) = Cli::try_parse_from(format!("bench {line}").split_whitespace()) else {
            panic!("{line} was accepted");
        };
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn unreachable_receiver_is_reported() {
    let folder = std::env::temp_dir().join(format!("noroshi-load-push-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = crate::tls::OwnCertificate::make(&folder).unwrap();
    let ca = own.certificate.display().to_string();
    let port = crate::server::free_port().unwrap();
    let line = format!(
        "push --pushes 5 --server https://localhost:{port} --ca-file {ca} --patience 2s --repeat 1 --cold"
    );
    let result = run(&line);
    std::fs::remove_dir_all(&folder).unwrap();
    let error = result.unwrap_err();
    let told = matches!(error, Error::NothingAccepted { .. } | Error::NotDelivered { missing: 5, .. });
    assert!(told, "{error}");
}

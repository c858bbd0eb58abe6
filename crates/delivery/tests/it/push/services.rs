//! The whole way to a push service: a sealed credential, the pools, HTTP/2 over TLS, and a strict fake.

use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::Egress;
use noroshi_push::Services;
use noroshi_store::{Credentials, Devices, NewCredential, Registration};
use noroshi_testkit::behaviour::{Act, Change, Scripted};
use noroshi_testkit::tokens::NewDevices;
use noroshi_testkit::{Fakes, Service};
use noroshi_types::{
    JsonText, Outcome, PushEnvironment, PushMode, PushService, PushToken, Target, Ttl, UserId, When,
};

use super::{Bench, config, open_with, pushed, registration, users};

struct Stand {
    bench: Bench,
    fakes: Fakes,
    services: Arc<Services>,
    tokens: Vec<serde_json::Value>,
    _folder: tempfile::TempDir,
}

async fn stand(devices: usize) -> Stand {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("fakes");
    std::fs::create_dir(&keys).expect("a folder");
    let fakes = noroshi_testkit::Config { folder: Some(keys), ..Default::default() };
    let fakes = Fakes::start_with(fakes).expect("fakes");
    let ca =
        noroshi_egress::read_ca_file(fakes.ca_file().expect("kept in the folder")).expect("a certificate");
    let allow = vec!["127.0.0.0/8".parse().expect("a network"), "::1/128".parse().expect("a network")];
    let egress = noroshi_egress::Config { allow, ca, ..Default::default() };
    let egress = Arc::new(Egress::new(egress).expect("a way out"));
    let mut registry = noroshi_telemetry::registry();
    let runtime = tokio::runtime::Handle::current();
    let services = Services::new(noroshi_push::Config::default(), egress, &mut registry, runtime);
    let bench = open_with(folder.path(), services.clone(), config()).await;
    let new = NewDevices {
        service: Service::Fcm,
        count: devices,
        ..serde_json::from_value(serde_json::json!({"service": "fcm"})).expect("devices")
    };
    let tokens = fakes.make_devices(&new).expect("tokens");
    let registrations = tokens.iter().enumerate().map(|(n, token)| Registration {
        push_token: Some(PushToken {
            service: PushService::Fcm,
            environment: PushEnvironment::Production,
            json: JsonText::from_valid(token.to_string()),
        }),
        ..registration(&format!("u{n}"), &[])
    });
    let now = bench.delivery.clock().now();
    bench.store.register(bench.app, registrations.collect(), now).await.expect("registered");
    Stand { bench, fakes, services, tokens, _folder: folder }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_is_kept_used_and_tried_and_pushes_arrive() {
    let Stand { bench, fakes, services, tokens, _folder } = stand(20).await;
    let everyone = || pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO);
    let early = bench.publish(everyone()).await;
    bench.until(early, Outcome::PushUnconfigured, 20).await;

    let body = fakes.credential(Service::Fcm).to_string();
    let view = bench.delivery.put_credential(bench.app, body.as_bytes(), false).await.expect("kept");
    assert!(!view.shown.as_str().contains("PRIVATE KEY"));
    let again = bench.delivery.put_credential(bench.app, body.as_bytes(), false).await;
    assert!(again.is_err(), "there is one already");
    bench.delivery.put_credential(bench.app, body.as_bytes(), true).await.expect("replaced");
    let token = PushToken {
        service: PushService::Fcm,
        environment: PushEnvironment::Production,
        json: JsonText::from_valid(tokens[0].to_string()),
    };
    let tested = bench.delivery.test_credential(bench.app, view.id, token).await.expect("tried");
    assert_eq!((tested.answer, tested.reason), ("accepted", None));

    let id = bench.publish(everyone()).await;
    bench.until(id, Outcome::Pushed, 20).await;
    assert_eq!(fakes.received(Service::Fcm).len(), 21);

    bench.delivery.delete_credential(bench.app, view.id).await.expect("deleted");
    let late = bench.publish(everyone()).await;
    bench.until(late, Outcome::PushUnconfigured, 20).await;
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_a_service_become_outcomes_and_a_ttl_of_nothing_is_tried_once() {
    let Stand { bench, fakes, services, tokens, _folder } = stand(3).await;
    let body = fakes.credential(Service::Fcm).to_string();
    bench.delivery.put_credential(bench.app, body.as_bytes(), false).await.expect("kept");
    let token = |n: usize| tokens[n]["token"].as_str().expect("a token").to_owned();
    let script = |status, reason: &str| Scripted {
        after: 0,
        count: None,
        act: Act::Answer,
        status,
        reason: reason.to_owned(),
        timestamp: None,
        retry_after_s: None,
    };
    let scripts = [(token(0), script(404, "UNREGISTERED")), (token(1), script(400, "INVALID_ARGUMENT"))];
    let change = Change { service: Some(Service::Fcm), tokens: scripts.into(), ..Change::default() };
    fakes.behave(change).expect("a script");
    let now_or_never = noroshi_types::Request {
        ttl: Ttl::new(Duration::ZERO).expect("a ttl"),
        ..pushed(users(&["u0", "u1", "u2"]), When::Connected, PushMode::Always, Duration::ZERO)
    };
    let id = bench.publish(now_or_never).await;
    bench.until(id, Outcome::Pushed, 1).await;
    bench.until(id, Outcome::PushTokenGone, 1).await;
    let settled = bench.counts(id).await.iter().map(|(_, count)| count).sum::<u64>();
    assert!(settled >= 3, "{:?}", bench.counts(id).await);
    let user = UserId::parse("u0").expect("an id");
    let filter = noroshi_store::DeviceFilter { user: Some(user), limit: 1, ..Default::default() };
    let device = bench.store.devices(bench.app, filter).await.expect("read").remove(0);
    assert_eq!(device.push_token, None);
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_credential_that_does_not_open_is_for_waits() {
    let Stand { bench, fakes, services, tokens: _, _folder } = stand(3).await;
    let sealed_elsewhere = NewCredential {
        app: bench.app,
        service: PushService::Fcm,
        environment: PushEnvironment::Production,
        name: String::new(),
        shown: JsonText::from_valid("{}"),
        sealed: vec![1; 60],
        replace: false,
    };
    let now = bench.delivery.clock().now();
    bench.store.put_credential(sealed_elsewhere, now).await.expect("kept");
    bench.delivery.load_credentials().await.expect("looked at");
    // It waits longer than this lives: expired, not said to have no credential.
    let brief = noroshi_types::Request {
        ttl: Ttl::new(Duration::from_secs(20)).expect("a ttl"),
        ..pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO)
    };
    let id = bench.publish(brief.clone()).await;
    bench.until(id, Outcome::PushExpired, 3).await;

    let body = fakes.credential(Service::Fcm).to_string();
    bench.delivery.put_credential(bench.app, body.as_bytes(), true).await.expect("replaced");
    let id = bench.publish(brief).await;
    bench.until(id, Outcome::Pushed, 3).await;
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

//! The complete path to a push service: a sealed credential, the pools, HTTP/2 over TLS, and a strict fake.

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::push::Rotated;
use noroshi_egress::Egress;
use noroshi_push::Services;
use noroshi_store::{Credentials, Devices, NewCredential, NewToken, Registration, TokenChange};
use noroshi_telemetry::span::{Sampling, Span, Spans, Value};
use noroshi_testkit::behaviour::{Act, Change, Scripted};
use noroshi_testkit::tokens::NewDevices;
use noroshi_testkit::{Fakes, Service};
use noroshi_types::trace::TraceContext;
use noroshi_types::{
    JsonText, Outcome, OwnFields, PushEnvironment, PushMode, PushService, PushToken, Target, TokenKey, Ttl,
    UserId, When,
};

use super::{Bench, config, open_with, push, pushed, registration, users};

struct Stand {
    bench: Bench,
    fakes: Fakes,
    services: Arc<Services>,
    tokens: Vec<serde_json::Value>,
    _folder: tempfile::TempDir,
}

async fn stand(devices: usize) -> Stand {
    stand_with(devices, config()).await
}

async fn stand_with(devices: usize, config: push::Config) -> Stand {
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
    let bench = open_with(folder.path(), services.clone(), config).await;
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
async fn a_credential_is_stored_used_and_tested() {
    let Stand { bench, fakes, services, tokens, _folder } = stand(20).await;
    let everyone = || pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO);
    let early = bench.publish(everyone()).await;
    bench.until(early, Outcome::PushUnconfigured, 20).await;

    let body = fakes.credential(Service::Fcm).to_string();
    let view = bench.credentials().put(bench.app, body.as_bytes(), false).await.expect("kept");
    assert!(!view.shown.as_str().contains("PRIVATE KEY"));
    let again = bench.credentials().put(bench.app, body.as_bytes(), false).await;
    assert!(again.is_err(), "there is one already");
    bench.credentials().put(bench.app, body.as_bytes(), true).await.expect("replaced");
    let token = PushToken {
        service: PushService::Fcm,
        environment: PushEnvironment::Production,
        json: JsonText::from_valid(tokens[0].to_string()),
    };
    let tested = bench.credentials().test(bench.app, view.id, token).await.expect("tried");
    assert_eq!((tested.answer, tested.reason), ("accepted", None));

    let id = bench.publish(everyone()).await;
    bench.until(id, Outcome::Pushed, 20).await;
    assert_eq!(fakes.received(Service::Fcm).len(), 21);

    bench.credentials().delete(bench.app, view.id).await.expect("deleted");
    let late = bench.publish(everyone()).await;
    bench.until(late, Outcome::PushUnconfigured, 20).await;
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_is_tested_first_and_loses_no_push() {
    let Stand { bench, fakes, services, tokens, _folder } = stand(300).await;
    let body = fakes.credential(Service::Fcm);
    let view = bench.credentials().put(bench.app, body.to_string().as_bytes(), false).await.expect("kept");
    let token = || PushToken {
        service: PushService::Fcm,
        environment: PushEnvironment::Production,
        json: JsonText::from_valid(tokens[0].to_string()),
    };
    let rotate = |change: serde_json::Value| {
        let serde_json::Value::Object(change) = change else { panic!("an object") };
        bench.credentials().rotate(bench.app, view.id, change, token())
    };
    // Google does not know this account: the one in use stays.
    let mut stranger = body["service_account"].clone();
    stranger["client_email"] = "stranger@project.iam.gserviceaccount.com".into();
    let rejected = rotate(serde_json::json!({"service_account": stranger})).await.expect("tested");
    let Rotated::Rejected(tested) = rejected else { panic!("{rejected:?}") };
    assert!(tested.answer == "later" && tested.reason.is_some(), "{tested:?}");
    let kept = bench.delivery.push.list_credentials(bench.app).await.expect("read");
    assert_eq!(kept, std::slice::from_ref(&view));
    assert_eq!(fakes.received(Service::Fcm).len(), 0);

    // While pushes are on their way.
    let everyone = || pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO);
    let id = bench.publish(everyone()).await;
    for round in 0..5 {
        let change = serde_json::json!({
            "service_account": body["service_account"], "name": format!("round {round}"),
        });
        let Rotated::Replaced(rotated) = rotate(change).await.expect("rotated") else { panic!("rejected") };
        assert_eq!((rotated.id, rotated.name), (view.id, format!("round {round}")));
    }
    bench.until(id, Outcome::Pushed, 300).await;
    let tests = fakes.received(Service::Fcm).len() - 300;
    assert_eq!(tests, 5, "each push once, and one test in each round");

    // Two at a time: one of them changes the credential that the other read.
    let both =
        tokio::join!(rotate(serde_json::json!({"name": "a"})), rotate(serde_json::json!({"name": "b"})));
    let conflicts = [&both.0, &both.1].into_iter().filter(|result| {
        matches!(result, Err(noroshi_delivery::Error::Store(noroshi_store::Error::Conflict)))
    });
    assert!(conflicts.count() <= 1 && (both.0.is_ok() || both.1.is_ok()), "{both:?}");
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_become_outcomes_and_a_zero_ttl_is_tried_once() {
    let Stand { bench, fakes, services, tokens, _folder } = stand(3).await;
    let body = fakes.credential(Service::Fcm).to_string();
    bench.credentials().put(bench.app, body.as_bytes(), false).await.expect("kept");
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
async fn pushes_wait_for_a_credential_that_cannot_be_opened() {
    let Stand { bench, fakes, services, tokens: _, _folder } = stand(3).await;
    let sealed_elsewhere = NewCredential {
        app: bench.app,
        service: PushService::Fcm,
        environment: PushEnvironment::Production,
        provider: String::new(),
        name: String::new(),
        shown: JsonText::from_valid("{}"),
        sealed: vec![1; 60],
        replace: false,
    };
    let now = bench.delivery.clock().now();
    bench.store.put_credential(sealed_elsewhere, now).await.expect("kept");
    bench.credentials().load().await.expect("looked at");
    // The wait is longer than the ttl: the outcome is expired, not unconfigured.
    let brief = noroshi_types::Request {
        ttl: Ttl::new(Duration::from_secs(20)).expect("a ttl"),
        ..pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO)
    };
    let id = bench.publish(brief.clone()).await;
    bench.until(id, Outcome::PushExpired, 3).await;

    let body = fakes.credential(Service::Fcm).to_string();
    bench.credentials().put(bench.app, body.as_bytes(), true).await.expect("replaced");
    let id = bench.publish(brief).await;
    bench.until(id, Outcome::Pushed, 3).await;
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

fn context(text: &str) -> Option<TraceContext> {
    Some(TraceContext::parse(text.as_bytes()).expect("a context"))
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// From the trace of the provider's request to the push service's answer, across a retry from the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_reaches_from_the_request_to_each_call_of_a_push_service() {
    let with = push::Config { traceparent: true, ..config() };
    let Stand { bench, fakes, services, tokens, _folder } = stand_with(2, with).await;
    let body = fakes.credential(Service::Fcm).to_string();
    bench.credentials().put(bench.app, body.as_bytes(), false).await.expect("kept");
    // The second device's first push fails and is retried.
    let busy = Scripted {
        after: 0,
        count: Some(1),
        act: Act::Answer,
        status: 503,
        reason: "UNAVAILABLE".to_owned(),
        timestamp: None,
        retry_after_s: Some(1),
    };
    let token = tokens[1]["token"].as_str().expect("a token").to_owned();
    let change = Change { service: Some(Service::Fcm), tokens: [(token, busy)].into(), ..Change::default() };
    fakes.behave(change).expect("a script");
    let (spans, ended) = Spans::new(Sampling::per_million(0), Default::default());
    bench.delivery.context.attach_spans(spans);
    let request = pushed(users(&["u0", "u1"]), When::Stored, PushMode::Always, Duration::ZERO);
    let id = bench.publish(noroshi_types::Request { trace: context(PARENT), ..request.clone() }).await;
    bench.until(id, Outcome::Pushed, 2).await;
    let unsampled = context(&PARENT.replace("-01", "-00"));
    let quiet = bench.publish(noroshi_types::Request { trace: unsampled, ..request }).await;
    bench.until(quiet, Outcome::Pushed, 2).await;
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;

    let spans: Vec<Span> = ended.0.try_iter().collect();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let parent = context(PARENT).expect("a context");
    assert!(
        spans.iter().all(|span| span.trace == parent.trace),
        "one trace, and nothing of what is not recorded"
    );
    let publish = named("publish")[0];
    assert_eq!((publish.parent, named("publish").len()), (Some(parent.parent), 1));
    assert!(publish.attributes.contains(&("noroshi.targets", Value::Count(2))));
    assert_eq!(named("store accept").iter().map(|span| span.parent).collect::<Vec<_>>(), [Some(publish.id)]);
    let attempts = named("push fcm");
    assert_eq!(attempts.len(), 2, "{spans:?}");
    assert!(attempts.iter().all(|attempt| attempt.parent == Some(publish.id)));
    assert_eq!(attempts[0].failed.as_deref(), Some("UNAVAILABLE"));
    assert_eq!(attempts[1].failed, None);
    for (attempt, span) in attempts.iter().enumerate() {
        let number = ("noroshi.push.attempt", Value::Count(i64::try_from(attempt).expect("few")));
        assert!(span.attributes.contains(&number), "{span:?}");
    }
    let calls = named("push call");
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| attempts.iter().any(|attempt| call.parent == Some(attempt.id))));
    let mut expected: Vec<String> =
        calls.iter().map(|call| format!("00-{}-{}-01", call.trace, call.id)).collect();
    // Without recording, the stored trace context is passed on.
    expected.extend([unsampled.expect("a context").to_string(), unsampled.expect("a context").to_string()]);
    let told = |received: noroshi_testkit::Received| received.headers["traceparent"].clone();
    let mut told: Vec<String> = fakes.received(Service::Fcm).into_iter().map(told).collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_services_get_no_trace_context_by_default() {
    let Stand { bench, fakes, services, _folder, .. } = stand(1).await;
    let body = fakes.credential(Service::Fcm).to_string();
    bench.credentials().put(bench.app, body.as_bytes(), false).await.expect("kept");
    let request = pushed(users(&["u0"]), When::Stored, PushMode::Always, Duration::ZERO);
    let id = bench.publish(noroshi_types::Request { trace: context(PARENT), ..request }).await;
    bench.until(id, Outcome::Pushed, 1).await;
    assert!(!fakes.received(Service::Fcm)[0].headers.contains_key("traceparent"));
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

/// What APNs gets for a token of each kind: push type, topic and priority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_token_gets_its_push_type_topic_and_priority() {
    let Stand { bench, fakes, services, tokens: _, _folder } = stand(1).await;
    let body = fakes.credential(Service::Apns).to_string();
    bench.credentials().put(bench.app, body.as_bytes(), false).await.expect("kept");
    let credential_topic = fakes.credential(Service::Apns)["topic"].as_str().expect("a topic").to_owned();
    let start = serde_json::json!({"payload": {"aps": {"event": "start", "timestamp": 1}}}).to_string();
    let update = serde_json::json!({"payload": {"aps": {"event": "update", "timestamp": 1}}}).to_string();
    let kinds = [
        ("alert", None, "alert", "", "5"),
        ("voip", None, "voip", ".voip", "10"),
        ("complication", None, "complication", ".complication", "5"),
        ("fileprovider", None, "fileprovider", ".pushkit.fileprovider", "5"),
        ("widgets", None, "widgets", ".push-type.widgets", "5"),
        ("controls/lamp", None, "controls", ".push-type.controls", "5"),
        ("controls/door", None, "controls", ".push-type.controls", "5"),
        ("live-activity-start", Some(&start), "liveactivity", ".push-type.liveactivity", "5"),
        ("live-activity/a1", Some(&update), "liveactivity", ".push-type.liveactivity", "5"),
    ];
    let mut made = Vec::new();
    for (name, ..) in kinds {
        // One token belongs to another app than the credential's.
        let topic = if name == "controls/door" { "com.example.door" } else { &credential_topic };
        let new = serde_json::from_value(serde_json::json!({"service": "apns", "topic": topic}));
        let mut json = fakes.make_devices(&new.expect("a device")).expect("a token").remove(0);
        if name == "controls/door" {
            json["topic"] = topic.into();
        }
        let text = json["token"].as_str().expect("a token").to_owned();
        let token = PushToken {
            service: PushService::Apns,
            environment: PushEnvironment::Production,
            json: JsonText::from_valid(json.to_string()),
        };
        let key = TokenKey::parse(name).expect("a key");
        made.push((
            text,
            topic.to_owned(),
            NewToken { key, token, expires_at: None, only_if_missing: false },
        ));
    }
    let registrations = [("u1", made.len()), ("u2", 1)].map(|(name, count)| Registration {
        push_token: None,
        push_tokens: made[..count].iter().map(|(_, _, new)| new.clone()).collect(),
        ..registration(name, &[])
    });
    let now = bench.delivery.clock().now();
    bench.store.register(bench.app, registrations.to_vec(), now).await.expect("registered");

    for ((name, own, push_type, suffix, priority), (token, topic, _)) in kinds.into_iter().zip(&made) {
        let request = pushed(users(&["u1", "u2"]), When::Stored, PushMode::Always, Duration::ZERO);
        let push = noroshi_types::Push {
            token: TokenKey::parse(name).ok(),
            own: own.map(|own| (PushService::Apns, JsonText::from_valid(own.clone()))).into_iter().collect(),
            ..request.push.clone()
        };
        let notification = Some(JsonText::from_valid(r#"{"title":"t"}"#));
        let urgency = noroshi_types::Urgency::Low;
        let before = fakes.received(Service::Apns).len();
        let id = bench.publish(noroshi_types::Request { push, notification, urgency, ..request }).await;
        let (pushed, without) = if name == "alert" { (2, 0) } else { (1, 1) };
        bench.until(id, Outcome::Pushed, pushed).await;
        assert_eq!(bench.count(id, Outcome::NoPushToken).await, without, "{name}");
        let received = fakes.received(Service::Apns).split_off(before);
        assert_eq!(received.len() as u64, pushed, "{name}");
        let header = |name: &str| received[0].headers[name].clone();
        assert_eq!(header("apns-push-type"), push_type);
        assert_eq!(header("apns-topic"), format!("{topic}{suffix}"), "{name}");
        assert_eq!(header("apns-priority"), priority, "{name}");
        assert_eq!(&received[0].token, token, "{name}");
    }

    // An ordinary push goes to the main token, and one for an expired token to none.
    let changes = vec![TokenChange::Set(NewToken {
        expires_at: Some(now.saturating_add(Duration::from_millis(50))),
        ..made[8].2.clone()
    })];
    let change = noroshi_store::DeviceChange { push_tokens: changes, ..Default::default() };
    let device = noroshi_types::DeviceId::parse("d-u1").expect("an id");
    bench.store.update_device(bench.app, &device, change, now).await.expect("changed");
    tokio::time::sleep(Duration::from_millis(60)).await;
    let request = pushed(users(&["u1"]), When::Stored, PushMode::Always, Duration::ZERO);
    let push = noroshi_types::Push {
        token: TokenKey::parse("live-activity/a1").ok(),
        own: OwnFields::from_iter([(PushService::Apns, JsonText::from_valid(update))]),
        ..request.push.clone()
    };
    let before = fakes.received(Service::Apns).len();
    let id = bench.publish(noroshi_types::Request { push, ..request.clone() }).await;
    bench.until(id, Outcome::NoPushToken, 1).await;
    let id = bench.publish(request).await;
    bench.until(id, Outcome::Pushed, 1).await;
    let received = fakes.received(Service::Apns).split_off(before);
    assert_eq!(received.iter().map(|one| &one.token).collect::<Vec<_>>(), [&made[0].0]);
    bench.stop().await;
    services.drain(Duration::from_secs(5)).await;
}

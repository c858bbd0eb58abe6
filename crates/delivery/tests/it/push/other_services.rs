//! Providers behind webhooks, Huawei Push Kit and WNS: from a published notification to what the strict fakes receive, and
//! from their answers to outcomes and tokens.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::Egress;
use noroshi_push::Services;
use noroshi_store::{Devices, NewToken, Registration};
use noroshi_testkit::behaviour::{Act, Change, Scripted};
use noroshi_testkit::tokens::{NewDevices, State};
use noroshi_testkit::{Fakes, Service};
use noroshi_types::{
    JsonText, Outcome, PushEnvironment, PushMode, PushService, PushToken, Target, TokenKey, When,
};
use serde_json::{Value, json};

use super::{Bench, config, open_with, pushed, registration, users};

struct Stand {
    bench: Bench,
    fakes: Fakes,
    services: Arc<Services>,
    _folder: tempfile::TempDir,
}

impl Stand {
    async fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("fakes");
        std::fs::create_dir(&keys).expect("a folder");
        let fakes = noroshi_testkit::Config { folder: Some(keys), ..Default::default() };
        let fakes = Fakes::start_with(fakes).expect("fakes");
        let ca = noroshi_egress::read_ca_file(fakes.ca_file().expect("kept in the folder"));
        let allow = vec!["127.0.0.0/8".parse().expect("a network"), "::1/128".parse().expect("a network")];
        let egress = noroshi_egress::Config { allow, ca: ca.expect("a certificate"), ..Default::default() };
        let egress = Arc::new(Egress::new(egress).expect("a way out"));
        let mut registry = noroshi_telemetry::registry();
        let runtime = tokio::runtime::Handle::current();
        let services = Services::new(noroshi_push::Config::default(), egress, &mut registry, runtime);
        let bench = open_with(folder.path(), services.clone(), config()).await;
        Self { bench, fakes, services, _folder: folder }
    }

    /// Adds the credential of a fake, with further fields.
    async fn add(&self, service: Service, more: Value) -> noroshi_types::CredentialId {
        let mut body = self.fakes.credential(service);
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let added = self.bench.credentials().put(self.bench.app, body.to_string().as_bytes(), false).await;
        added.expect("added").id
    }

    fn device(&self, service: Service, state: State) -> Value {
        let new = NewDevices { service, count: 1, topic: None, state, unrestricted: false, token: None };
        self.fakes.make_devices(&new).expect("a device").remove(0)
    }

    /// Registers a device of its own user for each token.
    async fn register(&self, service: PushService, tokens: &[Value]) {
        let registrations = tokens.iter().enumerate().map(|(n, json)| Registration {
            push_token: Some(token(service, json)),
            ..registration(&format!("u{n}"), &[])
        });
        let now = self.bench.delivery.clock().now();
        self.bench.store.register(self.bench.app, registrations.collect(), now).await.expect("registered");
    }

    fn script(&self, service: Service, next: Vec<Scripted>) {
        let change = Change { service: Some(service), next, ..Change::default() };
        self.fakes.behave(change).expect("a script");
    }

    async fn main_token(&self, user: &str) -> Option<PushToken> {
        let user = noroshi_types::UserId::parse(user).expect("an id");
        let filter = noroshi_store::DeviceFilter { user: Some(user), limit: 1, ..Default::default() };
        self.bench.store.devices(self.bench.app, filter).await.expect("read").remove(0).push_token
    }

    async fn stop(self) {
        self.bench.stop().await;
        self.services.drain(Duration::from_secs(5)).await;
    }
}

fn token(service: PushService, json: &Value) -> PushToken {
    PushToken {
        service,
        environment: PushEnvironment::Production,
        json: JsonText::from_valid(json.to_string()),
    }
}

fn answer(status: u16, reason: &str, retry_after_s: Option<u64>) -> Scripted {
    let reason = reason.to_owned();
    Scripted { after: 0, count: Some(1), act: Act::Answer, status, reason, timestamp: None, retry_after_s }
}

fn now(target: Target) -> noroshi_types::Request {
    pushed(target, When::Stored, PushMode::Always, Duration::ZERO)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_gets_signed_batches_and_its_results_become_outcomes() {
    let stand = Stand::open().await;
    stand.add(Service::Webhook, json!({"batch_size": 8, "concurrency": 2})).await;
    let mut tokens: Vec<Value> = (0..20).map(|_| stand.device(Service::Webhook, State::Registered)).collect();
    tokens.push(stand.device(Service::Webhook, State::Unregistered { at_ms: 0 }));
    tokens.push(stand.device(Service::Webhook, State::Foreign));
    tokens.push(json!({"service": "webhook", "provider": "dev", "token": "nobody@example.com"}));
    stand.register(PushService::Webhook, &tokens).await;
    let id = stand.bench.publish(now(Target::Everyone)).await;
    stand.bench.until(id, Outcome::Pushed, 20).await;
    stand.bench.until(id, Outcome::PushTokenGone, 1).await;
    stand.bench.until(id, Outcome::PushTokenSuspect, 1).await;
    stand.bench.until(id, Outcome::PushRefused, 1).await;
    assert_eq!(stand.main_token("u20").await, None);

    let received = stand.fakes.received(Service::Webhook);
    assert!(received.iter().all(|request| request.reason.is_empty()), "{received:?}");
    assert!(received.len() >= 3, "at most 8 in a request: {}", received.len());
    let mut devices = BTreeSet::new();
    for request in &received {
        let body: Value = serde_json::from_str(request.payload.as_deref().expect("a body")).expect("JSON");
        for message in body["messages"].as_array().expect("messages") {
            assert_eq!(message["notification_id"], json!(id.to_string()));
            let recipients = message["recipients"].as_array().expect("recipients");
            assert!(recipients.len() <= 8);
            for recipient in recipients {
                let device = recipient["device"].as_str().expect("a device").to_owned();
                assert!(recipient["user"].as_str().expect("a user").starts_with('u'));
                assert!(devices.insert(device), "once each");
            }
        }
    }
    assert_eq!(devices.len(), 23);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_batch_has_the_same_ids() {
    let stand = Stand::open().await;
    stand.add(Service::Webhook, json!({})).await;
    let tokens: Vec<Value> = (0..3).map(|_| stand.device(Service::Webhook, State::Registered)).collect();
    stand.register(PushService::Webhook, &tokens).await;
    // A body that is no answer, then a pause, then the real answer.
    stand.script(Service::Webhook, vec![answer(200, "OK", None), answer(503, "", Some(1))]);
    let id = stand.bench.publish(now(Target::Everyone)).await;
    stand.bench.until(id, Outcome::Pushed, 3).await;
    let mut ids = std::collections::BTreeMap::<String, BTreeSet<String>>::new();
    let mut attempts = 0;
    for request in stand.fakes.received(Service::Webhook) {
        let body: Value = serde_json::from_str(request.payload.as_deref().expect("a body")).expect("JSON");
        for recipient in body["messages"][0]["recipients"].as_array().expect("recipients") {
            attempts += 1;
            let device = recipient["device"].as_str().expect("a device").to_owned();
            ids.entry(device).or_default().insert(recipient["id"].as_str().expect("an id").to_owned());
        }
    }
    assert!(attempts > 3, "some were repeated");
    assert!(ids.len() == 3 && ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_has_several_providers_and_a_push_reaches_the_named_token() {
    let stand = Stand::open().await;
    let id = stand.add(Service::Webhook, json!({})).await;
    // The fake rejects batches of another provider than its own.
    stand.add(Service::Webhook, json!({"name": "sms"})).await;
    let address = stand.device(Service::Webhook, State::Registered);
    let phone = json!({"service": "webhook", "provider": "sms", "token": "+491511234567"});
    let fcm = stand.device(Service::Fcm, State::Registered);
    let named = |name: &str, json: &Value| NewToken {
        key: TokenKey::parse(&format!("webhook/{name}")).expect("a key"),
        token: token(PushService::Webhook, json),
        expires_at: None,
        only_if_missing: false,
    };
    let one = Registration {
        push_token: Some(token(PushService::Fcm, &fcm)),
        push_tokens: vec![named("dev", &address), named("sms", &phone)],
        ..registration("u0", &[])
    };
    let at = stand.bench.delivery.clock().now();
    stand.bench.store.register(stand.bench.app, vec![one], at).await.expect("registered");
    let to = |key: &str| {
        let mut request = now(users(&["u0"]));
        request.push.token = TokenKey::parse(key).ok();
        request
    };
    let mail = stand.bench.publish(to("webhook/dev")).await;
    stand.bench.until(mail, Outcome::Pushed, 1).await;
    let sms = stand.bench.publish(to("webhook/sms")).await;
    stand.bench.until(sms, Outcome::PushRefused, 1).await;
    let ordinary = stand.bench.publish(now(users(&["u0"]))).await;
    stand.bench.until(ordinary, Outcome::PushUnconfigured, 1).await;
    let received = stand.fakes.received(Service::Webhook);
    assert_eq!(received.iter().map(|request| &*request.reason).collect::<Vec<_>>(), ["", "provider"]);

    let test =
        |json: &Value| stand.bench.credentials().test(stand.bench.app, id, token(PushService::Webhook, json));
    let tested = test(&address).await.expect("tried");
    assert_eq!((tested.answer, tested.reason), ("accepted", None));
    assert!(test(&phone).await.is_err(), "a token of another provider");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_rejects_the_signature_opens_its_breaker_and_loses_nothing() {
    let stand = Stand::open().await;
    let wrong = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    stand.add(Service::Webhook, json!({"secret": wrong})).await;
    let tokens: Vec<Value> = (0..3).map(|_| stand.device(Service::Webhook, State::Registered)).collect();
    stand.register(PushService::Webhook, &tokens).await;
    let id = stand.bench.publish(now(Target::Everyone)).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while stand.services.status(stand.bench.app)[0].breaker == noroshi_push::Condition::Closed {
        assert!(std::time::Instant::now() < deadline, "the breaker stays closed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(&*stand.services.status(stand.bench.app)[0].provider, "dev");
    // During the rotation each request has both signatures.
    let mut body = stand.fakes.credential(Service::Webhook);
    body["previous_secret"] = body["secret"].clone();
    body["secret"] = json!(wrong);
    let replaced = stand.bench.credentials().put(stand.bench.app, body.to_string().as_bytes(), true).await;
    replaced.expect("replaced");
    let again = stand.bench.publish(now(Target::Everyone)).await;
    stand.bench.until(again, Outcome::Pushed, 3).await;
    let counts = stand.bench.counts(id).await;
    assert!(!counts.iter().any(|(outcome, _)| *outcome == Outcome::PushRefused), "{counts:?}");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huawei_gets_notifications_signed_with_ps256() {
    let stand = Stand::open().await;
    let id = stand.add(Service::Hms, json!({})).await;
    let good = stand.device(Service::Hms, State::Registered);
    let tokens = [good.clone(), stand.device(Service::Hms, State::Foreign)];
    stand.register(PushService::Hms, &tokens).await;
    let sent = stand.bench.publish(now(Target::Everyone)).await;
    stand.bench.until(sent, Outcome::Pushed, 1).await;
    stand.bench.until(sent, Outcome::PushTokenSuspect, 1).await;
    let received = stand.fakes.received(Service::Hms);
    assert!(received.iter().all(|request| ["", "80300007"].contains(&&*request.reason)), "{received:?}");
    stand.script(Service::Hms, vec![answer(200, "80300008", None)]);
    let tested = stand.bench.credentials().test(stand.bench.app, id, token(PushService::Hms, &good)).await;
    let tested = tested.expect("tried");
    assert_eq!((tested.answer, tested.reason), ("refused", Some("payload_too_large")));
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_gets_each_message_in_its_type() {
    let stand = Stand::open().await;
    let id = stand.add(Service::Wns, json!({})).await;
    let good = stand.device(Service::Wns, State::Registered);
    let tokens = [
        good.clone(),
        stand.device(Service::Wns, State::Unregistered { at_ms: 0 }),
        json!({"service": "wns", "channel": "https://localhost:1/?token=x"}),
    ];
    stand.register(PushService::Wns, &tokens).await;
    let sent = stand.bench.publish(now(Target::Everyone)).await;
    stand.bench.until(sent, Outcome::Pushed, 1).await;
    stand.bench.until(sent, Outcome::PushTokenGone, 1).await;
    stand.bench.until(sent, Outcome::PushRefused, 1).await;
    assert_eq!(stand.main_token("u1").await, None);
    let received = stand.fakes.received(Service::Wns);
    let first = received.iter().find(|request| request.status == 200).expect("one was accepted");
    assert_eq!(first.headers["x-wns-type"], "wns/raw", "data alone");
    assert_eq!(stand.fakes.received(Service::WnsLogin).len(), 1);

    stand.script(Service::Wns, vec![answer(200, "dropped", None)]);
    let test = || stand.bench.credentials().test(stand.bench.app, id, token(PushService::Wns, &good));
    let tested = test().await.expect("tried");
    assert_eq!((tested.answer, tested.reason), ("refused", Some("dropped")));
    assert_eq!(test().await.expect("tried").answer, "accepted");
    let received = stand.fakes.received(Service::Wns);
    assert_eq!(received.last().expect("a test").headers["x-wns-type"], "wns/toast");
    assert_eq!(stand.fakes.received(Service::WnsLogin).len(), 1, "one access token for all");
    stand.stop().await;
}

//! Live Activities from a provider's call to the pushes of devices.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use noroshi_delivery::activity::{Alert, Spec, Start, Update};
use noroshi_delivery::push::Config;
use noroshi_delivery::push::record::{Recording, decode};
use noroshi_push::Answer;
use noroshi_store::{DeviceChange, NewToken, Registration, Store, TokenChange};
use noroshi_types::{
    ActivityId, DeviceId, DeviceNum, JsonText, Outcome, PushEnvironment, PushService, PushToken, Target,
    TokenKey, Topic, When, limits,
};
use serde_json::Value;

use super::{Bench, config, eventually, open};
use crate::fake_outlet::Received;

fn id(name: &str) -> ActivityId {
    ActivityId::parse(name).expect("an id")
}

fn start(target: Target) -> Start {
    Start {
        id: id("m1"),
        target,
        spec: Spec {
            attributes_type: "Match".to_owned(),
            attributes: None,
            when: When::Connected,
            ios_via: Some(PushService::Apns),
            frequent_updates: false,
            named: false,
        },
        first: state(0),
        ttl: limits::ACTIVITY_TTL_MAX,
        joinable: false,
    }
}

fn state(number: u64) -> Update {
    let alert = (number == 0).then(|| Alert { title: Some("Go".to_owned()), ..Alert::default() });
    Update { content: Some(JsonText::from_valid(format!(r#"{{"n":{number}}}"#))), alert, ..Update::default() }
}

fn token(name: &str, key: &str) -> NewToken {
    let key = TokenKey::parse(key).expect("a key");
    let service = key.kind().service();
    let text = format!("{} {name}", key.kind().as_str());
    let json = format!(r#"{{"service":"{}","token":"{text}"}}"#, service.as_str());
    let token =
        PushToken { service, environment: PushEnvironment::Production, json: JsonText::from_valid(json) };
    NewToken { key, token, expires_at: None, only_if_missing: false }
}

impl Bench {
    /// Subscribers of `match`, each with a token of this kind, whose text is the kind and the name.
    async fn subscribers(&self, names: &[String], key: &str) -> Vec<DeviceNum> {
        let mut nums = Vec::new();
        for part in names.chunks(1_000) {
            let registrations = part.iter().map(|name| Registration {
                device: Some(DeviceId::parse(name).expect("an id")),
                topics: vec![Topic::parse("match").expect("a topic")],
                push_tokens: vec![token(name, key)],
                ..Registration::default()
            });
            let made = noroshi_store::Devices::register(
                &*self.store,
                self.app,
                registrations.collect(),
                self.delivery.clock().now(),
            );
            nums.extend(
                made.await.expect("registered").into_iter().map(|device| device.expect("accepted").num),
            );
        }
        nums
    }

    async fn started(&self) {
        let target = Target::Topic(Topic::parse("match").expect("a topic"));
        self.delivery.activities.start(self.app, start(target), None).await.expect("started");
    }

    async fn updated(&self, number: u64) {
        self.delivery.activities.update(self.app, &id("m1"), state(number)).await.expect("updated");
    }

    /// Waits until every device has the newest state.
    async fn until_current(&self) {
        let store: &dyn Store = &*self.store;
        for _ in 0..6_000 {
            let found = store.activity(self.app, &id("m1")).await.expect("read").expect("stored");
            let progress = store.activity_progress(found.num).await.expect("read");
            if found.cursor.is_none() && progress.waiting == 0 && found.devices > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("devices still wait for the newest state");
    }

    async fn report_token(&self, num: DeviceNum, name: &str) {
        let new = token(name, "live-activity/m1");
        let key = new.key.clone();
        let change = DeviceChange { push_tokens: vec![TokenChange::Set(new)], ..DeviceChange::default() };
        let device = DeviceId::parse(name).expect("an id");
        let now = self.delivery.clock().now();
        let changed = noroshi_store::Devices::update_device(&*self.store, self.app, &device, change, now);
        changed.await.expect("changed");
        self.delivery.activities.joined(self.app, num, &key).await.expect("joined");
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("d{number:05}")).collect()
}

/// The `aps` of a push, or the data of a message.
fn content(received: &Received) -> Value {
    let own: Value = serde_json::from_str(received.own.as_ref().expect("fields").as_str()).expect("JSON");
    if own["payload"].is_object() { own["payload"]["aps"].clone() } else { own }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_started_joins_and_is_updated() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let num = bench.subscribers(&names(1), "live-activity-start").await[0];
    bench.started().await;
    eventually("the start is sent", || bench.outlet.count() == 1).await;
    bench.until_current().await;
    let first = content(&bench.outlet.received()[0]);
    assert_eq!((&first["event"], &first["attributes"]["noroshiActivity"]), (&"start".into(), &"m1".into()));
    // Updates wait for its token, and then it gets the newest only.
    bench.updated(1).await;
    bench.updated(2).await;
    bench.until_current().await;
    assert_eq!(bench.outlet.count(), 1);
    bench.report_token(num, "d00000").await;
    eventually("the newest state is sent", || bench.outlet.count() == 2).await;
    let joined = content(&bench.outlet.received()[1]);
    assert_eq!((&joined["event"], &joined["content-state"]["n"]), (&"update".into(), &2.into()));
    bench.updated(3).await;
    eventually("the update is sent", || bench.outlet.count() == 3).await;
    let ended = bench.delivery.activities.end(bench.app, &id("m1"), state(4), None).await.expect("ended");
    assert!(ended.shown.activity.ended_at.is_some());
    eventually("the end is sent", || bench.outlet.count() == 4).await;
    bench.until_current().await;
    let last = content(&bench.outlet.received()[3]);
    assert_eq!((&last["event"], &last["content-state"]["n"]), (&"end".into(), &4.into()));
    let store: &dyn Store = &*bench.store;
    let device = store.device(bench.app, &DeviceId::parse("d00000").expect("an id")).await.expect("read");
    let keys: Vec<String> =
        device.expect("found").push_tokens.iter().map(|token| token.key.to_string()).collect();
    assert_eq!(keys, ["live-activity-start"], "the token of the activity is gone");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_during_a_slow_send_are_coalesced() {
    const DEVICES: usize = 700;
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.subscribers(&names(DEVICES), "live-activity/m1").await;
    bench.outlet.hold_all(true);
    bench.started().await;
    eventually("the first state is on the way", || bench.outlet.count() == DEVICES).await;
    for number in 1..=50 {
        bench.updated(number).await;
    }
    assert_eq!(bench.outlet.count(), DEVICES, "one state is on the way, and one entry of each slice waits");
    bench.outlet.release();
    bench.until_current().await;
    let received = bench.outlet.received();
    assert_eq!(received.len(), 2 * DEVICES, "the newest state went out once");
    let mut states: HashMap<u64, usize> = HashMap::new();
    for push in &received {
        *states.entry(content(push)["content-state"]["n"].as_u64().expect("a number")).or_default() += 1;
    }
    assert_eq!(states, HashMap::from([(0, DEVICES), (50, DEVICES)]));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_decide_what_becomes_of_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let names: Vec<String> = ["gone", "busy", "refused", "good"].map(str::to_owned).into();
    bench.subscribers(&names, "live-activity/m1").await;
    let script = |name: &str, answer| bench.outlet.script(&format!("live-activity {name}"), [answer]);
    script("gone", Answer::Gone { reason: "Unregistered", since: None });
    script("busy", Answer::Later { reason: "TooManyRequests", after: Duration::from_millis(1) });
    script("refused", Answer::Refused { reason: "BadTopic" });
    bench.started().await;
    eventually("all are tried and one again", || bench.outlet.count() == 5).await;
    bench.until_current().await;
    let store: &dyn Store = &*bench.store;
    let activity = store.activity(bench.app, &id("m1")).await.expect("read").expect("stored");
    let member = async |name: &str| {
        let device = DeviceId::parse(name).expect("an id");
        store.activity_member(activity.num, &device, "Match").await.expect("read").expect("a member")
    };
    assert_eq!(member("gone").await.outcome, Some(Outcome::PushTokenGone));
    assert!(!member("gone").await.has_token, "only this token is removed");
    assert_eq!(member("refused").await.reason.as_deref(), Some("BadTopic"));
    assert_eq!(member("busy").await.outcome, None);
    let progress = store.activity_progress(activity.num).await.expect("read");
    let count = |outcome| {
        progress.counts.iter().filter(|(of, ..)| *of == outcome).map(|(.., count)| count).sum::<u64>()
    };
    assert_eq!(
        (count(Outcome::Pushed), count(Outcome::PushTokenGone), count(Outcome::PushRefused)),
        (2, 1, 1)
    );
    bench.updated(1).await;
    eventually("the others get the next state", || bench.outlet.count() == 8).await;
    bench.stop().await;
}

/// Why each recorded attempt at a device failed.
async fn recorded(bench: &Bench, name: &str) -> Vec<Option<String>> {
    let store: &dyn Store = &*bench.store;
    let activity = store.activity(bench.app, &id("m1")).await.expect("read").expect("stored");
    let device = DeviceId::parse(name).expect("an id");
    let member =
        store.activity_member(activity.num, &device, "Match").await.expect("read").expect("a member");
    let rows = member.attempts.iter().flat_map(|row| decode(row, member.num).expect("a row"));
    rows.map(|attempt| attempt.reason).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_at_named_devices_and_failures_are_recorded() {
    let busy = || Answer::Later { reason: "TooManyRequests", after: Duration::from_millis(1) };
    let of = |name: &str| Target::Devices(vec![DeviceId::parse(name).expect("an id")]);
    let topic = Target::Topic(Topic::parse("match").expect("a topic"));
    let failed = Some("TooManyRequests".to_owned());
    let no_sample = Recording { sample: 0, ..Recording::default() };
    let off = Recording { retention: Duration::ZERO, ..Recording::default() };
    for (target, joinable, recording, expected) in [
        (of("d00000"), false, no_sample, vec![failed.clone(), None]),
        (of("d00000"), true, no_sample, vec![failed.clone()]),
        (topic.clone(), false, no_sample, vec![failed.clone()]),
        (topic.clone(), false, Recording { sample: 1_000_000, ..no_sample }, vec![failed, None]),
        (topic, false, off, vec![]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let bench = open(folder.path(), Config { recording, ..config() }).await;
        bench.subscribers(&names(1), "live-activity/m1").await;
        bench.outlet.script("live-activity d00000", [busy()]);
        let start = Start { joinable, ..start(target) };
        bench.delivery.activities.start(bench.app, start, None).await.expect("started");
        eventually("one failed, and was tried again", || bench.outlet.count() == 2).await;
        bench.until_current().await;
        assert_eq!(recorded(&bench, "d00000").await, expected, "{joinable} {recording:?}");
        bench.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_no_state_and_repeats_only_slices_in_progress() {
    const DEVICES: usize = 1_300;
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.subscribers(&names(DEVICES), "live-activity/m1").await;
    bench.started().await;
    bench.until_current().await;
    assert_eq!(bench.outlet.count(), DEVICES);
    bench.outlet.hold_after(DEVICES + 600);
    bench.updated(1).await;
    eventually("the update is on the way", || bench.outlet.count() == 2 * DEVICES).await;
    bench.updated(2).await;
    bench.crash().await;

    let bench = open(folder.path(), config()).await;
    bench.until_current().await;
    let received = bench.outlet.received();
    let tokens: HashSet<&String> = received.iter().map(|push| &push.token).collect();
    assert_eq!(tokens.len(), DEVICES, "nobody is lost");
    let newest = received.iter().filter(|push| content(push)["content-state"]["n"] == 2).count();
    assert_eq!((newest, received.len()), (DEVICES, DEVICES), "each gets the newest state, once");
    bench.stop().await;

    let bench = open(folder.path(), config()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.outlet.count(), 0, "nothing is left");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn android_devices_get_data_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.subscribers(&names(1), "fcm").await;
    bench.started().await;
    bench.until_current().await;
    bench.updated(1).await;
    eventually("both states are sent", || bench.outlet.count() == 2).await;
    let received = bench.outlet.received();
    let events: Vec<Value> = received.iter().map(|push| content(push)["noroshi_event"].clone()).collect();
    assert_eq!(events, ["start", "update"]);
    assert_eq!(content(&received[1])["noroshi_state"], r#"{"n":1}"#);
    assert_eq!(received[1].token, "fcm d00000");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_whose_sender_panics_holds_up_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.subscribers(&names(2), "live-activity/m1").await;
    bench.outlet.fail("live-activity d00001", 1);
    bench.started().await;
    bench.until_current().await;
    bench.updated(1).await;
    bench.until_current().await;
    let last = bench.outlet.received().pop().expect("a push");
    assert_eq!(content(&last)["content-state"]["n"], 1);
    bench.stop().await;
}

//! Live Activities: creation, the devices that take part, coalesced updates, slices and their leases, the end.

use std::time::Duration;

use noroshi_store::{
    Activity, ActivityChange, ActivityRecipient, DeviceChange, Error, Idempotency, InvalidToken, Joined,
    Names, NewActivity, NewToken, PushRecord, Registration, SettledSlice, Slice, Store, SuspectToken,
    TakeSlices, TakenSlices, TokenChange, TokenReport,
};
use noroshi_types::{ActivityId, AppId, DeviceNum, JsonText, Outcome, PushService, TokenKey, limits};

use super::fixture::*;
use super::push_fixture::token_of;

const LEASE: Duration = Duration::from_secs(60);
const ATTRIBUTES: &str = "MatchAttributes";

fn id(name: &str) -> ActivityId {
    ActivityId::parse(name).expect(name)
}

fn json(text: &str) -> JsonText {
    JsonText::from_valid(text)
}

fn new(app: AppId, name: &str) -> NewActivity {
    NewActivity {
        app,
        id: id(name),
        spec: json(r#"{"attributes_type":"MatchAttributes"}"#),
        target: json(r#"{"topic":"match"}"#),
        state: json(r#"{"goals":0}"#),
        of_users: false,
        joinable: false,
        expires_at: at(3_600),
        idempotency: None,
    }
}

async fn created(store: &dyn Store, new: NewActivity) -> Activity {
    store.create_activity(new, NOW).await.expect("created").activity
}

fn state(activity: &Activity, from: u64, text: &str) -> ActivityChange {
    let (app, id) = (activity.app, activity.id.clone());
    ActivityChange { app, id, from, state: json(text), forget_at: None }
}

/// A device with tokens, which are named after the device.
async fn with_tokens(store: &dyn Store, app: AppId, name: &str, keys: &[&str]) -> DeviceNum {
    let token = |key: &&str| {
        let key = TokenKey::parse(key).expect("a key");
        let token = token_of(key.kind().service(), &format!("{name} {key}"));
        NewToken { key, token, expires_at: None, only_if_missing: false }
    };
    let registration = Registration {
        device: Some(device(name)),
        user: Some(user(&format!("user of {name}"))),
        push_tokens: keys.iter().map(token).collect(),
        ..Registration::default()
    };
    store.register(app, vec![registration], NOW).await.expect("registered").remove(0).expect("a device").num
}

fn asked(seconds: u64, holder: u64) -> TakeSlices {
    TakeSlices { now: at(seconds), lease: LEASE, holder, slices_max: 16, busy: Vec::new() }
}

async fn taken(store: &dyn Store, seconds: u64) -> TakenSlices {
    store.take_slices(asked(seconds, 1)).await.expect("taken")
}

/// Takes the only slice that is due, with its activity.
async fn one(store: &dyn Store, seconds: u64) -> (Slice, Activity) {
    let taken = taken(store, seconds).await;
    assert_eq!((taken.slices.len(), taken.activities.len()), (1, 1), "{taken:?}");
    (taken.slices[0], taken.activities[0].clone())
}

async fn recipients(store: &dyn Store, slice: Slice, activity: &Activity) -> Vec<ActivityRecipient> {
    store.slice_recipients(activity.clone(), slice, ATTRIBUTES.to_owned()).await.expect("read")
}

fn sent(slice: Slice, activity: &Activity) -> SettledSlice {
    SettledSlice {
        slice: slice.id,
        take: slice.take,
        activity: activity.num,
        version: activity.version,
        ended: activity.ended_at.is_some(),
        started: Vec::new(),
        again: Vec::new(),
        due_at: None,
        attempt: 0,
        parts: Vec::new(),
        counts: Vec::new(),
        accepted: None,
        failed: None,
    }
}

async fn settle(store: &dyn Store, settled: SettledSlice, seconds: u64) {
    store.settle_slices(1, vec![settled], at(seconds)).await.expect("settled");
}

async fn add(store: &dyn Store, activity: &Activity, devices: &[DeviceNum]) {
    let added = store.add_activity_devices(activity.num, 0, None, devices.to_vec(), NOW).await;
    assert!(added.expect("added"));
}

pub(crate) async fn an_activity_is_created_and_changed(store: &dyn Store) {
    let (shop, other) = (app(store, "shop").await, app(store, "other").await);
    let activity = created(store, new(shop, "a1")).await;
    assert_eq!((activity.version, activity.cursor, activity.devices), (1, Some(0), 0));
    assert!(matches!(store.create_activity(new(shop, "a1"), NOW).await, Err(Error::Exists)));
    created(store, new(other, "a1")).await;
    let found = store.activity(shop, &id("a1")).await.expect("read").expect("found");
    assert_eq!(found.target, Some(json(r#"{"topic":"match"}"#)));
    assert_eq!(Activity { target: None, ..found }, activity);

    let changed = store.change_activity(state(&activity, 1, "{}"), at(5)).await.expect("changed");
    assert_eq!((changed.version, changed.updated_at, changed.ended_at), (2, at(5), None));
    assert!(matches!(store.change_activity(state(&activity, 1, "{}"), at(6)).await, Err(Error::Conflict)));
    let unknown = ActivityChange { id: id("a2"), ..state(&activity, 1, "{}") };
    assert!(matches!(store.change_activity(unknown, at(6)).await, Err(Error::NotFound)));
    let end = ActivityChange { forget_at: Some(at(100)), ..state(&activity, 2, "{}") };
    let ended = store.change_activity(end.clone(), at(7)).await.expect("ended");
    assert_eq!((ended.version, ended.ended_at), (3, Some(at(7))));
    let again = ActivityChange { from: 3, ..end };
    assert!(matches!(store.change_activity(again, at(8)).await, Err(Error::Conflict)));

    let newer = created(store, new(shop, "a3")).await;
    let page = store.activities(shop, None, 1).await.expect("listed");
    assert_eq!(page, std::slice::from_ref(&newer));
    let page = store.activities(shop, Some(newer.num), 9).await.expect("listed");
    assert_eq!(page, [ended]);
    let deleted = store.delete_app(shop).await;
    deleted.expect("deleted");
    assert_eq!(store.activity(shop, &id("a3")).await.expect("read"), None);
    assert!(store.activity(other, &id("a1")).await.expect("read").is_some());
}

pub(crate) async fn an_idempotency_key_creates_one_activity(store: &dyn Store) {
    let app = app(store, "shop").await;
    let with = |name: &str, hash: u8| NewActivity {
        idempotency: Some(Idempotency { key: "k".into(), body_hash: [hash; 32] }),
        ..new(app, name)
    };
    let first = store.create_activity(with("a1", 1), NOW).await.expect("created");
    let again = store.create_activity(with("another", 1), at(1)).await.expect("the same");
    assert_eq!((first.replayed, again.replayed, again.activity), (false, true, first.activity));
    let other = store.create_activity(with("a1", 2), at(1)).await;
    assert!(matches!(other, Err(Error::IdempotencyConflict)), "{other:?}");
    assert_eq!(store.activities(app, None, 9).await.expect("listed").len(), 1);
}

pub(crate) async fn devices_of_an_activity_are_collected(store: &dyn Store) {
    let (shop, other) = (app(store, "shop").await, app(store, "other").await);
    let a = with_tokens(store, shop, "a", &["live-activity-start"]).await;
    let b = with_tokens(store, shop, "b\"\\", &["fcm"]).await;
    with_tokens(store, other, "a", &[]).await;
    let named = async |names| {
        let mut found = store.named_devices(shop, names).await.expect("read");
        found.sort_unstable();
        found
    };
    assert_eq!(
        named(Names::Users(vec![user("user of a"), user("nobody"), user("user of b\"\\")])).await,
        [a, b]
    );
    assert_eq!(named(Names::Devices(vec![device("b\"\\")])).await, [b]);

    let activity = created(store, new(shop, "a1")).await;
    let collecting = store.activities_to_collect(9).await.expect("read");
    assert_eq!(collecting.iter().map(|activity| activity.num).collect::<Vec<_>>(), [activity.num]);
    assert!(collecting[0].target.is_some());
    let page = |from, next, devices: &[DeviceNum]| {
        store.add_activity_devices(activity.num, from, next, devices.to_vec(), NOW)
    };
    assert!(page(0, Some(7), &[a]).await.expect("added"));
    assert!(!page(0, Some(7), &[a]).await.expect("not written"), "another node moved it");
    assert!(page(7, None, &[a, b]).await.expect("added"));
    assert!(!page(7, None, &[]).await.expect("not written"));
    let found = store.activity(shop, &id("a1")).await.expect("read").expect("found");
    assert_eq!((found.devices, found.cursor), (2, None));
    assert_eq!(store.activities_to_collect(9).await.expect("read"), []);

    let (slice, activity) = one(store, 0).await;
    assert_eq!((slice.version, slice.members, slice.take), (0, 2, 1));
    let read = recipients(store, slice, &activity).await;
    assert_eq!(read.iter().map(|recipient| recipient.num).collect::<Vec<_>>(), [a, b]);
    assert!(read[0].token.is_none() && read[0].start.is_some() && read[0].fcm.is_none());
    assert!(read[1].token.is_none() && read[1].start.is_none());
    let fcm = read[1].fcm.clone().expect("the main token");
    assert_eq!((fcm.token.service, fcm.key.to_string()), (PushService::Fcm, "fcm".to_owned()));
}

pub(crate) async fn a_slice_holds_a_bounded_number_of_devices(store: &dyn Store) {
    let app = app(store, "shop").await;
    let count = limits::ACTIVITY_SLICE_DEVICES as u64 + 200;
    let names = (0..count)
        .map(|i| Registration { device: Some(device(&format!("d{i}"))), ..Registration::default() });
    let registered = store.register(app, names.collect(), NOW).await.expect("registered");
    let nums: Vec<_> = registered.into_iter().map(|device| device.expect("registered").num).collect();
    let activity = created(store, new(app, "a1")).await;
    add(store, &activity, &nums).await;
    let taken = taken(store, 0).await;
    let mut members: Vec<_> = taken.slices.iter().map(|slice| slice.members).collect();
    members.sort_unstable();
    assert_eq!(members, [200, 500]);
    assert_eq!(taken.activities[0].devices, count);
    let mut found = 0;
    for slice in &taken.slices {
        found += recipients(store, *slice, &taken.activities[0]).await.len() as u64;
    }
    assert_eq!(found, count);
}

/// However many updates come, one entry waits, and the sender reads the newest state.
pub(crate) async fn updates_are_coalesced(store: &dyn Store) {
    let app = app(store, "shop").await;
    let device = with_tokens(store, app, "d", &["live-activity/a1"]).await;
    let activity = created(store, new(app, "a1")).await;
    add(store, &activity, &[device]).await;
    let (slice, activity) = one(store, 1).await;
    assert_eq!(taken(store, 1).await.slices, [], "it is leased");
    // Updates during the send.
    for version in 1..4 {
        let change = state(&activity, version, &format!("[{version}]"));
        store.change_activity(change, at(2)).await.expect("changed");
    }
    let progress = store.activity_progress(activity.num).await.expect("read");
    assert_eq!((progress.current, progress.waiting), (0, 1));
    settle(store, sent(slice, &activity), 3).await;
    let (slice, newest) = one(store, 3).await;
    assert_eq!((slice.version, newest.version, newest.state.as_str()), (1, 4, "[3]"));
    assert_eq!(recipients(store, slice, &newest).await.len(), 1);
    settle(store, sent(slice, &newest), 4).await;
    let progress = store.activity_progress(activity.num).await.expect("read");
    assert_eq!((progress.current, progress.waiting), (1, 0));
    let next = taken(store, 4).await;
    assert_eq!((next.slices, next.next_due), (vec![], None), "nothing is left");
    // And while it waits.
    for version in 4..7 {
        store.change_activity(state(&activity, version, "[]"), at(5)).await.expect("changed");
    }
    let (slice, newest) = one(store, 6).await;
    assert_eq!((slice.version, newest.version), (4, 7));
    let next = taken(store, 6).await;
    assert_eq!(next.slices, []);
}

pub(crate) async fn a_slice_is_taken_again_after_its_lease(store: &dyn Store) {
    let app = app(store, "shop").await;
    let device = with_tokens(store, app, "d", &["live-activity/a1"]).await;
    let activity = created(store, new(app, "a1")).await;
    add(store, &activity, &[device]).await;
    // With several nodes, leases end by the clock of the engine.
    let ask = |seconds, holder, lease| TakeSlices { lease, ..asked(seconds, holder) };
    let busy = TakeSlices { busy: vec![app], ..asked(0, 1) };
    assert_eq!(store.take_slices(busy).await.expect("taken").slices, []);
    let short = Duration::from_millis(1);
    let first = store.take_slices(ask(0, 1, short)).await.expect("taken").slices[0];
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = store.take_slices(ask(1, 2, LEASE)).await.expect("taken").slices[0];
    assert_eq!((second.id, second.take, second.takes), (first.id, first.take + 1, 2));
    // The first process was only slow: its results do not count.
    settle(store, SettledSlice { version: 9, ..sent(first, &activity) }, 2).await;
    store.renew_slices(1, vec![first.id], LEASE, at(1)).await.expect("renewed");
    store.renew_slices(2, vec![second.id, 99], LEASE, at(1)).await.expect("renewed");
    let results = SettledSlice { counts: vec![(Outcome::Pushed, None, 1)], ..sent(second, &activity) };
    let settled = store.settle_slices(2, vec![results.clone()], at(3)).await;
    assert_eq!(settled.expect("settled"), None, "nothing is due");
    store.settle_slices(2, vec![results], at(3)).await.expect("ignored");
    let progress = store.activity_progress(activity.num).await.expect("read");
    assert_eq!((progress.current, progress.waiting), (1, 0));
    assert_eq!(progress.counts, [(Outcome::Pushed, String::new(), 1)], "counted once");
}

pub(crate) async fn a_device_that_failed_stays_behind(store: &dyn Store) {
    let app = app(store, "shop").await;
    let good = with_tokens(store, app, "good", &["live-activity/a1"]).await;
    let bad = with_tokens(store, app, "bad", &["live-activity/a1"]).await;
    let activity = created(store, new(app, "a1")).await;
    add(store, &activity, &[good, bad]).await;
    let (slice, activity) = one(store, 1).await;
    let results = SettledSlice {
        started: vec![good],
        again: vec![bad],
        due_at: Some(at(9)),
        attempt: 1,
        counts: vec![(Outcome::Pushed, None, 1)],
        ..sent(slice, &activity)
    };
    settle(store, results, 2).await;
    let early = taken(store, 3).await;
    assert_eq!((early.slices.len(), early.next_due), (0, Some(at(9))));
    let member = async |name: &str| {
        let found = store.activity_member(activity.num, &device(name), ATTRIBUTES).await;
        found.expect("read").expect("takes part")
    };
    let (one_good, one_bad) = (member("good").await, member("bad").await);
    assert_eq!((one_good.started, one_good.waits, one_good.version), (1, false, 1));
    assert_eq!(
        (one_good.outcome, one_good.at, one_good.has_token),
        (Some(Outcome::Pushed), Some(at(2)), true)
    );
    assert_eq!((one_bad.started, one_bad.waits, one_bad.due_at), (0, true, Some(at(9))));
    let (slice, activity) = one(store, 9).await;
    assert_eq!((slice.attempt, slice.takes), (1, 1));
    let read = recipients(store, slice, &activity).await;
    assert_eq!(read.iter().map(|recipient| recipient.num).collect::<Vec<_>>(), [bad]);
    let refused = SettledSlice {
        parts: vec![(Outcome::PushRefused, Some("PayloadEmpty"), vec![bad])],
        counts: vec![(Outcome::PushRefused, Some("PayloadEmpty"), 1)],
        ..sent(slice, &activity)
    };
    settle(store, refused, 10).await;
    let one_bad = member("bad").await;
    assert_eq!((one_bad.outcome, one_bad.waits), (Some(Outcome::PushRefused), false));
    assert_eq!(one_bad.reason.as_deref(), Some("PayloadEmpty"));
    // The next state goes to both.
    store.change_activity(state(&activity, 1, "{}"), at(11)).await.expect("changed");
    let (slice, activity) = one(store, 11).await;
    assert_eq!(recipients(store, slice, &activity).await.len(), 2);
    let stranger = store.activity_member(activity.num, &device("nobody"), ATTRIBUTES).await;
    assert_eq!(stranger.expect("read"), None);
}

pub(crate) async fn a_slice_keeps_its_newest_attempts(store: &dyn Store) {
    let app = app(store, "shop").await;
    let a = with_tokens(store, app, "a", &["live-activity/a1"]).await;
    let b = with_tokens(store, app, "b", &["live-activity/a1"]).await;
    let (first, other) = (created(store, new(app, "a1")).await, created(store, new(app, "a2")).await);
    add(store, &first, &[a, b]).await;
    add(store, &other, &[a]).await;
    let record = |text: String, devices: &[DeviceNum], until| {
        let (keep_until, devices) = (at(until), devices.to_vec());
        Some(Box::new(PushRecord { keep_until, devices, attempts: text.into_bytes() }))
    };
    let attempts = async |activity: &Activity, name: &str| {
        let member = store.activity_member(activity.num, &device(name), ATTRIBUTES).await;
        let attempts = member.expect("read").expect("takes part").attempts;
        attempts.into_iter().map(|text| String::from_utf8(text).expect("text")).collect::<Vec<_>>()
    };
    let taken = taken(store, 0).await;
    let of = |activity: &Activity| {
        taken.slices.iter().copied().find(|slice| slice.activity == activity.num).expect("taken")
    };
    let results = SettledSlice {
        failed: record("failed".to_owned(), &[b], 500),
        accepted: record("other".to_owned(), &[a], 500),
        ..sent(of(&other), &other)
    };
    settle(store, results, 0).await;
    // Accepted pushes displace no failure, and stale results nothing.
    let (mut slice, mut activity) = (of(&first), first);
    let count = limits::ACTIVITY_SLICE_RECORDS as u64 + 3;
    for number in 1..=count {
        let results = SettledSlice {
            failed: if number == 1 { record("failed".to_owned(), &[b], 500) } else { None },
            accepted: record(number.to_string(), &[a], 400),
            ..sent(slice, &activity)
        };
        settle(store, results.clone(), number).await;
        settle(store, results, number).await;
        let change = state(&activity, number, "{}");
        store.change_activity(change, at(number)).await.expect("changed");
        (slice, activity) = one(store, number).await;
    }
    let kept: Vec<String> = (4..=count).map(|number| number.to_string()).collect();
    assert_eq!(attempts(&activity, "a").await, kept);
    assert_eq!(attempts(&activity, "b").await, ["failed"]);
    assert_eq!(attempts(&other, "a").await, ["other"]);
    settle(store, sent(slice, &activity), 300).await;
    store.prune(at(400), 100).await.expect("pruned");
    assert!(attempts(&activity, "a").await.is_empty());
    assert_eq!(attempts(&activity, "b").await, ["failed"]);
    // They end with their activity.
    let end = ActivityChange { forget_at: Some(at(401)), ..state(&activity, activity.version, "{}") };
    store.change_activity(end, at(401)).await.expect("ended");
    while store.prune_activities(at(401), 100).await.expect("pruned").1 {}
    assert_eq!(attempts(&other, "a").await, ["other"]);
    assert_eq!(store.prune(at(500), 100).await.expect("pruned").push_records, 2, "those of the other one");
    store.delete_app(app).await.expect("deleted");
}

pub(crate) async fn a_device_joins_with_its_token(store: &dyn Store) {
    let (shop, other) = (app(store, "shop").await, app(store, "other").await);
    let invited = with_tokens(store, shop, "invited", &["live-activity-start"]).await;
    let stranger = with_tokens(store, shop, "stranger", &[]).await;
    let foreign = with_tokens(store, other, "foreign", &[]).await;
    let activity = created(store, new(shop, "a1")).await;
    add(store, &activity, &[invited]).await;
    let join =
        async |app, name: &str, num| store.join_activity(app, &id(name), num, at(5)).await.expect("joined");
    assert_eq!(join(shop, "a2", invited).await, Joined::NoActivity);
    assert_eq!(join(other, "a1", foreign).await, Joined::NoActivity);
    assert_eq!(join(shop, "a1", stranger).await, Joined::NotInvited);
    assert_eq!(join(shop, "a1", foreign).await, Joined::NotInvited);

    let (slice, activity) = one(store, 1).await;
    let started = SettledSlice { started: vec![invited], ..sent(slice, &activity) };
    settle(store, started, 2).await;
    assert_eq!(join(shop, "a1", invited).await, Joined::Current, "the start had the newest state");
    assert_eq!(taken(store, 5).await.slices, []);
    store.change_activity(state(&activity, 1, "{}"), at(5)).await.expect("changed");
    let (slice, newest) = one(store, 5).await;
    // While the update is on the way.
    assert_eq!(join(shop, "a1", invited).await, Joined::Behind);
    settle(store, sent(slice, &newest), 6).await;
    let (slice, newest) = one(store, 6).await;
    assert_eq!((slice.version, recipients(store, slice, &newest).await.len()), (2, 1));
    settle(store, sent(slice, &newest), 7).await;
    assert_eq!(taken(store, 7).await.slices, []);

    let open = created(store, NewActivity { joinable: true, ..new(shop, "open") }).await;
    assert_eq!(join(shop, "open", foreign).await, Joined::NotInvited, "of another app");
    assert_eq!(join(shop, "open", stranger).await, Joined::Behind);
    let (slice, open) = (taken(store, 8).await.slices[0], open);
    assert_eq!((slice.activity, slice.members), (open.num, 1));
}

pub(crate) async fn a_device_of_another_user_gets_nothing(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = with_tokens(store, app, "d", &["live-activity/a1", "live-activity/a2"]).await;
    let of_users = created(store, NewActivity { of_users: true, ..new(app, "a1") }).await;
    let of_topic = created(store, new(app, "a2")).await;
    add(store, &of_users, &[num]).await;
    add(store, &of_topic, &[num]).await;
    let change = DeviceChange { user: Some(Some(user("another"))), ..DeviceChange::default() };
    store.update_device(app, &device("d"), change, at(5)).await.expect("changed");
    let taken = taken(store, 6).await;
    for slice in taken.slices {
        let activity = taken.activities.iter().find(|activity| activity.num == slice.activity).expect("read");
        let expected = usize::from(activity.num == of_topic.num);
        assert_eq!(recipients(store, slice, activity).await.len(), expected);
    }
    let member = store.activity_member(of_users.num, &device("d"), ATTRIBUTES).await.expect("read");
    assert!(member.expect("a row").is_of_another_user);
}

pub(crate) async fn the_end_removes_the_tokens_and_later_the_rows(store: &dyn Store) {
    let app = app(store, "shop").await;
    let keys = ["live-activity/a1", "live-activity/a2", "live-activity-start", "alert"];
    let num = with_tokens(store, app, "d", &keys).await;
    let late = with_tokens(store, app, "late", &keys).await;
    let activity = created(store, new(app, "a1")).await;
    add(store, &activity, &[num, late]).await;
    let (slice, activity) = one(store, 1).await;
    settle(store, sent(slice, &activity), 2).await;
    assert_eq!(store.expired_activities(at(3_599), 9).await.expect("read"), []);
    assert_eq!(store.expired_activities(at(3_600), 9).await.expect("read"), [(app, id("a1"))]);
    let end = ActivityChange { forget_at: Some(at(100)), ..state(&activity, 1, "{}") };
    store.change_activity(end, at(50)).await.expect("ended");
    assert_eq!(store.expired_activities(at(3_600), 9).await.expect("read"), []);
    let (slice, ended) = one(store, 50).await;
    let results = SettledSlice { again: vec![late], due_at: Some(at(60)), ..sent(slice, &ended) };
    settle(store, results, 51).await;
    let tokens = async |name: &str| {
        let device = store.device(app, &device(name)).await.expect("read").expect("found");
        device.push_tokens.iter().map(|token| token.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(tokens("d").await, ["live-activity-start", "live-activity/a2"]);
    assert_eq!(tokens("late").await.len(), 3, "its end is not sent yet");

    assert_eq!(store.prune_activities(at(99), 100).await.expect("pruned"), (0, false));
    let mut rounds = 0;
    while store.prune_activities(at(100), 1).await.expect("pruned").1 {
        rounds += 1;
    }
    assert!((2..10).contains(&rounds), "{rounds}");
    assert_eq!(store.activity(app, &id("a1")).await.expect("read"), None);
    assert_eq!(taken(store, 999).await.slices, []);
}

pub(crate) async fn reported_tokens_of_activities_are_invalidated(store: &dyn Store) {
    let app = app(store, "shop").await;
    let keys = ["live-activity/a1", "live-activity/a2", "alert", "fcm"];
    let num = with_tokens(store, app, "d", &keys).await;
    let other = with_tokens(store, app, "other", &keys).await;
    let gone = |device| InvalidToken { device, token_at: NOW, since: None, reason: "Unregistered" };
    let report = |key: &str, gone, suspects| TokenReport {
        app,
        key: TokenKey::parse(key).expect("a key"),
        gone,
        suspects,
    };
    let doubt = SuspectToken { device: other, token_at: NOW, reason: "BadDeviceToken" };
    let reports = vec![
        report("live-activity/a1", vec![gone(num)], vec![doubt]),
        report("fcm", vec![gone(num)], vec![]),
    ];
    assert_eq!(store.invalidate_tokens(reports, at(5)).await.expect("written"), (2, 1));
    let found = store.device(app, &device("d")).await.expect("read").expect("found");
    let keys: Vec<_> = found.all_push_tokens().iter().map(|token| token.key.to_string()).collect();
    assert_eq!(keys, ["alert", "live-activity/a2"]);
    let listed = store.invalidations(app, 0, 9).await.expect("listed");
    assert_eq!(listed.len(), 3);
    let again = TokenChange::Set(NewToken {
        key: TokenKey::parse("live-activity/a1").expect("a key"),
        token: token_of(PushService::Apns, "new"),
        expires_at: None,
        only_if_missing: false,
    });
    let change = DeviceChange { push_tokens: vec![again], ..DeviceChange::default() };
    store.update_device(app, &device("other"), change, at(6)).await.expect("changed");
    let late = vec![report("live-activity/a1", vec![gone(other)], vec![])];
    assert_eq!(
        store.invalidate_tokens(late, at(7)).await.expect("ignored"),
        (0, 0),
        "it was registered since"
    );
}

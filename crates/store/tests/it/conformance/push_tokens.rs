//! Several push tokens of a device: the main token, the others, and pushes to one of them.

use noroshi_store::{
    Audience, Device, DeviceChange, DeviceToken, Error, Finished, InvalidToken, NewToken, Registration,
    Store, SuspectToken, TokenChange, UploadLine, Work,
};
use noroshi_types::{
    AppId, Condition, DeviceNum, JsonText, Lane, Outcome, Push, PushService, PushToken, Request, Timestamp,
    TokenKey, limits,
};

use super::fixture::*;
use super::push_fixture::*;

fn key(text: &str) -> TokenKey {
    TokenKey::parse(text).expect(text)
}

/// A token whose text tells its kind and name.
fn json_of(key: &TokenKey, text: &str) -> PushToken {
    token_of(key.kind().service(), &format!("{key} {text}"))
}

fn new(name: &str, text: &str) -> NewToken {
    let key = key(name);
    NewToken { token: json_of(&key, text), key, expires_at: None, only_if_missing: false }
}

fn set(name: &str, text: &str) -> TokenChange {
    TokenChange::Set(new(name, text))
}

fn until(name: &str, seconds: u64) -> TokenChange {
    TokenChange::Set(NewToken { expires_at: Some(at(seconds)), ..new(name, "1") })
}

async fn change(
    store: &dyn Store,
    app: AppId,
    changes: Vec<TokenChange>,
    seconds: u64,
) -> Result<Device, Error> {
    let change = DeviceChange { push_tokens: changes, ..DeviceChange::default() };
    store.update_device(app, &device("d"), change, at(seconds)).await
}

/// The device of this id with the tokens of this list.
async fn with_tokens(store: &dyn Store, app: AppId, id: &str, names: &[&str]) -> DeviceNum {
    let registration = Registration {
        device: Some(device(id)),
        user: Some(user("u1")),
        topics: topics(&["news"]),
        push_tokens: names.iter().map(|name| new(name, "1")).collect(),
        ..Registration::default()
    };
    store.register(app, vec![registration], NOW).await.expect("registered").remove(0).expect("a device").num
}

async fn found(store: &dyn Store, app: AppId) -> Device {
    store.device(app, &device("d")).await.expect("read").expect("found")
}

/// The main token's kind, and the keys of the others.
fn keys(device: &Device) -> (Option<String>, Vec<String>) {
    let main = device.main_token().map(|token| token.key.to_string());
    (main, device.push_tokens.iter().map(|token| token.key.to_string()).collect())
}

fn main(kind: &str, others: &[&str]) -> (Option<String>, Vec<String>) {
    (Some(kind.to_owned()), others.iter().map(|name| (*name).to_owned()).collect())
}

pub(crate) async fn several_tokens_are_kept_for_a_device(store: &dyn Store) {
    let app = app(store, "shop").await;
    with_tokens(store, app, "d", &["voip", "alert", "controls/lamp"]).await;
    with_tokens(store, app, "other", &["voip"]).await;
    assert_eq!(keys(&found(store, app).await), main("alert", &["voip", "controls/lamp"]));

    let changed = change(store, app, vec![set("voip", "2"), until("live-activity/a1", 60)], 5).await;
    let changed = changed.expect("changed");
    let read = found(store, app).await;
    assert_eq!(changed.all_push_tokens(), read.all_push_tokens());
    let token = |name: &str| read.push_tokens.iter().find(|token| token.key == key(name)).cloned();
    let expected = DeviceToken {
        key: key("voip"),
        token: json_of(&key("voip"), "2"),
        registered_at: at(5),
        suspect: None,
        expires_at: None,
    };
    assert_eq!(token("voip"), Some(expected));
    assert_eq!(token("controls/lamp").map(|token| token.registered_at), Some(NOW), "unchanged");
    assert_eq!(token("live-activity/a1").and_then(|token| token.expires_at), Some(at(60)));

    let older = NewToken { only_if_missing: true, ..new("voip", "0") };
    let lost = NewToken { only_if_missing: true, ..new("widgets", "0") };
    let fcm = NewToken { only_if_missing: true, ..new("fcm", "0") };
    let changes = [older, lost, fcm].map(TokenChange::Set).to_vec();
    let changed = change(store, app, changes, 6).await.expect("changed");
    let others = ["fcm", "voip", "widgets", "controls/lamp", "live-activity/a1"];
    assert_eq!(keys(&changed), main("alert", &others), "the main token stays");
    let voip = changed.push_tokens.iter().find(|token| token.key == key("voip")).cloned();
    assert_eq!(voip.map(|token| token.token), Some(json_of(&key("voip"), "2")));

    change(store, app, vec![TokenChange::Remove(key("voip"))], 7).await.expect("removed");
    let again = change(store, app, vec![TokenChange::Remove(key("voip"))], 8).await;
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
    assert_eq!(store.devices(app, Default::default()).await.expect("read"), []);
    let listed = noroshi_store::DeviceFilter { limit: 9, ..Default::default() };
    let listed = store.devices(app, listed).await.expect("read");
    assert_eq!(listed[0], found(store, app).await);
    assert_eq!(keys(&listed[1]), (None, vec!["voip".to_owned()]));
}

pub(crate) async fn the_message_token_registered_last_is_the_main_one(store: &dyn Store) {
    let app = app(store, "shop").await;
    with_tokens(store, app, "d", &["alert"]).await;
    let changed = change(store, app, vec![set("fcm", "1"), set("webpush", "1")], 1).await.expect("changed");
    assert_eq!(keys(&changed), main("webpush", &["alert", "fcm"]));
    let alert = changed.push_tokens[0].clone();
    assert_eq!((alert.token, alert.registered_at), (json_of(&key("alert"), "1"), NOW));
    // The shorthand does the same.
    let token = token_of(PushService::Apns, "2");
    let change_main = |token| DeviceChange { push_token: Some(token), ..DeviceChange::default() };
    let changed = store.update_device(app, &device("d"), change_main(Some(token)), at(2)).await;
    assert_eq!(keys(&changed.expect("changed")), main("alert", &["webpush", "fcm"]));
    change(store, app, vec![set("fcm", "3"), set("alert", "3")], 3).await.expect("changed");
    let changed = change(store, app, vec![TokenChange::Remove(key("alert"))], 4).await.expect("changed");
    assert_eq!(keys(&changed), main("fcm", &["webpush"]));
    assert_eq!(changed, found(store, app).await);
    assert_eq!(changed.push_token_at, Some(at(3)));
    // No ordinary push may follow.
    change(store, app, vec![set("voip", "5")], 5).await.expect("changed");
    let changed = store.update_device(app, &device("d"), change_main(None), at(6)).await.expect("changed");
    assert_eq!(keys(&changed), (None, vec!["voip".to_owned()]));
    assert_eq!(changed, found(store, app).await);
}

pub(crate) async fn a_device_has_a_bounded_number_of_tokens(store: &dyn Store) {
    let app = app(store, "shop").await;
    with_tokens(store, app, "d", &["alert"]).await;
    let count = limits::PUSH_TOKENS_PER_DEVICE_MAX - 1;
    let many: Vec<_> = (1..count).map(|n| set(&format!("controls/c{n}"), "1")).collect();
    change(store, app, many, 1).await.expect("within the limit");
    change(store, app, vec![until("live-activity/a", 60)], 1).await.expect("within the limit");
    for more in ["voip", "fcm"] {
        let refused = change(store, app, vec![set(more, "1")], 2).await;
        assert!(matches!(&refused, Err(Error::Limit(text)) if text.contains("32")), "{more}: {refused:?}");
    }
    assert_eq!(found(store, app).await.all_push_tokens().len(), count + 1);
    change(store, app, vec![set("alert", "2"), set("controls/c1", "2")], 2).await.expect("replaced");
    // An expired token leaves room.
    let changed = change(store, app, vec![set("voip", "1")], 60).await.expect("within the limit");
    assert_eq!(changed.all_push_tokens().len(), count + 1);
    assert!(!changed.push_tokens.iter().any(|token| token.expires_at.is_some()));
    assert_eq!(changed, found(store, app).await);
    let registration = Registration {
        device: Some(device("new")),
        push_tokens: (0..=count + 1).map(|n| new(&format!("controls/c{n}"), "1")).collect(),
        ..Registration::default()
    };
    let refused = store.register(app, vec![registration], NOW).await.expect("answered").remove(0);
    assert!(matches!(refused, Err(Error::Limit(_))), "{refused:?}");
}

fn to_token(target: noroshi_types::Target, token: &str) -> Request {
    Request { push: Push { token: Some(key(token)), ..always() }, ..stored(target) }
}

fn gone(device: DeviceNum, token_at: Timestamp) -> InvalidToken {
    InvalidToken { device, token_at, since: None, reason: "Unregistered" }
}

pub(crate) async fn a_push_goes_to_the_token_it_names(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = with_tokens(store, app, "d", &["alert", "voip", "controls/lamp", "fcm"]).await;
    let plain = with_tokens(store, app, "plain", &["alert"]).await;
    for (token, service, json) in [
        ("voip", PushService::Apns, Some("voip 1")),
        ("controls/lamp", PushService::Apns, Some("controls/lamp 1")),
        ("fcm", PushService::Fcm, Some("fcm 1")),
        ("alert", PushService::Apns, Some("alert 1")),
        ("controls", PushService::Apns, None),
    ] {
        let accepted = send_at(store, app, to_token(users(&["u1"]), token), NOW).await;
        let without: Vec<DeviceNum> = match (token, json) {
            ("alert", _) => vec![],
            (_, Some(_)) => vec![plain],
            (_, None) => vec![d, plain],
        };
        let parts = outcomes_of(&accepted).into_iter().filter(|part| part.0 == Outcome::NoPushToken);
        let found: Vec<DeviceNum> = parts.flat_map(|part| part.1).collect();
        assert_eq!(found, without, "{token}");
        let batches = take(store, 1).await.batches;
        let Some(json) = json else {
            assert_eq!(batches, []);
            continue;
        };
        let batch = batches[0].clone();
        assert_eq!((batches.len(), batch.service), (1, Some(service)));
        assert_eq!(batch.token, Some(key(token)));
        let recipients = recipients_of(store, &batch).await;
        let texts = recipients.iter().map(|found| found.token.as_ref().expect("a token").json.as_str());
        assert!(texts.clone().all(|text| text.contains(json)), "{token}: {:?}", texts.collect::<Vec<_>>());
        assert_eq!(recipients.len(), if token == "alert" { 2 } else { 1 });
        let Work::Notification(id) = batch.work else { panic!("a notification") };
        let content = store.push_content(app, id).await.expect("read").expect("found");
        assert_eq!(content.push.token, Some(key(token)));
        // A retry is for the same token.
        let finished = Finished { again: vec![again(5, 1, &[d])], ..ended(batch.id) };
        store.finish(vec![finished], at(2)).await.expect("finished");
        let batches = take(store, 6).await.batches;
        assert_eq!((batches.len(), batches[0].token.clone()), (1, Some(key(token))));
        end_all(store, batches, Outcome::Pushed).await;
    }
}

pub(crate) async fn an_invalid_token_is_removed_alone(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = with_tokens(store, app, "d", &["alert", "voip", "controls/lamp"]).await;
    let finish = async |token: Option<&str>, gone: Vec<InvalidToken>, suspects: Vec<SuspectToken>| {
        let request = match token {
            Some(token) => to_token(devices(&["d"]), token),
            None => Request { push: always(), ..stored(devices(&["d"])) },
        };
        send(store, app, request).await;
        let batch = take(store, 1).await.batches.remove(0);
        let finished = Finished { gone, suspects, ..ended(batch.id) };
        let counts = store.finish(vec![finished], at(9)).await.expect("finished");
        (counts.tokens_removed, counts.tokens_suspected)
    };
    assert_eq!(finish(Some("voip"), vec![gone(d, at(1))], Vec::new()).await, (0, 0), "registered again");
    assert_eq!(finish(Some("voip"), vec![gone(d, NOW), gone(d, NOW)], Vec::new()).await, (1, 0));
    assert_eq!(keys(&found(store, app).await), main("alert", &["controls/lamp"]));
    let suspect = || vec![SuspectToken { device: d, token_at: NOW, reason: "BadDeviceToken" }];
    assert_eq!(finish(Some("controls/lamp"), Vec::new(), suspect()).await, (0, 1));
    let read = found(store, app).await;
    assert_eq!(read.push_suspect, None);
    let doubt = read.push_tokens[0].suspect.clone().expect("suspended");
    assert_eq!((doubt.at, doubt.reason.as_str()), (at(9), "BadDeviceToken"));
    let members = store.audience(app, &Audience::Everyone, 0, 9, Some(key("controls/lamp"))).await;
    assert!(members.expect("read").members[0].suspect);
    let accepted = send_at(store, app, to_token(devices(&["d"]), "controls/lamp"), NOW).await;
    assert!(outcomes_of(&accepted).iter().any(|part| part.0 == Outcome::PushTokenSuspect));
    change(store, app, vec![set("controls/lamp", "2")], 10).await.expect("registered again");
    assert_eq!(found(store, app).await.push_tokens[0].suspect, None);
    assert_eq!(finish(None, vec![gone(d, NOW)], Vec::new()).await, (1, 0));
    let records = store.invalidations(app, 0, 9).await.expect("read");
    let records = records.iter().map(|one| (one.key.to_string(), one.removed));
    let expected = [("voip", true), ("controls/lamp", false), ("alert", true)];
    assert_eq!(records.collect::<Vec<_>>(), expected.map(|(key, removed)| (key.to_owned(), removed)));
}

pub(crate) async fn another_message_token_replaces_an_invalid_main_token(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = with_tokens(store, app, "d", &["alert", "voip"]).await;
    change(store, app, vec![set("fcm", "1")], 1).await.expect("changed");
    change(store, app, vec![set("webpush", "1")], 2).await.expect("changed");
    change(store, app, vec![set("alert", "2")], 3).await.expect("changed");
    let lose = async |token: Option<&str>, token_at: Timestamp| {
        let request = match token {
            Some(token) => to_token(devices(&["d"]), token),
            None => Request { push: always(), ..stored(devices(&["d"])) },
        };
        send(store, app, request).await;
        let batch = take(store, 1).await.batches.remove(0);
        let finished = Finished { gone: vec![gone(d, token_at)], ..ended(batch.id) };
        store.finish(vec![finished], at(9)).await.expect("finished").tokens_removed
    };
    assert_eq!(lose(None, at(3)).await, 1);
    let read = found(store, app).await;
    assert_eq!(keys(&read), main("webpush", &["fcm", "voip"]));
    assert_eq!(read.push_token_at, Some(at(2)));
    // By its own name, the main token is the same token.
    assert_eq!(lose(Some("webpush"), at(2)).await, 1);
    assert_eq!(keys(&found(store, app).await), main("fcm", &["voip"]));
    assert_eq!(lose(None, at(1)).await, 1);
    assert_eq!(keys(&found(store, app).await), (None, vec!["voip".to_owned()]));
    // A push to the former main token is under way while another one is registered.
    change(store, app, vec![set("alert", "4")], 14).await.expect("changed");
    send(store, app, Request { push: always(), ..stored(devices(&["d"])) }).await;
    let batch = take(store, 15).await.batches.remove(0);
    change(store, app, vec![set("fcm", "4")], 16).await.expect("changed");
    let finished = Finished { gone: vec![gone(d, at(14))], ..ended(batch.id) };
    assert_eq!(store.finish(vec![finished], at(17)).await.expect("finished").tokens_removed, 1);
    assert_eq!(keys(&found(store, app).await), main("fcm", &["voip"]));
}

pub(crate) async fn walks_and_campaigns_keep_their_token(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = with_tokens(store, app, "d", &["alert", "voip", "controls/lamp"]).await;
    let plain = with_tokens(store, app, "plain", &["fcm"]).await;
    let id = {
        let campaign = new_campaign(app, noroshi_store::CampaignState::Draft);
        let id = store.create_campaign(campaign, NOW).await.expect("created").campaign.id;
        let line = UploadLine { user: user("u1"), line: JsonText::from_valid("{}") };
        store.upload(app, id, vec![line], Default::default(), NOW).await.expect("uploaded");
        id
    };
    let condition = Condition::parse("'news' in topics").expect("a condition");
    for audience in [
        Audience::Everyone,
        Audience::Topic(topic("news")),
        Audience::Condition(condition),
        Audience::Upload(id),
    ] {
        for (token, expected) in [
            (None, [Some(PushService::Apns), Some(PushService::Fcm)]),
            (Some("controls/lamp"), [Some(PushService::Apns), None]),
            (Some("fcm"), [None, Some(PushService::Fcm)]),
        ] {
            let token = token.map(key);
            let page = store.audience(app, &audience, 0, 9, token.clone()).await.expect("read");
            let found: Vec<_> = page.members.iter().map(|member| (member.num, member.service)).collect();
            assert_eq!(found, [(d, expected[0]), (plain, expected[1])], "{audience:?} {token:?}");
        }
    }
    send(store, app, to_token(to_topic("news"), "voip")).await;
    let walk = store.walks(at(1), 9).await.expect("read").due.remove(0);
    assert_eq!(walk.token, Some(key("voip")));
    let page = vec![batch(Lane::Direct, 0, &[d])];
    assert!(store.walked(&walk, page, Some(d.0), Vec::new(), at(1)).await.expect("written"));
    let walk = store.walks(at(1), 9).await.expect("read").due.remove(0);
    let page = vec![batch(Lane::Direct, 0, &[plain])];
    assert!(store.walked(&walk, page, None, Vec::new(), at(1)).await.expect("written"));
    let of_campaign = running(store, app).await;
    let page =
        noroshi_store::NewBatch { token: Some(key("controls/lamp")), ..batch(Lane::Campaign, 0, &[d]) };
    store.enqueue(of_campaign, 0, vec![page], 1, true, Vec::new(), NOW).await.expect("enqueued");
    let tokens =
        take(store, 1).await.batches.into_iter().map(|batch| batch.token.expect("a token").to_string());
    assert_eq!(tokens.collect::<Vec<_>>(), ["voip", "voip", "controls/lamp"]);
}

pub(crate) async fn expired_tokens_are_removed_in_slices(store: &dyn Store) {
    let app = app(store, "shop").await;
    with_tokens(store, app, "d", &["alert"]).await;
    let changes = (0..9).map(|n| until(&format!("live-activity/a{n}"), 60 + n)).chain([set("voip", "1")]);
    change(store, app, changes.collect(), 1).await.expect("changed");
    let request = to_token(devices(&["d"]), "live-activity/a0");
    send(store, app, request).await;
    let batch = take(store, 61).await.batches.remove(0);
    assert_eq!(recipients_of(store, &batch).await[0].token_expires_at, Some(at(60)));
    assert_eq!(store.prune(at(59), 4).await.expect("pruned").push_tokens, 0);
    let pruned = store.prune(at(65), 4).await.expect("pruned");
    assert_eq!((pruned.push_tokens, pruned.more), (4, true));
    assert_eq!(store.prune(at(65), 4).await.expect("pruned").push_tokens, 2);
    let left = ["voip", "live-activity/a6", "live-activity/a7", "live-activity/a8"];
    assert_eq!(keys(&found(store, app).await), main("alert", &left));
}

pub(crate) async fn tokens_end_with_their_device(store: &dyn Store) {
    let app = app(store, "shop").await;
    with_tokens(store, app, "d", &["alert", "voip"]).await;
    with_tokens(store, app, "kept", &["voip"]).await;
    store.delete_device(app, &device("d"), NOW).await.expect("deleted");
    with_tokens(store, app, "d", &[]).await;
    assert_eq!(keys(&found(store, app).await), (None, vec![]));
    let kept = store.device(app, &device("kept")).await.expect("read").expect("found");
    assert_eq!(keys(&kept), (None, vec!["voip".to_owned()]));
}

/// Rows that a program without these tokens wrote: devices with one token, push work, and an invalidation.
pub(crate) async fn before_the_upgrade(store: &dyn Store) -> (AppId, Vec<DeviceNum>) {
    let app = app(store, "shop").await;
    let nums = [
        with_tokens(store, app, "d", &["alert"]).await,
        with_tokens(store, app, "other", &["fcm"]).await,
        with_tokens(store, app, "lost", &["webpush"]).await,
    ];
    send(store, app, Request { push: always(), ..stored(devices(&["lost"])) }).await;
    let batch = take(store, 0).await.batches.remove(0);
    let finished = Finished { gone: vec![gone(nums[2], NOW)], ..ended(batch.id) };
    store.finish(vec![finished], at(1)).await.expect("finished");
    send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    send(store, app, Request { push: always(), ..stored(to_topic("news")) }).await;
    (app, nums.to_vec())
}

/// The same rows after the upgrade. Leaves each of the first two devices with one more token.
pub(crate) async fn after_the_upgrade(store: &dyn Store, app: AppId, nums: &[DeviceNum]) {
    assert_eq!(keys(&found(store, app).await), main("alert", &[]));
    let batches = take(store, 2).await.batches;
    assert_eq!(batches.iter().map(|batch| batch.token.clone()).collect::<Vec<_>>(), [None, None]);
    let recipients = recipients_of(store, &batches[0]).await;
    assert_eq!(recipients[0].token, Some(json_of(&key("alert"), "1")));
    let walk = store.walks(at(2), 9).await.expect("read").due.remove(0);
    assert_eq!(walk.token, None);
    let records = store.invalidations(app, 0, 9).await.expect("read");
    assert_eq!(records.iter().map(|one| one.key.to_string()).collect::<Vec<_>>(), ["webpush"]);
    assert_eq!(with_tokens(store, app, "d", &["voip"]).await, nums[0]);
    assert_eq!(with_tokens(store, app, "other", &["alert"]).await, nums[1]);
}

pub(crate) async fn after_a_restart(store: &dyn Store, app: AppId) {
    let other = store.device(app, &device("other")).await.expect("read").expect("found");
    assert_eq!(keys(&other), main("alert", &["fcm"]));
}

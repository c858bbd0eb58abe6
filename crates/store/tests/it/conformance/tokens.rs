//! Push tokens: registration, suspension, removal, and the records of invalidations.

use noroshi_store::{
    Accepted, Batch, DeviceChange, Finished, InvalidToken, Invalidation, NewToken, Registration, Renewal,
    RestoreTokens, Store, SuspectToken, TokenChange,
};
use noroshi_types::{
    AppId, DeviceNum, Outcome, Push, PushEnvironment, PushService, PushToken, Request, Timestamp, TokenKey,
    When,
};

use super::fixture::*;
use super::maintenance::RETENTION_SECONDS;
use super::push_fixture::*;

/// A leased batch for the device.
async fn under_way(store: &dyn Store, app: AppId, id: &str) -> Batch {
    let request = Request { when: When::Active, push: always(), ..stored(devices(&[id])) };
    send(store, app, request).await;
    take(store, 0).await.batches.remove(0)
}

fn invalid_token(device: DeviceNum, token_at: Timestamp, since: Option<Timestamp>) -> InvalidToken {
    InvalidToken { device, token_at, since, reason: "Unregistered" }
}

fn suspect(device: DeviceNum, token_at: Timestamp) -> SuspectToken {
    SuspectToken { device, token_at, reason: "BadDeviceToken" }
}

/// How many tokens finishing a push to the device removed and suspended.
async fn end(
    store: &dyn Store,
    app: AppId,
    id: &str,
    gone: Vec<InvalidToken>,
    suspects: Vec<SuspectToken>,
    seconds: u64,
) -> (u64, u64) {
    let batch = under_way(store, app, id).await;
    let finished = Finished { gone, suspects, ..ended(batch.id) };
    let counts = store.finish(vec![finished], at(seconds)).await.expect("finished");
    (counts.tokens_removed, counts.tokens_suspected)
}

async fn set(store: &dyn Store, app: AppId, id: &str, token: PushToken, seconds: u64) {
    let change = DeviceChange { push_token: Some(Some(token)), ..DeviceChange::default() };
    store.update_device(app, &device(id), change, at(seconds)).await.expect("changed");
}

async fn token(store: &dyn Store, app: AppId, id: &str) -> Option<PushToken> {
    store.device(app, &device(id)).await.expect("read").expect("found").push_token
}

pub(crate) async fn a_token_is_removed_only_on_proof(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = pushable(store, app, "d", "u1", &[], PushService::Apns).await;
    let check = async |gone: InvalidToken, removed: bool, why: &str| {
        let counts = end(store, app, "d", vec![gone], Vec::new(), 100).await;
        assert_eq!(counts, (u64::from(removed), 0), "{why}");
        assert_eq!(token(store, app, "d").await.is_none(), removed, "{why}");
    };
    check(invalid_token(d, at(1), None), false, "another token was pushed to").await;
    check(invalid_token(d, NOW, Some(NOW)), false, "registered since").await;
    check(invalid_token(d, NOW, Some(Timestamp(NOW.0 - 5))), false, "registered long since").await;
    check(invalid_token(DeviceNum(999), NOW, None), false, "no such device").await;
    check(invalid_token(d, NOW, Some(Timestamp(NOW.0 + 1))), true, "registered before").await;
    assert_eq!(store.invalidations(app, 0, 9).await.expect("read").len(), 1);
    set(store, app, "d", token_of(PushService::Apns, "fresh"), 50).await;
    set(store, app, "d", token_of(PushService::Apns, "fresh"), 60).await;
    check(invalid_token(d, at(60), Some(at(55))), false, "the same text was registered again since").await;
    check(invalid_token(d, at(60), None), true, "the service reported no time").await;
}

/// The device registers a new token while the push to the old one is in flight.
pub(crate) async fn a_newly_registered_token_is_kept(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = pushable(store, app, "d", "u1", &[], PushService::Apns).await;
    let batch = under_way(store, app, "d").await;
    let fresh = token_of(PushService::Apns, "fresh");
    set(store, app, "d", fresh.clone(), 1).await;
    let finished = Finished {
        gone: vec![invalid_token(d, NOW, None)],
        suspects: vec![suspect(d, NOW)],
        ..ended(batch.id)
    };
    let counts = store.finish(vec![finished], at(2)).await.expect("finished");
    assert_eq!((counts.tokens_removed, counts.tokens_suspected), (0, 0));
    let found = store.device(app, &device("d")).await.expect("read").expect("found");
    assert_eq!((found.push_token, found.push_suspect), (Some(fresh), None));
    assert_eq!(store.invalidations(app, 0, 9).await.expect("read"), []);
}

pub(crate) async fn a_tokens_time_is_that_of_its_last_registration(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = pushable(store, app, "d", "u1", &[], PushService::Apns).await;
    let token_at = async || {
        let batch = under_way(store, app, "d").await;
        let again = take_again(store, &batch).await;
        let found = recipients_of(store, &again).await;
        end_all(store, vec![take_again(store, &again).await], Outcome::Pushed).await;
        (found[0].num, found[0].token_at)
    };
    set(store, app, "d", token_of(PushService::Apns, "d"), 10).await;
    let other = DeviceChange { locale: Some(Some("de".to_owned())), ..DeviceChange::default() };
    store.update_device(app, &device("d"), other, at(11)).await.expect("changed");
    assert_eq!(token_at().await, (d, at(10)), "naming the same token counts, another change does not");
    set(store, app, "d", token_of(PushService::Apns, "other"), 20).await;
    assert_eq!(token_at().await, (d, at(20)));
    let registration = Registration {
        device: Some(device("d")),
        push_token: Some(token_of(PushService::Apns, "third")),
        ..Registration::default()
    };
    store.register(app, vec![registration], at(30)).await.expect("registered");
    assert_eq!(token_at().await, (d, at(30)));
}

/// The batch, taken again after its lease expired.
async fn take_again(store: &dyn Store, batch: &Batch) -> Batch {
    store.renew(vec![lease(batch)], at(1), LEASE, Renewal::Returned).await.expect("renewed");
    take(store, 1).await.batches.remove(0)
}

pub(crate) async fn a_suspect_token_is_suspended_until_it_is_registered_again(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d = pushable(store, app, "d", "u1", &[], PushService::Apns).await;
    assert_eq!(end(store, app, "d", Vec::new(), vec![suspect(d, at(1))], 5).await, (0, 0));
    assert_eq!(end(store, app, "d", Vec::new(), vec![suspect(d, NOW), suspect(d, NOW)], 5).await, (0, 1));
    let found = store.device(app, &device("d")).await.expect("read").expect("found");
    let doubt = found.push_suspect.expect("set aside");
    assert_eq!((doubt.at, doubt.reason.as_str()), (at(5), "BadDeviceToken"));
    assert_eq!(found.push_token, Some(token_of(PushService::Apns, "d")), "the token is kept");
    let members =
        store.audience(app, &noroshi_store::Audience::Everyone, 0, 9, None).await.expect("read").members;
    assert!(members[0].suspect && members[0].service == Some(PushService::Apns));
    let request = Request { push: always(), ..stored(users(&["u1"])) };
    let is_suspect =
        |accepted: &Accepted| outcomes_of(accepted).iter().any(|part| part.0 == Outcome::PushTokenSuspect);
    assert!(is_suspect(&send_at(store, app, request.clone(), NOW).await));
    // Other changes keep the token suspect.
    let other = DeviceChange { locale: Some(Some("de".to_owned())), ..DeviceChange::default() };
    let changed = store.update_device(app, &device("d"), other, at(6)).await.expect("changed");
    assert!(changed.push_suspect.is_some());
    set(store, app, "d", token_of(PushService::Apns, "d"), 7).await;
    let found = store.device(app, &device("d")).await.expect("read").expect("found");
    assert_eq!(found.push_suspect, None);
    assert!(!is_suspect(&send_at(store, app, request, NOW).await));
    // So does a registration without a token.
    assert_eq!(take(store, 8).await.batches.len(), 1);
    let before = vec![suspect(d, NOW)];
    assert_eq!(end(store, app, "d", Vec::new(), before, 9).await, (0, 0), "registered again since");
    assert_eq!(end(store, app, "d", Vec::new(), vec![suspect(d, at(7))], 9).await, (0, 1));
    pushable(store, app, "d", "u1", &[], PushService::Apns).await;
    let found = store.device(app, &device("d")).await.expect("read").expect("found");
    assert_eq!(found.push_suspect, None);
}

pub(crate) async fn invalidations_are_paged_and_kept_for_the_retention(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut nums = Vec::new();
    for id in ["a", "b", "c"] {
        nums.push(pushable(store, app, id, "u1", &[], PushService::Fcm).await);
    }
    let sandbox = DeviceChange { push_token: Some(Some(apns_token("00"))), ..DeviceChange::default() };
    store.update_device(app, &device("c"), sandbox, NOW).await.expect("changed");
    let theirs = pushable(store, other, "x", "u1", &[], PushService::Fcm).await;
    let before = end(store, app, "a", vec![invalid_token(nums[0], NOW, None)], Vec::new(), 1).await;
    end(store, other, "x", vec![invalid_token(theirs, NOW, None)], Vec::new(), 2).await;
    end(store, app, "b", Vec::new(), vec![suspect(nums[1], NOW)], 3).await;
    end(store, app, "c", vec![invalid_token(nums[2], NOW, None)], Vec::new(), 4).await;
    assert_eq!(before, (1, 0));
    let all = store.invalidations(app, 0, 9).await.expect("read");
    assert!(all.is_sorted_by(|a, b| a.seq < b.seq));
    let expected = |seq, seconds, id: &str, service, environment, reason: &str, removed| Invalidation {
        seq,
        at: at(seconds),
        device: device(id),
        service,
        key: TokenKey::of_messages(service),
        environment,
        reason: reason.to_owned(),
        removed,
    };
    let production = PushEnvironment::Production;
    assert_eq!(
        all,
        [
            expected(all[0].seq, 1, "a", PushService::Fcm, production, "Unregistered", true),
            expected(all[1].seq, 3, "b", PushService::Fcm, production, "BadDeviceToken", false),
            expected(all[2].seq, 4, "c", PushService::Apns, PushEnvironment::Sandbox, "Unregistered", true),
        ]
    );
    assert_eq!(store.invalidations(app, 0, 2).await.expect("read"), all[..2]);
    assert_eq!(store.invalidations(app, all[1].seq, 2).await.expect("read"), all[2..]);
    assert_eq!(store.invalidations(app, u64::MAX, 2).await.expect("read"), []);
    // Records survive their devices, but not the retention; numbers are never reused.
    store.delete_device(app, &device("a"), at(5)).await.expect("deleted");
    assert_eq!(store.prune(at(RETENTION_SECONDS + 3), 100).await.expect("pruned").invalidations, 3);
    assert_eq!(store.invalidations(app, 0, 9).await.expect("read"), all[2..]);
    assert_eq!(store.prune(at(RETENTION_SECONDS + 4), 100).await.expect("pruned").invalidations, 1);
    pushable(store, app, "b", "u1", &[], PushService::Fcm).await;
    end(store, app, "b", vec![invalid_token(nums[1], NOW, None)], Vec::new(), 5).await;
    let next = store.invalidations(app, all[2].seq, 9).await.expect("read");
    assert_eq!(next.len(), 1);
}

pub(crate) async fn suspended_tokens_are_restored(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut nums = Vec::new();
    for (of, id, service) in [
        (app, "a", PushService::Apns),
        (app, "b", PushService::Apns),
        (app, "c", PushService::Apns),
        (app, "f", PushService::Fcm),
        (other, "a", PushService::Apns),
    ] {
        let num = pushable(store, of, id, "u1", &[], service).await;
        nums.push(num);
        let seconds = 10 * nums.len() as u64;
        assert_eq!(end(store, of, id, Vec::new(), vec![suspect(num, NOW)], seconds).await, (0, 1));
    }
    // A token besides the main one.
    let voip = TokenKey::parse("voip").expect("a key");
    let new = NewToken {
        key: voip.clone(),
        token: token_of(PushService::Apns, "v"),
        expires_at: None,
        only_if_missing: false,
    };
    let change = DeviceChange { push_tokens: vec![TokenChange::Set(new)], ..DeviceChange::default() };
    store.update_device(app, &device("a"), change, NOW).await.expect("changed");
    let push = Push { token: Some(voip), ..always() };
    send(store, app, Request { when: When::Active, push, ..stored(devices(&["a"])) }).await;
    let batch = take(store, 0).await.batches.remove(0);
    let finished = Finished { suspects: vec![suspect(nums[0], NOW)], ..ended(batch.id) };
    let counts = store.finish(vec![finished], at(60)).await.expect("finished");
    assert_eq!(counts.tokens_suspected, 1);

    let restore = RestoreTokens {
        service: PushService::Apns,
        environment: PushEnvironment::Production,
        since: at(20),
        reason: Some("BadDeviceToken".to_owned()),
        tokens_max: 2,
    };
    let restored = async |app, restore: &RestoreTokens| {
        let mut restored = store.restore_tokens(app, restore.clone()).await.expect("restored");
        restored.sort_unstable();
        restored
    };
    let suspects = async |of, id: &str| {
        let found = store.device(of, &device(id)).await.expect("read").expect("found");
        let others = found.push_tokens.iter().filter(|token| token.suspect.is_some()).count();
        (found.push_suspect.is_some(), others)
    };
    for differs in [
        RestoreTokens { reason: Some("BadTopic".to_owned()), ..restore.clone() },
        RestoreTokens { environment: PushEnvironment::Sandbox, ..restore.clone() },
        RestoreTokens { since: at(61), ..restore.clone() },
    ] {
        assert!(restored(app, &differs).await.is_empty(), "{differs:?}");
    }
    assert_eq!(restored(app, &restore).await, [nums[1], nums[2]], "at most two");
    assert_eq!(restored(app, &restore).await, [nums[0]], "the other token of the first device");
    assert!(restored(app, &restore).await.is_empty());
    assert_eq!(suspects(app, "a").await, (true, 0), "it was suspended before that time");
    assert_eq!(suspects(app, "b").await, (false, 0));
    assert_eq!(suspects(app, "f").await, (true, 0), "of another service");
    let any = RestoreTokens { since: Timestamp(0), reason: None, ..restore };
    assert_eq!(restored(app, &any).await, [nums[0]]);
    assert_eq!(suspects(other, "a").await, (true, 0), "of another app");
    assert!(token(store, app, "a").await.is_some());
    assert_eq!(
        outcomes_of(&send_at(store, app, Request { push: always(), ..stored(devices(&["b"])) }, NOW).await)
            .len(),
        1
    );
    assert_eq!(take(store, 0).await.batches.len(), 1, "it is pushed to again");
}

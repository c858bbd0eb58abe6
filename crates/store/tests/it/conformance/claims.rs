//! Of an acknowledgement and the claim of a fallback push, the one that is committed first takes effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use noroshi_store::{Ack, AudienceMember, Finished, NewBatch, Store, Taken, Work};
use noroshi_types::{
    AppId, Condition, DeviceNum, Lane, NotificationId, Outcome, PushService, Request, Target, When,
};

use super::fixture::*;
use super::push_fixture::*;

/// Every kind of target and presence gate.
fn kinds() -> Vec<(Target, When)> {
    let condition = || Target::Condition(Condition::parse("'news' in topics").expect("a condition"));
    let targets = || [users(&["u1"]), devices(&["a", "b"]), to_topic("news"), condition(), Target::Everyone];
    let gates = [When::Stored, When::Connected, When::Active];
    gates.into_iter().flat_map(|when| targets().map(|target| (target, when))).collect()
}

/// Two devices of one user, both subscribed.
async fn two_devices(store: &dyn Store, app: AppId) -> [DeviceNum; 2] {
    let a = pushable(store, app, "a", "u1", &["news"], PushService::Fcm).await;
    let b = pushable(store, app, "b", "u1", &["news"], PushService::Fcm).await;
    [a, b]
}

/// Sends with a fallback after 30 seconds, and enqueues its walk if it has one.
async fn send_waiting(store: &dyn Store, app: AppId, target: Target, when: When) -> NotificationId {
    let id = send(store, app, Request { when, push: fallback(30), ..stored(target) }).await;
    walk_all(store).await;
    id
}

/// Does the work of a collector for all walks that are due within half a minute.
async fn walk_all(store: &dyn Store) {
    for walk in store.walks(at(30), 100).await.expect("read").due {
        let page = store.audience(walk.app, &walk.audience, walk.cursor, 1_000, None).await.expect("read");
        let recipients: Vec<DeviceNum> = page.members.iter().map(|AudienceMember { num, .. }| *num).collect();
        let batch = NewBatch {
            service: Some(PushService::Fcm),
            due_at: at(30),
            lane: walk.lane,
            token: None,
            recipients,
        };
        assert!(store.walked(&walk, vec![batch], None, Vec::new(), at(30)).await.expect("collected"));
    }
}

fn recipients(taken: &Taken) -> Vec<DeviceNum> {
    taken.batches.concat_recipients()
}

pub(crate) async fn devices_that_acknowledged_before_the_claim_get_no_push(store: &dyn Store) {
    for (i, (target, when)) in kinds().into_iter().enumerate() {
        let kind = format!("{target:?} {when:?}");
        let app = app(store, &format!("app-{i}")).await;
        let [a, b] = two_devices(store, app).await;
        let id = send_waiting(store, app, target, when).await;
        assert_eq!(ack(store, a, &[id]).await, 1, "{kind}: an awaited acknowledgement counts");
        assert_eq!(ack(store, a, &[id]).await, 0, "{kind}: it counts once");
        let taken = take(store, 30).await;
        assert_eq!(recipients(&taken), [b], "{kind}");
        let acknowledged_part =
            removed_part(app, Work::Notification(id), Outcome::PushNotNeeded, at(30), &[a]);
        assert_eq!(
            (taken.departed.parts, taken.departed.beyond),
            (vec![acknowledged_part], BTreeMap::new()),
            "{kind}"
        );
        let steps = store.trace(app, id, &device("a")).await.expect("read").expect("found").steps;
        let last: Vec<_> = steps.iter().map(|step| step.outcome).filter(|is| *is != Outcome::Kept).collect();
        assert_eq!(last, [Outcome::Acked, Outcome::PushNotNeeded], "{kind}");
        end_all(store, taken.batches, Outcome::Pushed).await;
    }
}

pub(crate) async fn devices_that_acknowledge_after_the_claim_get_a_push(store: &dyn Store) {
    for (i, (target, when)) in kinds().into_iter().enumerate() {
        let kind = format!("{target:?} {when:?}");
        let app = app(store, &format!("app-{i}")).await;
        let [a, b] = two_devices(store, app).await;
        let id = send_waiting(store, app, target, when).await;
        let seconds = 30 + 3 * LEASE_SECONDS * i as u64;
        let first = take(store, seconds).await;
        assert_eq!((recipients(&first), not_needed(&first)), (vec![a, b], 0), "{kind}");
        ack(store, a, &[id]).await;
        // The lease expires, as after a crash: the claim stays.
        let lapsed = take(store, seconds + LEASE_SECONDS).await;
        assert_eq!((recipients(&lapsed), not_needed(&lapsed)), (vec![a, b], 0), "{kind}");
        // A retry is claimed too.
        let retry = vec![again(seconds, 1, &[a])];
        let finished = Finished { again: retry, ..ended(lapsed.batches[0].id) };
        store.finish(vec![finished], at(seconds)).await.expect("finished");
        let retried = take(store, seconds + LEASE_SECONDS).await;
        assert_eq!((recipients(&retried), not_needed(&retried)), (vec![a], 0), "{kind}");
        end_all(store, retried.batches, Outcome::Pushed).await;
    }
}

pub(crate) async fn a_batch_that_no_device_needs_is_removed(store: &dyn Store) {
    for (i, (target, when)) in kinds().into_iter().enumerate() {
        let kind = format!("{target:?} {when:?}");
        let app = app(store, &format!("app-{i}")).await;
        let [a, b] = two_devices(store, app).await;
        let id = send_waiting(store, app, target, when).await;
        ack(store, a, &[id]).await;
        ack(store, b, &[id]).await;
        let taken = take(store, 30).await;
        assert_eq!((taken.batches.len(), taken.next_due), (0, None), "{kind}");
        let acknowledged_part =
            removed_part(app, Work::Notification(id), Outcome::PushNotNeeded, at(30), &[a, b]);
        assert_eq!(taken.departed.parts, [acknowledged_part], "{kind}: reported once, and no device expired");
        assert!(counts(store, app, id).await.contains(&(Outcome::PushNotNeeded, 2)), "{kind}");
    }
}

/// Acknowledgements before the walk reaches the device count as well.
pub(crate) async fn acknowledgements_before_a_walk_count(store: &dyn Store) {
    for (i, when) in [When::Stored, When::Connected].into_iter().enumerate() {
        let app = app(store, &format!("app-{i}")).await;
        let [a, b] = two_devices(store, app).await;
        let request = Request { when, push: fallback(30), ..stored(to_topic("news")) };
        let id = send(store, app, request).await;
        assert_eq!(ack(store, b, &[id]).await, 1);
        walk_all(store).await;
        let taken = take(store, 30).await;
        assert_eq!((recipients(&taken), not_needed(&taken)), (vec![a], 1));
        end_all(store, taken.batches, Outcome::Pushed).await;
    }
}

pub(crate) async fn an_acknowledgement_of_another_app_does_not_spare_a_push(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let [a, b] = two_devices(store, app).await;
    let theirs = pushable(store, other, "x", "u1", &[], PushService::Fcm).await;
    for (target, when) in kinds() {
        let id = send_waiting(store, app, target, when).await;
        assert_eq!(ack(store, theirs, &[id]).await, 0);
    }
    let taken = take(store, 30).await;
    assert_eq!((taken.batches.len(), not_needed(&taken)), (kinds().len(), 0));
    assert!(taken.batches.iter().all(|batch| batch.recipients == [a, b]));
}

pub(crate) async fn replaced_notifications_are_not_pushed(store: &dyn Store) {
    let app = app(store, "shop").await;
    two_devices(store, app).await;
    let keyed = Request { collapse_key: Some("k".into()), push: fallback(30), ..stored(users(&["u1"])) };
    send(store, app, keyed.clone()).await;
    let newer = send(store, app, keyed).await;
    let taken = take(store, 30).await;
    assert_eq!((taken.batches.len(), not_needed(&taken)), (1, 2));
    assert_eq!(taken.batches[0].work, noroshi_store::Work::Notification(newer));
}

pub(crate) async fn always_pushes_without_checking_acknowledgements(store: &dyn Store) {
    let app = app(store, "shop").await;
    let [a, b] = two_devices(store, app).await;
    let id = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    ack(store, a, &[id]).await;
    let taken = take(store, 0).await;
    assert_eq!((recipients(&taken), not_needed(&taken)), (vec![a, b], 0));
    assert_eq!(taken.batches[0].lane, Lane::Direct);
}

/// Many concurrent rounds: a device is either in the batch or recorded as acknowledged, and the latter only if it
/// acknowledged.
pub(crate) async fn a_race_has_one_winner(store: &dyn Store) {
    let app = app(store, "shop").await;
    let [a, b] = two_devices(store, app).await;
    let store = Arc::new(store);
    for round in 0..40u64 {
        let (target, when) = kinds().swap_remove(round as usize % kinds().len());
        let kind = format!("{target:?} {when:?}");
        let id = send_waiting(*store, app, target, when).await;
        let acknowledge = async {
            if round % 3 == 0 {
                tokio::task::yield_now().await;
            }
            let acks = vec![Ack { device: a, ids: vec![id] }];
            store.ack(acks, at(1)).await.expect("acknowledged").len()
        };
        let (acked, taken) = tokio::join!(acknowledge, take(*store, 30));
        let pushed = recipients(&taken);
        match not_needed(&taken) {
            0 => assert_eq!(pushed, [a, b], "{kind}"),
            _ => assert_eq!((pushed, not_needed(&taken), acked), (vec![b], 1, 1), "{kind}"),
        }
        end_all(*store, taken.batches, Outcome::Pushed).await;
        let sums = counts(*store, app, id).await;
        let sum = |outcome| sums.iter().find(|(of, _)| *of == outcome).map_or(0, |(_, count)| *count);
        assert_eq!(sum(Outcome::Pushed) + sum(Outcome::PushNotNeeded), 2, "{kind}");
    }
}

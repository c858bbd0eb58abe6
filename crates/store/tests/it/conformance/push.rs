//! The push queue: enqueuing, the order of taking, and finishing batches.

use std::time::Duration;

use noroshi_store::{
    AbandonedBatch, Batch, CampaignState, Error, Finished, FinishedCounts, Lease, PushPart, Registration,
    RemovedMessages, Renewal, Rest, SENDER_ENDED, State, Store, SuspectToken, TAKES_MAX, Take, Taken,
    TraceStep, Work,
};
use noroshi_types::{AppId, BatchId, DeviceNum, Lane, Outcome, PushService, Request, Timestamp, When};

use super::fixture::*;
use super::push_fixture::*;

pub(crate) async fn users_and_devices_become_batches_by_service(store: &dyn Store) {
    let app = app(store, "shop").await;
    let apns = pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let fcm = pushable(store, app, "f", "u1", &[], PushService::Fcm).await;
    let web = pushable(store, app, "w", "u2", &[], PushService::WebPush).await;
    let bare = join(store, app, "bare", "u2", &[]).await;
    let doubted = pushable(store, app, "doubted", "u2", &[], PushService::Apns).await;
    set_aside(store, app, doubted, "doubted").await;

    for (when, target) in [
        (When::Stored, users(&["u1", "u2", "u9"])),
        (When::Active, devices(&["a", "f", "w", "bare", "doubted"])),
    ] {
        let named = target.named_count();
        let request = Request { when, push: always(), ..stored(target) };
        let accepted = send_at(store, app, request, NOW).await;
        assert_eq!(accepted.targets, named);
        let mut unreachable = outcomes_of(&accepted);
        unreachable.retain(|(outcome, ..)| !matches!(outcome, Outcome::Unknown | Outcome::Kept));
        let right = [(Outcome::NoPushToken, vec![bare], 1), (Outcome::PushTokenSuspect, vec![doubted], 1)];
        assert_eq!(unreachable, right);
        let id = accepted.message.id;
        let taken = take(store, 0).await;
        let seen: Vec<_> =
            taken.batches.iter().map(|batch| (batch.service, batch.recipients.clone())).collect();
        assert_eq!(
            seen,
            [
                (Some(PushService::Apns), vec![apns]),
                (Some(PushService::Fcm), vec![fcm]),
                (Some(PushService::WebPush), vec![web])
            ]
        );
        for batch in &taken.batches {
            assert_eq!((batch.app, batch.lane, batch.work), (app, Lane::Direct, Work::Notification(id)));
            assert_eq!((batch.due_at, batch.attempt, batch.campaign), (NOW, 0, None));
        }
        let trace = store.trace(app, id, &device("bare")).await.expect("read").expect("found");
        assert!(trace.steps.contains(&step(NOW, Outcome::NoPushToken)), "{trace:?} of {bare:?}");
        let content = store.push_content(app, id).await.expect("read").expect("found");
        assert_eq!(content.push, always());
        assert_eq!((content.sent_at, content.expires_at), (NOW, accepted.message.expires_at));
        assert_eq!(
            (&content.notification, &content.data),
            (&accepted.message.notification, &accepted.message.data)
        );
        end_all(store, taken.batches, Outcome::Pushed).await;
    }
    let never = send_at(store, app, stored(users(&["u1", "u2"])), NOW).await;
    assert_eq!(outcomes_of(&never).len(), 1, "kept, without push outcomes");
    assert_eq!(take(store, 1_000).await.batches, []);
}

pub(crate) async fn many_recipients_become_several_batches(store: &dyn Store) {
    let app = app(store, "shop").await;
    let registrations = (0..1_001).map(|i| Registration {
        device: Some(device(&format!("d{i}"))),
        user: Some(user("u1")),
        push_token: Some(token_of(PushService::Fcm, &format!("d{i}"))),
        ..Registration::default()
    });
    let made = store.register(app, registrations.collect(), NOW).await.expect("registered");
    let mut nums: Vec<_> = made.into_iter().map(|device| device.expect("within the limits").num).collect();
    nums.sort_unstable();
    send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let batches = take(store, 0).await.batches;
    assert_eq!(batches.iter().map(|batch| batch.recipients.len()).collect::<Vec<_>>(), [500, 500, 1]);
    assert_eq!(batches.concat_recipients(), nums, "each once, in order");
    let recipients = recipients_of(store, &batches[2]).await;
    assert_eq!(recipients[0].num, nums[1_000]);
}

pub(crate) async fn a_repeated_key_pushes_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let request = Request { push: always(), ..stored(users(&["u1"])) };
    for _ in 0..2 {
        send_once(store, app, request.clone(), "k", 1, NOW).await.expect("accepted");
    }
    assert_eq!(take(store, 0).await.batches.len(), 1);
}

pub(crate) async fn batches_are_taken_by_lane_then_by_due_time(store: &dyn Store) {
    let (one, two) = (app(store, "one").await, app(store, "two").await);
    let mut expected = Vec::new();
    for app in [one, two] {
        pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    }
    for (app, seconds) in [(one, 4), (two, 3), (one, 2), (two, 5)] {
        let request = Request { push: always(), ..stored(users(&["u1"])) };
        expected.push((seconds, send_at(store, app, request, at(seconds)).await.message.id));
    }
    expected.sort_unstable();
    let of = |batches: &[Batch]| -> Vec<_> { batches.iter().map(|batch| batch.work).collect() };
    let works: Vec<_> = expected.iter().map(|(_, id)| Work::Notification(*id)).collect();

    // A campaign before and after them.
    let (slow, news) = (running(store, one).await, running(store, one).await);
    let member = store.device(one, &device("a")).await.expect("read").expect("found").num;
    enqueue(store, slow, Lane::Campaign, 0, &[member]).await;
    enqueue(store, news, Lane::Extra, 5, &[member]).await;
    let all = take_with(store, Take { batches_max: 3, ..asked(9) }).await;
    assert_eq!(of(&all.batches), [Work::Campaign(news), works[0], works[1]]);
    assert!(all.next_due.is_some_and(|due| due <= at(9)), "{:?}", all.next_due);
    let only = take_with(store, Take { lanes: vec![Lane::Campaign], ..asked(9) }).await;
    assert_eq!(of(&only.batches), [Work::Campaign(slow)]);
    assert_eq!(of(&take(store, 9).await.batches), works[2..]);
    assert_eq!(take(store, 9).await.batches, []);
}

pub(crate) async fn batches_due_later_wait(store: &dyn Store) {
    let app = app(store, "shop").await;
    pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    assert_eq!(take(store, 0).await.next_due, None);
    for after in [30, 20] {
        send(store, app, Request { push: fallback(after), ..stored(users(&["u1"])) }).await;
    }
    let taken = take(store, 19).await;
    assert_eq!((taken.batches.len(), taken.next_due), (0, Some(at(20))));
    let taken = take(store, 20).await;
    assert_eq!((taken.batches.len(), taken.next_due), (1, Some(at(30))));
    // Without other work, the next time is the end of the lease.
    let taken = take(store, 30).await;
    assert_eq!((taken.batches.len(), taken.next_due), (1, Some(at(20 + LEASE_SECONDS))));
}

pub(crate) async fn busy_services_and_held_campaigns_are_skipped(store: &dyn Store) {
    let (one, two) = (app(store, "one").await, app(store, "two").await);
    let mut nums = Vec::new();
    for app in [one, two] {
        nums.push(pushable(store, app, "a", "u1", &[], PushService::Apns).await);
        pushable(store, app, "f", "u1", &[], PushService::Fcm).await;
        send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    }
    let held = running(store, one).await;
    enqueue(store, held, Lane::Extra, 0, &nums[..1]).await;
    let busy = vec![(one, PushService::Fcm), (two, PushService::Apns)];
    let taken = take_with(store, Take { busy: busy.clone(), held: vec![held], ..asked(0) }).await;
    let seen: Vec<_> = taken.batches.iter().map(|batch| (batch.app, batch.service)).collect();
    assert_eq!(seen, [(one, Some(PushService::Apns)), (two, Some(PushService::Fcm))]);
    assert_eq!(taken.next_due, Some(at(LEASE_SECONDS)), "batches that may not be taken cause no wake-up");
    let taken = take_with(store, Take { busy: vec![(one, PushService::Apns)], ..asked(0) }).await;
    assert_eq!(taken.batches.len(), 2, "the campaign's batch is for a busy service");
    assert_eq!(take(store, 0).await.batches.len(), 1);
}

pub(crate) async fn a_lease_expires_unless_it_is_renewed(store: &dyn Store) {
    let app = app(store, "shop").await;
    pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    for _ in 0..2 {
        send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    }
    let taken = take(store, 0).await.batches;
    assert_eq!(taken.len(), 2);
    assert_eq!(take(store, LEASE_SECONDS - 1).await.batches, []);
    let renew = async |leases, seconds| {
        store.renew(leases, at(seconds), LEASE, Renewal::Kept).await.expect("renewed")
    };
    let kept =
        renew(vec![lease(&taken[0]), Lease { batch: BatchId(999), ..lease(&taken[0]) }], LEASE_SECONDS + 5);
    assert_eq!(kept.await, [taken[0].id]);
    let second = take(store, LEASE_SECONDS).await.batches;
    assert_eq!(second, [Batch { leased_until: at(2 * LEASE_SECONDS), ..taken[1].clone() }]);
    let lost = renew(vec![lease(&taken[0]), lease(&taken[1])], LEASE_SECONDS + 9);
    assert_eq!(lost.await, [], "one lease was renewed since, the other belongs to another sender");
    let first = take(store, LEASE_SECONDS + 5).await.batches;
    assert_eq!(first, [Batch { leased_until: at(2 * LEASE_SECONDS + 5), ..taken[0].clone() }]);
    assert_eq!(renew(vec![lease(&second[0])], 0).await, [taken[1].id], "the batch was released");
    // After two takes it is due within [`SPREAD_SECONDS`].
    take(store, LEASE_SECONDS + 6).await;
    assert_eq!(take(store, LEASE_SECONDS + 6 + SPREAD_SECONDS).await.batches.len(), 1);
    // The first finish counts, even if its lease has expired.
    end_all(store, taken.clone(), Outcome::Pushed).await;
    assert_eq!(renew(vec![lease(&first[0])], 9_999).await, [], "the batch is finished");
    assert_eq!(take(store, 1_000).await.next_due, None);
}

/// Everything whose lease expires by then, including spread batches.
async fn take_lapsed(store: &dyn Store, seconds: u64, sends: bool) -> Taken {
    let mut taken = take_with(store, Take { sends, ..asked(seconds) }).await;
    let spread = seconds + SPREAD_SECONDS * u64::from(TAKES_MAX);
    let later = take_with(store, Take { sends, ..asked(spread) }).await;
    taken.batches.extend(later.batches);
    taken.set_aside.extend(later.set_aside);
    taken
}

/// Every sender that takes it crashes.
pub(crate) async fn a_batch_that_crashes_its_senders_is_set_aside(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let id = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let campaign = running(store, app).await;
    let last = vec![batch(Lane::Campaign, 0, &[num])];
    store.enqueue(campaign, 0, last, 1, true, Vec::new(), NOW).await.expect("enqueued");
    let mut now = 0;
    for number in 0..TAKES_MAX {
        let taken = take_lapsed(store, now, true).await;
        assert_eq!((taken.batches.len(), taken.set_aside.len()), (2, 0), "{number}");
        now += 2 * LEASE_SECONDS;
    }
    let taken = take_lapsed(store, now, true).await;
    assert_eq!(taken.batches, []);
    let [direct, of_campaign] = &taken.set_aside[..] else { panic!("{:?}", taken.set_aside) };
    let (direct, of_campaign) = match direct.lane {
        Lane::Direct => (direct, of_campaign),
        _ => (of_campaign, direct),
    };
    let of = |set_aside: &AbandonedBatch| {
        let AbandonedBatch { app, service, lane, work, recipients, .. } = set_aside.clone();
        (app, service, lane, work, recipients)
    };
    let apns = Some(PushService::Apns);
    assert_eq!(of(direct), (app, apns, Lane::Direct, Work::Notification(id), vec![num]));
    assert_eq!(of(of_campaign), (app, apns, Lane::Campaign, Work::Campaign(campaign), vec![num]));
    assert_eq!(taken.departed, RemovedMessages::default(), "reported as set aside");
    let steps = store.trace(app, id, &device("a")).await.expect("read").expect("found").steps;
    let last = steps.last().expect("steps");
    assert_eq!((last.outcome, last.reason.as_deref()), (Outcome::PushRefused, Some(SENDER_ENDED)));
    let campaign = store.campaign(app, campaign, at(now)).await.expect("read").expect("found");
    assert_eq!(campaign.state, CampaignState::Done);
    assert_eq!(campaign.counts, [(Outcome::PushRefused, SENDER_ENDED.to_owned(), 1)]);
    assert_eq!(take(store, 2 * now).await.next_due, None, "nothing remains");
}

pub(crate) async fn only_takes_of_crashed_senders_count(store: &dyn Store) {
    let app = app(store, "shop").await;
    pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let renew = async |batch: &Batch, until, why| {
        let renewed = store.renew(vec![lease(batch)], until, LEASE, why).await.expect("renewed");
        assert_eq!(renewed, [batch.id]);
    };
    let mut now = 0;
    for _ in 0..=TAKES_MAX {
        let taken = take(store, now).await.batches.remove(0);
        renew(&taken, Timestamp(0), Renewal::Returned).await;
        // A dispatcher took it, and no sender claimed it or had room for it.
        let taken = take_with(store, Take { sends: false, ..asked(now) }).await.batches.remove(0);
        renew(&taken, at(now + 5), Renewal::Kept).await;
        now += LEASE_SECONDS;
    }
    for number in 0..TAKES_MAX {
        let taken = take_lapsed(store, now, false).await;
        assert_eq!((taken.batches.len(), taken.set_aside.len()), (1, 0), "{number}");
        now += LEASE_SECONDS;
        renew(&taken.batches[0], at(now), Renewal::Claimed).await;
        now += LEASE_SECONDS;
    }
    let taken = take_lapsed(store, now, false).await;
    assert_eq!((taken.batches.len(), taken.set_aside.len()), (0, 1));
}

pub(crate) async fn batches_of_a_crashed_sender_are_spread(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let campaign = running(store, app).await;
    let batches = (0..40).map(|_| batch(Lane::Campaign, 0, &[num])).collect();
    store.enqueue(campaign, 0, batches, 1, true, Vec::new(), NOW).await.expect("enqueued");
    for round in 0..2 {
        assert_eq!(take(store, round * LEASE_SECONDS).await.batches.len(), 40, "{round}");
    }
    let now = 2 * LEASE_SECONDS;
    let together = take(store, now + 1).await.batches.len();
    assert!(together < 40, "all at once for the third time");
    let rest = take(store, now + 1 + SPREAD_SECONDS).await.batches.len();
    assert_eq!(together + rest, 40);
}

pub(crate) async fn finishing_a_batch_records_its_results_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut nums = Vec::new();
    for name in ["a", "b", "c", "d"] {
        nums.push(pushable(store, app, name, "u1", &[], PushService::Apns).await);
    }
    let id = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let batch = take(store, 0).await.batches.remove(0);
    let part = |outcome, reason, devices: &[DeviceNum]| PushPart {
        outcome,
        reason,
        variant: None,
        devices: devices.to_vec(),
    };
    let finished = Finished {
        parts: vec![
            part(Outcome::Pushed, None, &[nums[1], nums[0]]),
            part(Outcome::PushRefused, Some("BadTopic"), &nums[2..3]),
        ],
        again: vec![again(60, 3, &nums[3..4])],
        ..ended(batch.id)
    };
    let counts = store.finish(vec![finished.clone()], at(5)).await.expect("finished");
    assert_eq!(counts, FinishedCounts::default());
    let counts = store.finish(vec![finished], at(6)).await.expect("repeated");
    assert_eq!(counts, FinishedCounts { unknown: 1, ..FinishedCounts::default() }, "it counts once");
    let found = store.notification(app, id, at(6)).await.expect("read").expect("found");
    let pushes: Vec<_> = found.counts.into_iter().filter(|(outcome, _)| *outcome != Outcome::Kept).collect();
    assert_eq!(pushes, [(Outcome::Pushed, 2), (Outcome::PushRefused, 1)]);
    let steps = store.trace(app, id, &device("c")).await.expect("read").expect("found").steps;
    let refused = TraceStep { at: at(5), outcome: Outcome::PushRefused, reason: Some("BadTopic".to_owned()) };
    assert_eq!(steps, [step(NOW, Outcome::Kept), refused]);
    let taken = take(store, 59).await;
    assert_eq!((taken.batches.len(), taken.next_due), (0, Some(at(60))));
    let retried = take(store, 60).await.batches.remove(0);
    assert_ne!(retried.id, batch.id);
    assert_eq!((retried.due_at, retried.attempt, retried.recipients.clone()), (at(60), 3, vec![nums[3]]));
    assert_eq!((retried.work, retried.service, retried.lane), (batch.work, batch.service, batch.lane));
    end_all(store, vec![retried], Outcome::Pushed).await;
    assert_eq!(take(store, 9_999).await.next_due, None, "nothing remains");
}

pub(crate) async fn a_part_of_the_results_leaves_the_rest_of_a_batch(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut nums = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        nums.push(pushable(store, app, name, "u1", &[], PushService::Apns).await);
    }
    let id = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let other = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let mut batches = take(store, 0).await.batches;
    let (next, batch) = (batches.remove(1), batches.remove(0));
    let part = |of: &Batch, devices: &[DeviceNum], rest: &[DeviceNum]| Finished {
        parts: vec![PushPart {
            outcome: Outcome::Pushed,
            reason: None,
            variant: None,
            devices: devices.to_vec(),
        }],
        rest: Some(Rest { leased_until: of.leased_until, recipients: rest.to_vec() }),
        ..ended(of.id)
    };
    let pushed = async |id| {
        let found = store.notification(app, id, at(6)).await.expect("read").expect("found");
        found.counts.iter().find(|(outcome, _)| *outcome == Outcome::Pushed).map_or(0, |(_, count)| *count)
    };
    // Together with the end of another batch, and repeated, as after an unknown commit.
    let first = part(&batch, &nums[..2], &nums[2..]);
    let end = part(&next, &nums, &[]);
    let together = vec![Finished { rest: None, ..end }, first.clone()];
    assert_eq!(store.finish(together, at(5)).await.expect("written"), FinishedCounts::default());
    assert_eq!(store.finish(vec![first], at(6)).await.expect("repeated"), FinishedCounts::default());
    assert_eq!((pushed(id).await, pushed(other).await), (2, 5));
    // Under its next lease.
    let lease = Lease { batch: batch.id, until: batch.leased_until };
    let until = at(LEASE_SECONDS + 5);
    let length = Duration::from_secs(LEASE_SECONDS);
    assert_eq!(store.renew(vec![lease], until, length, Renewal::Kept).await.expect("renewed"), [batch.id]);
    let stale = FinishedCounts { stale: vec![batch.id], ..FinishedCounts::default() };
    let second = part(&batch, &nums[2..3], &nums[3..]);
    assert_eq!(store.finish(vec![second], at(6)).await.expect("refused"), stale);
    let renewed = Batch { leased_until: until, ..batch.clone() };
    let second = part(&renewed, &nums[2..3], &nums[3..]);
    assert_eq!(store.finish(vec![second], at(7)).await.expect("written"), FinishedCounts::default());
    assert_eq!(pushed(id).await, 3);
    let gone = part(&next, &nums[..1], &nums[1..]);
    let unknown = FinishedCounts { stale: vec![next.id], ..FinishedCounts::default() };
    assert_eq!(store.finish(vec![gone], at(7)).await.expect("ignored"), unknown, "it has ended");
    // The sender is killed: the rest is taken again, and nothing of a part that comes too late is written.
    let lease = Lease { batch: batch.id, until };
    store.renew(vec![lease], Timestamp(0), Duration::ZERO, Renewal::Returned).await.expect("returned");
    let again = take(store, 8).await.batches.remove(0);
    assert_eq!((again.id, &again.recipients[..]), (batch.id, &nums[3..]));
    let late = part(&renewed, &nums[3..4], &nums[4..]);
    assert_eq!(store.finish(vec![late], at(8)).await.expect("refused"), stale);
    end_all(store, vec![again], Outcome::Pushed).await;
    assert_eq!(pushed(id).await, 5);
    assert_eq!(take(store, 9_999).await.next_due, None, "nothing remains");
}

pub(crate) async fn expired_notifications_are_not_pushed(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let short = send(store, app, Request { ttl: ttl(10), push: always(), ..stored(users(&["u1"])) }).await;
    let taken = take(store, 10).await;
    let expired = removed_part(app, Work::Notification(short), Outcome::PushExpired, at(10), &[num]);
    assert_eq!((taken.batches.len(), taken.departed.parts), (0, vec![expired]));
    assert_eq!(counts(store, app, short).await, [(Outcome::Kept, 1), (Outcome::PushExpired, 1)]);
    // A fallback is due at the latest at the end of the ttl, when inboxes may have been pruned already.
    let waits = Request { ttl: ttl(10), push: fallback(60), ..stored(users(&["u1"])) };
    let (acknowledged, missed) = (send(store, app, waits.clone()).await, send(store, app, waits).await);
    ack(store, num, &[acknowledged]).await;
    assert_eq!(take(store, 9).await.next_due, Some(at(10)));
    store.prune(at(10), 100).await.expect("pruned");
    let taken = take(store, 11).await;
    let reported = [(acknowledged, Outcome::PushNotNeeded), (missed, Outcome::PushExpired)]
        .map(|(id, outcome)| removed_part(app, Work::Notification(id), outcome, at(11), &[num]));
    assert_eq!((taken.batches.len(), taken.departed.parts), (0, reported.to_vec()));
    assert!(counts(store, app, acknowledged).await.contains(&(Outcome::PushNotNeeded, 1)));
    assert!(counts(store, app, missed).await.contains(&(Outcome::PushExpired, 1)));
    // A push with a ttl of 0 is tried once.
    let now = Request { ttl: ttl(0), push: always(), ..stored(users(&["u1"])) };
    send(store, app, now).await;
    assert_eq!(take(store, 1).await.batches.len(), 1);
}

pub(crate) async fn cancelled_notifications_are_not_pushed(store: &dyn Store) {
    let app = app(store, "shop").await;
    let a = pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let f = pushable(store, app, "f", "u1", &[], PushService::Fcm).await;
    let id = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    ack(store, f, &[id]).await;
    // Apple's batch is leased when it is cancelled.
    let busy = vec![(app, PushService::Fcm)];
    let sent = take_with(store, Take { busy, ..asked(0) }).await.batches.remove(0);
    assert_eq!(sent.recipients, [a]);
    let cancelled = store.cancel(app, id, at(1)).await.expect("cancelled");
    assert_eq!((cancelled.removed, cancelled.not_pushed), (1, 1));
    let of =
        |devices: &[DeviceNum]| removed_part(app, Work::Notification(id), Outcome::Cancelled, at(1), devices);
    assert_eq!(cancelled.departed.parts, [of(&[a]), of(&[f])], "removed from its inbox and from the queue");
    assert_eq!(take(store, 2).await.batches, []);
    let again = vec![again(3, 1, &[a])];
    let ended = store.finish(vec![Finished { again, ..ended(sent.id) }], at(2)).await.expect("finished");
    let cancelled = removed_part(app, Work::Notification(id), Outcome::Cancelled, at(2), &[a]);
    assert_eq!(ended.cancelled.parts, [cancelled]);
    assert_eq!(take(store, 99).await.next_due, None);
    let steps = |name: &'static str| async move {
        let trace = store.trace(app, id, &device(name)).await.expect("read").expect("found");
        trace.steps.iter().filter(|step| step.outcome == Outcome::Cancelled).count()
    };
    assert_eq!((steps("a").await, steps("f").await), (2, 1), "the inbox row, and later the retry; the push");
    let found = store.notification(app, id, at(2)).await.expect("read").expect("found");
    assert_eq!(found.state, State::Cancelled);
    // Of a live message only the push can be cancelled.
    let live = Request { when: When::Active, push: always(), ..stored(users(&["u1"])) };
    let live = send(store, app, live).await;
    let cancelled = store.cancel(app, live, NOW).await.expect("cancelled");
    assert_eq!((cancelled.removed, cancelled.not_pushed), (0, 2));
    assert_eq!(counts(store, app, live).await, [(Outcome::Cancelled, 2)]);
}

pub(crate) async fn recipients_have_their_current_state(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut nums = Vec::new();
    for name in ["stays", "moves", "leaves", "clears"] {
        nums.push(pushable(store, app, name, "u1", &["news"], PushService::Apns).await);
    }
    let theirs = pushable(store, other, "theirs", "u1", &[], PushService::Apns).await;
    send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
    let batch = take(store, 0).await.batches.remove(0);
    let moves =
        Registration { device: Some(device("moves")), user: Some(user("u2")), ..Registration::default() };
    store.register(app, vec![moves], at(1)).await.expect("registered");
    store.delete_device(app, &device("leaves"), at(1)).await.expect("deleted");
    let clears = noroshi_store::DeviceChange { push_token: Some(None), ..Default::default() };
    store.update_device(app, &device("clears"), clears, at(1)).await.expect("changed");
    let found = recipients_of(store, &batch).await;
    let seen: Vec<_> = found.iter().map(|found| (found.id.as_str(), found.token.is_some())).collect();
    assert_eq!(seen, [("stays", true), ("clears", false)], "another user's was not meant");
    assert_eq!((found[0].num, &found[0].user, found[0].token_at), (nums[0], &Some(user("u1")), NOW));
    assert_eq!(found[0].token, Some(token_of(PushService::Apns, "stays")));
    // A message of a topic is addressed to the device; devices of other apps are not found.
    let on_topic = send(store, app, Request { push: always(), ..stored(to_topic("news")) }).await;
    let asked = vec![nums[0], nums[1], theirs];
    let found =
        store.push_recipients(app, Work::Notification(on_topic), None, None, asked).await.expect("read");
    assert_eq!(found.iter().map(|found| found.num).collect::<Vec<_>>(), nums[..2]);
    assert_eq!(store.push_content(other, on_topic).await.expect("read"), None);
}

pub(crate) async fn a_notification_lives_as_long_as_its_push(store: &dyn Store) {
    let app = app(store, "shop").await;
    pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let live = Request { when: When::Active, ttl: ttl(5), push: always(), ..stored(users(&["u1"])) };
    let direct = send(store, app, live.clone()).await;
    let walked = send(store, app, Request { target: noroshi_types::Target::Everyone, ..live }).await;
    let known = async |id| store.notification(app, id, NOW).await.expect("read").is_some();
    store.prune(at(1_000_000), 100).await.expect("pruned");
    assert!(known(direct).await && known(walked).await);
    let walk = store.walks(NOW, 9).await.expect("read").due.remove(0);
    assert!(store.walked(&walk, Vec::new(), None, Vec::new(), NOW).await.expect("ended"));
    assert_eq!(take(store, 6).await.departed.count(Outcome::PushExpired), 1);
    store.prune(at(1_000_000), 100).await.expect("pruned");
    assert!(!known(direct).await && !known(walked).await);
}

pub(crate) async fn deleting_an_app_removes_its_push_work(store: &dyn Store) {
    let (gone, stays) = (app(store, "gone").await, app(store, "stays").await);
    for app in [gone, stays] {
        pushable(store, app, "a", "u1", &["news"], PushService::Apns).await;
        send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
        send(store, app, Request { push: always(), ..stored(to_topic("news")) }).await;
    }
    store.delete_app(gone).await.expect("deleted");
    let of = |batches: Vec<Batch>| -> Vec<AppId> { batches.into_iter().map(|batch| batch.app).collect() };
    assert_eq!(of(take(store, 9).await.batches), [stays]);
    let walks = store.walks(at(9), 9).await.expect("read").due;
    assert_eq!(walks.into_iter().map(|walk| walk.app).collect::<Vec<_>>(), [stays]);
}

/// A push service reports the device's token as suspect.
async fn set_aside(store: &dyn Store, app: AppId, num: DeviceNum, id: &str) {
    send(store, app, Request { push: always(), when: When::Active, ..stored(devices(&[id])) }).await;
    let batch = take(store, 0).await.batches.remove(0);
    let suspects = vec![SuspectToken { device: num, token_at: NOW, reason: "DeviceTokenNotForTopic" }];
    let counts = store.finish(vec![Finished { suspects, ..ended(batch.id) }], NOW).await.expect("finished");
    assert_eq!(counts.tokens_suspected, 1);
}

pub(crate) async fn a_walk_without_a_service_is_refused(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "a", "u1", &["news"], PushService::Apns).await;
    send(store, app, Request { push: always(), ..stored(to_topic("news")) }).await;
    let walk = store.walks(NOW, 9).await.expect("read").due.remove(0);
    let batch = noroshi_store::NewBatch {
        service: None,
        due_at: NOW,
        lane: Lane::Direct,
        token: None,
        recipients: vec![num],
    };
    let refused = store.walked(&walk, vec![batch], None, Vec::new(), NOW).await;
    assert!(matches!(refused, Err(Error::Engine(_))), "{refused:?}");
    assert_eq!(store.walks(NOW, 9).await.expect("read").due, [walk], "a failed call changes nothing");
}

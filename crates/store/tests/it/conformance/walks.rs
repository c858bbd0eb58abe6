//! Walks of topics, conditions and everyone, and audiences in pages.

use noroshi_store::{Audience, Finished, NewBatch, PushPart, Store, Walk, Work};
use noroshi_types::{AppId, Condition, DeviceNum, Lane, Outcome, PushService, Request, Target, When};

use super::fixture::*;
use super::push_fixture::*;

fn condition(text: &str) -> Condition {
    Condition::parse(text).expect(text)
}

async fn due(store: &dyn Store, seconds: u64) -> Vec<Walk> {
    store.walks(at(seconds), 100).await.expect("read").due
}

fn fcm(recipients: &[DeviceNum]) -> NewBatch {
    NewBatch { service: Some(PushService::Fcm), ..batch(Lane::Direct, 0, recipients) }
}

pub(crate) async fn targets_without_devices_become_walks(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut expected = Vec::new();
    let cases = [
        (to_topic("news"), Audience::Topic(topic("news"))),
        (Target::Everyone, Audience::Everyone),
        (Target::Condition(condition("'a' in topics")), Audience::Condition(condition("'a' in topics"))),
    ];
    for (i, (target, audience)) in cases.into_iter().enumerate() {
        for when in [When::Stored, When::Active] {
            let request = Request { when, push: always(), ..stored(target.clone()) };
            let accepted = send_at(store, app, request, at(i as u64)).await;
            assert!(outcomes_of(&accepted).iter().all(|part| part.0 == Outcome::Kept), "{accepted:?}");
            expected.push((accepted.message.id, audience.clone(), at(i as u64)));
        }
    }
    let later = send(store, app, Request { push: fallback(60), ..stored(to_topic("news")) }).await;
    let short = Request { ttl: ttl(30), push: fallback(60), ..stored(to_topic("news")) };
    let ends_first = send(store, app, short).await;
    send(store, app, stored(to_topic("news"))).await;
    let walks = store.walks(at(9), 100).await.expect("read");
    let seen: Vec<_> =
        walks.due.iter().map(|walk| (walk.notification, walk.audience.clone(), walk.due_at)).collect();
    assert_eq!(seen, expected);
    assert!(walks.due.iter().all(|walk| (walk.app, walk.cursor, walk.lane) == (app, 0, Lane::Direct)));
    assert_eq!(walks.next_due, Some(at(30)));
    assert_eq!(store.walks(at(9), 2).await.expect("read").due, walks.due[..2]);
    let all: Vec<_> = due(store, 60).await.iter().map(|walk| walk.notification).collect();
    assert_eq!(all[all.len() - 2..], [ends_first, later]);
}

pub(crate) async fn a_walk_continues_after_what_was_enqueued(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut nums = Vec::new();
    for i in 0..5 {
        nums.push(pushable(store, app, &format!("d{i}"), "u1", &["news"], PushService::Fcm).await);
    }
    let bare = join(store, app, "bare", "u1", &["news"]).await;
    let id = send(store, app, Request { push: always(), ..stored(to_topic("news")) }).await;
    let walk = due(store, 0).await.remove(0);
    let page = store.audience(app, &walk.audience, 0, 3, None).await.expect("read");
    let part = PushPart { outcome: Outcome::NoPushToken, reason: None, variant: None, devices: vec![bare] };
    let unsorted = [nums[2], nums[0], nums[1]];
    let went_on = store.walked(&walk, vec![fcm(&unsorted)], page.next, Vec::new(), at(1)).await;
    assert!(went_on.expect("enqueued"));
    let moved = due(store, 0).await.remove(0);
    assert_eq!(moved, Walk { cursor: nums[2].0, batches_waiting: 1, ..walk.clone() });
    let batches = vec![fcm(&nums[3..4]), fcm(&[]), fcm(&nums[4..])];
    let twice = store.walked(&walk, batches.clone(), page.next, Vec::new(), at(2)).await;
    assert!(!twice.expect("queried"), "another collector continued it");
    assert!(store.walked(&moved, batches, None, vec![part], at(2)).await.expect("enqueued"));
    assert_eq!(due(store, 9).await, []);
    assert!(!store.walked(&moved, vec![fcm(&nums)], None, Vec::new(), at(3)).await.expect("finished"));
    let taken = take(store, 3).await.batches;
    let lists: Vec<_> = taken.iter().map(|batch| batch.recipients.clone()).collect();
    assert_eq!(lists, [nums[..3].to_vec(), nums[3..4].to_vec(), nums[4..].to_vec()]);
    assert!(taken.iter().all(|batch| batch.work == Work::Notification(id)));
    let steps = store.trace(app, id, &device("bare")).await.expect("read").expect("found").steps;
    assert_eq!(steps, [step(at(2), Outcome::NoPushToken)]);
}

pub(crate) async fn a_cancelled_walk_is_removed(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "d", "u1", &["news"], PushService::Fcm).await;
    for when in [When::Stored, When::Active] {
        let request = Request { when, push: always(), ..stored(to_topic("news")) };
        let id = send(store, app, request).await;
        let walk = due(store, 0).await.remove(0);
        assert!(store.walked(&walk, vec![fcm(&[num])], Some(1), Vec::new(), NOW).await.expect("enqueued"));
        assert_eq!(store.cancel(app, id, NOW).await.expect("cancelled").not_pushed, 1);
        assert_eq!(due(store, 9).await, []);
        let walk = Walk { cursor: 1, ..walk };
        assert!(!store.walked(&walk, vec![fcm(&[num])], Some(2), Vec::new(), NOW).await.expect("gone"));
        assert_eq!(take(store, 9).await.batches, []);
        let state = store.notification(app, id, NOW).await.expect("read").expect("found").state;
        assert_eq!(state, noroshi_store::State::Cancelled);
    }
}

pub(crate) async fn a_stalled_walk_does_not_block_others(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "d", "u1", &["news"], PushService::Fcm).await;
    let request = || Request { push: always(), ..stored(to_topic("news")) };
    let first = send_at(store, app, request(), at(0)).await.message.id;
    let second = send_at(store, app, request(), at(1)).await.message.id;
    let order = async || {
        let due = store.walks(at(9), 2).await.expect("read").due;
        due.iter().map(|walk| (walk.notification, walk.batches_waiting)).collect::<Vec<_>>()
    };
    assert_eq!(order().await, [(first, 0), (second, 0)]);
    let walk = due(store, 9).await.remove(0);
    let batches = || vec![fcm(&[num]), fcm(&[num])];
    assert!(store.walked(&walk, batches(), Some(1), Vec::new(), at(9)).await.expect("enqueued"));
    assert_eq!(order().await, [(second, 0), (first, 2)]);
    let taken = take(store, 9).await.batches;
    assert_eq!(order().await, [(first, 0), (second, 0)], "active work does not wait");
    end_all(store, taken, Outcome::Pushed).await;
    // Batches that `take` drops, because all devices acknowledged, no longer wait.
    let quiet = Request { push: fallback(0), ..stored(to_topic("other")) };
    let other = send_at(store, app, quiet, at(0)).await.message.id;
    let walk = due(store, 9).await.into_iter().find(|walk| walk.notification == other).expect("due");
    assert!(store.walked(&walk, batches(), Some(1), Vec::new(), at(9)).await.expect("enqueued"));
    assert_eq!(order().await.iter().find(|(id, _)| *id == other), None);
    assert_eq!(not_needed(&take(store, 9).await), 2);
    assert!(due(store, 9).await.iter().any(|walk| (walk.notification, walk.batches_waiting) == (other, 0)));
}

pub(crate) async fn cancelled_leased_work_is_not_retried(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "d", "u1", &["news"], PushService::Fcm).await;
    let request = Request { when: When::Active, push: always(), ..stored(users(&["u1"])) };
    let id = send(store, app, request).await;
    let under_way = take(store, 0).await.batches.remove(0);
    assert_eq!(store.cancel(app, id, NOW).await.expect("cancelled").not_pushed, 0, "it was already taken");
    let again = vec![again(1, 1, &[num])];
    let finished = vec![Finished { again, ..ended(under_way.id) }];
    let cancelled = removed_part(app, Work::Notification(id), Outcome::Cancelled, at(1), &[num]);
    assert_eq!(store.finish(finished, at(1)).await.expect("written").cancelled.parts, [cancelled]);
    assert_eq!(take(store, 9).await.batches, []);
    let state = store.notification(app, id, NOW).await.expect("read").expect("found").state;
    assert_eq!(state, noroshi_store::State::Cancelled);
}

/// All members in the order of the pages; every page has about the requested size.
async fn read_all(store: &dyn Store, app: AppId, audience: &Audience, limit: usize) -> Vec<DeviceNum> {
    let (mut nums, mut after) = (Vec::new(), 0);
    for _ in 0..1_000 {
        let page = store.audience(app, audience, after, limit, None).await.expect("read");
        assert!(page.members.len() <= limit, "{page:?}");
        nums.extend(page.members.iter().map(|member| member.num));
        match page.next {
            Some(next) => after = next,
            None => return nums,
        }
    }
    panic!("it has to come to an end");
}

pub(crate) async fn audiences_come_in_pages(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    join(store, other, "foreign", "u1", &["a", "b", "c"]).await;
    let mut all = Vec::new();
    for i in 0..24u32 {
        let of = [(2, "a"), (3, "b"), (7, "c")].into_iter().filter(|(n, _)| i % n == 0).map(|(_, name)| name);
        let names: Vec<&str> = of.collect();
        let service = PushService::ALL[i as usize % 3];
        let num = match i % 5 {
            0 => join(store, app, &format!("d{i}"), "u1", &names).await,
            _ => pushable(store, app, &format!("d{i}"), "u1", &names, service).await,
        };
        all.push((i, num));
    }
    let check = async |audience: Audience, matches: &dyn Fn(u32) -> bool| {
        let expected: Vec<_> = all.iter().filter(|(i, _)| matches(*i)).map(|(_, num)| *num).collect();
        for limit in [1, 2, 3, 7, 24, 100] {
            assert_eq!(read_all(store, app, &audience, limit).await, expected, "{audience:?} by {limit}");
        }
    };
    check(Audience::Everyone, &|_| true).await;
    check(Audience::Topic(topic("a")), &|i| i % 2 == 0).await;
    check(Audience::Topic(topic("c")), &|i| i % 7 == 0).await;
    check(Audience::Topic(topic("nobody")), &|_| false).await;
    for (text, matches) in [
        ("'a' in topics && 'c' in topics", (|i| i % 14 == 0) as fn(u32) -> bool),
        ("'a' in topics || 'b' in topics", |i| i % 2 == 0 || i % 3 == 0),
        ("'a' in topics && !('b' in topics)", |i| i % 2 == 0 && i % 3 != 0),
        ("!('a' in topics)", |i| i % 2 != 0),
        ("!('a' in topics) && 'c' in topics", |i| i % 2 != 0 && i % 7 == 0),
        ("!('nobody' in topics)", |_| true),
        ("'nobody' in topics", |_| false),
    ] {
        check(Audience::Condition(condition(text)), &matches).await;
    }
    let page = store.audience(app, &Audience::Everyone, 0, 2, None).await.expect("read");
    let seen: Vec<_> =
        page.members.iter().map(|member| (member.num, member.user.clone(), member.service)).collect();
    assert_eq!(
        seen,
        [(all[0].1, Some(user("u1")), None), (all[1].1, Some(user("u1")), Some(PushService::ALL[1])),]
    );
}

//! Push work of two nodes on one database: guarantees for concurrent calls.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use noroshi_store::{
    Accept, Ack, Audience, Batch, Campaign, CampaignDrafts, CampaignState, Campaigns, Error, Finished,
    FinishedCounts, InvalidToken, Lease, Maintenance, NewBatch, NewCampaign, OfCampaign, PushPart, PushQueue,
    Renewal, Sessions, Store, Take,
};
use noroshi_types::{
    AppId, BatchId, CampaignId, DeviceNum, Lane, Outcome, PushService, Request, Target, Timestamp, When,
};

use super::{fresh, open, two};
use crate::conformance::fixture::*;
use crate::conformance::push_fixture::*;
use crate::conformance::push_tokens;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A campaign with this many batches of one device each.
async fn campaign_of(store: &dyn Store, app: AppId, device: DeviceNum, batches: usize) -> CampaignId {
    let id = running(store, app).await;
    let batches = (0..batches).map(|_| batch(Lane::Campaign, 0, &[device])).collect();
    store.enqueue(id, 0, batches, 1, true, Vec::new(), NOW).await.expect("enqueued");
    id
}

async fn read(store: &dyn Store, app: AppId, id: CampaignId) -> Campaign {
    store.campaign(app, id, NOW).await.expect("read").expect("found")
}

fn pushed(batch: &Batch) -> Finished {
    let parts = vec![PushPart {
        outcome: Outcome::Pushed,
        reason: None,
        variant: None,
        devices: batch.recipients.clone(),
    }];
    Finished { parts, latencies: vec![(3, 1), (7, 2)], ..ended(batch.id) }
}

fn sum(counts: &[(Outcome, String, u64)], outcome: Outcome) -> u64 {
    counts.iter().filter(|(of, ..)| *of == outcome).map(|(.., count)| count).sum()
}

/// Takes and finishes until nothing is due. Returns the batches.
async fn send_all(store: &dyn Store, batches_max: usize) -> Vec<BatchId> {
    let mut seen = Vec::new();
    loop {
        let taken = take_with(store, Take { batches_max, ..asked(0) }).await;
        seen.extend(taken.batches.iter().map(|batch| batch.id));
        store.finish(taken.batches.iter().map(pushed).collect(), NOW).await.expect("finished");
        if taken.batches.is_empty() && taken.next_due.is_none_or(|due| due > NOW) {
            return seen;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_takes_a_batch() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &[], PushService::Apns).await;
    let id = campaign_of(&one, app, num, 300).await;
    let all = tokio::join!(send_all(&one, 7), send_all(&other, 5), send_all(&one, 64), send_all(&other, 1));
    let seen = [all.0, all.1, all.2, all.3].concat();
    assert_eq!(seen.len(), 300);
    assert_eq!(seen.into_iter().collect::<HashSet<_>>().len(), 300, "each once");
    let found = read(&other, app, id).await;
    assert_eq!((found.state, found.batches_open), (CampaignState::Done, 0));
    assert_eq!(found.counts, [(Outcome::Pushed, String::new(), 300)], "no sum is lost");
    assert_eq!(found.latencies, [(3, 300), (7, 600)]);
}

/// All three kinds of acknowledgements: by the inbox, by the position in a topic, and explicit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_and_a_claim_on_two_nodes_have_one_winner() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let a = pushable(&one, app, "a", "u1", &["news"], PushService::Fcm).await;
    let b = pushable(&one, app, "b", "u1", &["news"], PushService::Fcm).await;
    let mut acknowledged_first = 0;
    for round in 0..90u64 {
        let (target, when): (Target, When) = match round % 3 {
            0 => (users(&["u1"]), When::Stored),
            1 => (to_topic("news"), When::Stored),
            _ => (users(&["u1"]), When::Connected),
        };
        let id = send(&one, app, Request { when, push: fallback(30), ..stored(target) }).await;
        for walk in one.walks(at(30), 9).await.expect("read").due {
            let batch = NewBatch { service: Some(PushService::Fcm), ..batch(Lane::Direct, 30, &[a, b]) };
            assert!(other.walked(&walk, vec![batch], None, Vec::new(), at(30)).await.expect("collected"));
        }
        let acknowledge = async {
            tokio::time::sleep(Duration::from_micros(150 * (round % 9))).await;
            let acked = one.ack(vec![Ack { device: a, ids: vec![id] }], at(1)).await.expect("acknowledged");
            acked.iter().map(|acked| acked.count).sum::<u64>()
        };
        let (acked, taken) = tokio::join!(acknowledge, take(&other, 30));
        let sent = taken.batches.concat_recipients();
        match not_needed(&taken) {
            0 => assert_eq!(sent, [a, b], "round {round}"),
            not_needed => assert_eq!((sent, not_needed, acked), (vec![b], 1, 1), "round {round}"),
        }
        if when == When::Connected {
            assert_eq!(acked, not_needed(&taken), "round {round}: only the push waits for it");
        }
        acknowledged_first += not_needed(&taken);
        end_all(&one, taken.batches, Outcome::Pushed).await;
        let sums: BTreeMap<_, _> =
            counts(&other, app, id).await.into_iter().map(|(of, count)| (of as u8, count)).collect();
        let sum = |outcome: Outcome| sums.get(&(outcome as u8)).copied().unwrap_or(0);
        assert_eq!(sum(Outcome::Pushed) + sum(Outcome::PushNotNeeded), 2, "round {round}");
        assert_eq!(sum(Outcome::Acked), acked, "round {round}");
    }
    assert!(acknowledged_first > 0, "each side won the race at least once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_finished_on_two_nodes_counts_once() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &[], PushService::Apns).await;
    let id = campaign_of(&one, app, num, 40).await;
    let mut batches = take(&one, 0).await.batches;
    let mut unknown = 0;
    for pair in batches.chunks(4) {
        let finished: Vec<Finished> = pair.iter().map(pushed).collect();
        let backwards: Vec<Finished> = finished.iter().rev().cloned().collect();
        let (a, b) = tokio::join!(one.finish(finished, NOW), other.finish(backwards, NOW));
        unknown += a.expect("finished").unknown + b.expect("finished").unknown;
    }
    assert_eq!(unknown, 40);
    let found = read(&one, app, id).await;
    assert_eq!((found.state, sum(&found.counts, Outcome::Pushed)), (CampaignState::Done, 40));
    let late = other.finish(vec![pushed(&batches.remove(0))], NOW).await.expect("queried");
    assert_eq!(late, FinishedCounts { unknown: 1, ..FinishedCounts::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_ends_with_its_last_batches_on_any_node() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &[], PushService::Apns).await;
    for round in 0..30 {
        let id = running(&one, app).await;
        let batches = vec![batch(Lane::Campaign, 0, &[num]), batch(Lane::Campaign, 0, &[num])];
        one.enqueue(id, 0, batches, 1, false, Vec::new(), NOW).await.expect("enqueued");
        let batches = take(&one, 0).await.batches;
        let walked_before = round % 2 == 0;
        if walked_before {
            one.enqueue(id, 1, Vec::new(), 2, true, Vec::new(), NOW).await.expect("collected");
        }
        // The end of the walk and the last finishes, concurrently.
        let walk = async {
            match walked_before {
                true => CampaignState::Running,
                false => other.enqueue(id, 1, Vec::new(), 2, true, Vec::new(), NOW).await.expect("collected"),
            }
        };
        let (walk, a, b) = tokio::join!(
            walk,
            one.finish(vec![pushed(&batches[0])], NOW),
            other.finish(vec![pushed(&batches[1])], NOW)
        );
        let ends = a.expect("finished").done.len()
            + b.expect("finished").done.len()
            + usize::from(walk == CampaignState::Done);
        assert_eq!((ends, read(&one, app, id).await.state), (1, CampaignState::Done), "round {round}");
    }
}

/// Repeats until there is a result.
async fn take_until(store: &dyn Store, take: Take) -> Vec<Batch> {
    let started = Instant::now();
    loop {
        let taken = take_with(store, take.clone()).await;
        if !taken.batches.is_empty() {
            return taken.batches;
        }
        assert!(started.elapsed() < PATIENCE, "the batch must become available: {taken:?}");
        assert!(taken.next_due.is_some(), "there is a time to wait for");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_takes_the_batches_of_a_dead_one() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &[], PushService::Apns).await;
    for (round, dead_mans_clock) in [NOW, Timestamp(5_000), at(1_000_000_000)].into_iter().enumerate() {
        let id = running(&one, app).await;
        let due = NewBatch { due_at: Timestamp(1), ..batch(Lane::Campaign, 0, &[num]) };
        one.enqueue(id, 0, vec![due], 1, true, Vec::new(), NOW).await.expect("enqueued");
        let short = Take { now: dead_mans_clock, lease: Duration::from_millis(600), ..asked(0) };
        let dead = take_with(&one, short).await.batches.remove(0);
        // Another node's clock, however late, frees nothing.
        let early = take_with(&other, asked(2_000_000_000)).await;
        assert_eq!(early.batches, [], "round {round}");
        let taken = take_until(&other, asked(0)).await.remove(0);
        assert_eq!((taken.id, taken.recipients.clone()), (dead.id, vec![num]));
        // The first node continues, but the batch belongs to the other node.
        let lease = |batch: &Batch| Lease { batch: batch.id, until: batch.leased_until };
        assert_eq!(
            one.renew(vec![lease(&dead)], at(9_999), LEASE, Renewal::Kept).await.expect("queried"),
            []
        );
        assert_eq!(
            other.renew(vec![lease(&taken)], at(9_999), LEASE, Renewal::Kept).await.expect("queried"),
            [taken.id]
        );
        assert_eq!(take_with(&one, asked(2_000_000_000)).await.batches, [], "round {round}");
        assert_eq!(other.finish(vec![pushed(&taken)], NOW).await.expect("finished").done, [(app, id)]);
    }
}

/// A node may continue with a batch that another one took, as with a queue between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_can_move_to_another_sender() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &[], PushService::Apns).await;
    campaign_of(&one, app, num, 1).await;
    let taken = take(&one, 0).await.batches.remove(0);
    let lease = Lease { batch: taken.id, until: taken.leased_until };
    let moved =
        other.renew(vec![lease], at(LEASE_SECONDS + 50), LEASE, Renewal::Kept).await.expect("queried");
    assert_eq!(moved, [taken.id]);
    assert_eq!(take(&one, LEASE_SECONDS).await.batches, [], "the first sender no longer holds it");
    assert_eq!(one.renew(vec![lease], at(9), LEASE, Renewal::Kept).await.expect("queried"), []);
    let again = take(&other, LEASE_SECONDS + 50).await.batches;
    assert_eq!(again.len(), 1);
    let given_back = Lease { batch: taken.id, until: again[0].leased_until };
    assert_eq!(
        one.renew(vec![given_back], Timestamp(0), LEASE, Renewal::Kept).await.expect("queried"),
        [taken.id]
    );
    assert_eq!(take(&one, 0).await.batches.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_races_with_takes_and_finishes() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &[], PushService::Apns).await;
    let id = campaign_of(&one, app, num, 400).await;
    let abort = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        other.set_campaign_state(app, id, &[CampaignState::Running], CampaignState::Aborted, NOW).await
    };
    let (sent, also, aborted) = tokio::join!(send_all(&one, 8), send_all(&other, 8), abort);
    aborted.expect("aborted");
    // Batches that were leased at the abort have been finished; no lease is left.
    let late = take(&one, 0).await;
    assert_eq!(late.batches, []);
    let found = read(&one, app, id).await;
    assert_eq!((found.state, found.batches_open), (CampaignState::Aborted, 0));
    let (pushes, cancelled) = (sum(&found.counts, Outcome::Pushed), sum(&found.counts, Outcome::Cancelled));
    assert_eq!(pushes, (sent.len() + also.len()) as u64);
    assert_eq!(pushes + cancelled, 400, "each once: {:?}", found.counts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_collectors_enqueues_a_page() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let num = pushable(&one, app, "a", "u1", &["news"], PushService::Apns).await;
    let id = running(&one, app).await;
    send(&one, app, Request { when: When::Active, push: always(), ..stored(to_topic("news")) }).await;
    for page in 0..20u64 {
        let walk = one.walks(NOW, 9).await.expect("read").due.remove(0);
        assert_eq!(walk.cursor, page);
        let cursor = (page < 19).then_some(page + 1);
        let batches = || vec![batch(Lane::Direct, 0, &[num])];
        let (a, b) = tokio::join!(
            one.walked(&walk, batches(), cursor, Vec::new(), NOW),
            other.walked(&walk, batches(), cursor, Vec::new(), NOW)
        );
        assert!(a.expect("queried") != b.expect("queried"), "page {page}");
        let (a, b) = tokio::join!(
            one.enqueue(id, page, batches(), page + 1, cursor.is_none(), Vec::new(), NOW),
            other.enqueue(id, page, batches(), page + 1, cursor.is_none(), Vec::new(), NOW)
        );
        let refused = [&a, &b].into_iter().filter(|result| matches!(result, Err(Error::Conflict))).count();
        assert_eq!((refused, a.is_ok() != b.is_ok()), (1, true), "page {page}: {a:?}, {b:?}");
    }
    assert_eq!(take(&other, 0).await.batches.len(), 40);
    assert_eq!(read(&one, app, id).await.recipients, 20);
}

/// A reader that continues after the last number misses none, whatever the order of commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidations_are_read_without_gaps() {
    const DEVICES: usize = 60;
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let mut nums = Vec::new();
    for i in 0..DEVICES {
        nums.push(pushable(&one, app, &format!("d{i}"), "u1", &[], PushService::Apns).await);
    }
    campaign_of(&one, app, nums[0], DEVICES).await;
    let batches = take(&one, 0).await.batches;
    let finish = async |store: &dyn Store, some: &[(&Batch, &DeviceNum)]| {
        for (batch, device) in some {
            let gone = InvalidToken { device: **device, token_at: NOW, since: None, reason: "Unregistered" };
            let finished = Finished { gone: vec![gone], ..pushed(batch) };
            assert_eq!(store.finish(vec![finished], NOW).await.expect("finished").tokens_removed, 1);
        }
    };
    let pairs: Vec<_> = batches.iter().zip(&nums).collect();
    let (a, b) = pairs.split_at(DEVICES / 2);
    let read = async {
        let (mut seen, started) = (Vec::new(), Instant::now());
        while seen.len() < DEVICES {
            assert!(started.elapsed() < PATIENCE, "{} were seen", seen.len());
            let after = seen.last().copied().unwrap_or(0);
            let found = other.invalidations(app, after, 5).await.expect("read");
            seen.extend(found.iter().map(|one| one.seq));
        }
    };
    tokio::join!(finish(&one, a), finish(&other, b), read);
}

/// Two calls with the same key create one campaign.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_creates_one_campaign_on_two_nodes() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    for round in 0..10u8 {
        let key = noroshi_store::Idempotency { key: format!("k{round}").into(), body_hash: [round; 32] };
        let new = NewCampaign { idempotency: Some(key), ..new_campaign(app, CampaignState::Draft) };
        let (a, b) = tokio::join!(one.create_campaign(new.clone(), NOW), other.create_campaign(new, NOW));
        let (a, b) = (a.expect("created"), b.expect("created"));
        assert_eq!(a.campaign.id, b.campaign.id);
        assert!(a.replayed != b.replayed, "round {round}");
    }
    assert_eq!(
        one.list_campaigns(app, noroshi_store::CampaignFilter::first(99), NOW)
            .await
            .expect("read")
            .campaigns
            .len(),
        10
    );
}

/// Two nodes accept at once: every push is enqueued once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_accepting_nodes_enqueue_every_push_once() {
    let (_guard, one, other) = two().await;
    let app = app(&one, "shop").await;
    let mut nums = Vec::new();
    for i in 0..40 {
        let id = format!("d{i}");
        nums.push(pushable(&one, app, &id, &format!("u{}", i / 2), &["news"], PushService::Fcm).await);
    }
    let id = running(&one, app).await;
    one.enqueue(id, 0, Vec::new(), 1, false, Vec::new(), NOW).await.expect("enqueued");
    let send_many = async |store: &dyn Store| {
        for i in 0..40 {
            let request =
                Request { push: fallback(30), ..stored(users(&[&format!("u{}", i % 20), "nobody"])) };
            let campaign = (i % 2 == 0).then_some(OfCampaign { id, lane: Lane::Campaign, variant: None });
            let request =
                Accept { app, request: request.into(), now: NOW, idempotency: None, campaign, gate: None };
            accept(store, request).await.expect("accepted");
        }
    };
    tokio::join!(send_many(&one), send_many(&other));
    let mut taken = Vec::new();
    let mut more = Vec::new();
    tokio::join!(async { taken = take_all(&one).await }, async { more = take_all(&other).await });
    taken.append(&mut more);
    assert_eq!(taken.concat_recipients().len(), 2 * 40 * 2, "once for each of the user's two devices");
    let of_campaign = taken.iter().filter(|batch| batch.campaign == Some(id)).count();
    assert_eq!((taken.len(), of_campaign), (80, 40));
    let found = read(&other, app, id).await;
    assert_eq!((sum(&found.counts, Outcome::Kept), sum(&found.counts, Outcome::Unknown)), (80, 40));
    assert_eq!(found.batches_taken, 40);
    let members = one.audience(app, &Audience::Everyone, 0, 99, None).await.expect("read").members;
    assert_eq!(members.iter().map(|member| member.num).collect::<Vec<_>>(), nums);
    let retry = |batch: &Batch| Finished { again: vec![again(60, 1, &batch.recipients)], ..ended(batch.id) };
    let counts = other.finish(taken.iter().map(retry).collect(), at(31)).await.expect("finished");
    assert_eq!(counts, FinishedCounts::default());
}

/// Everything that is due half a minute from now.
async fn take_all(store: &dyn Store) -> Vec<Batch> {
    let mut all = Vec::new();
    loop {
        let taken = take_with(store, Take { batches_max: 6, ..asked(30) }).await;
        if taken.batches.is_empty() && taken.next_due.is_none_or(|due| due > at(30)) {
            return all;
        }
        all.extend(taken.batches);
    }
}

/// Removes what the last migrations added.
const BEFORE_PUSH_TOKENS: &str =
    "DROP INDEX push_credentials_by_use; ALTER TABLE push_credentials DROP COLUMN provider;
    CREATE UNIQUE INDEX push_credentials_by_use ON push_credentials (app, service, environment);
    DROP TRIGGER push_tokens_of_device ON devices; DROP FUNCTION push_tokens_of_device;
    DROP TABLE push_tokens;
    ALTER TABLE push_queue DROP COLUMN token; ALTER TABLE push_walks DROP COLUMN token;
    ALTER TABLE push_invalidations DROP COLUMN kind; ALTER TABLE push_invalidations DROP COLUMN name;
    DROP TABLE activities; DROP TABLE activity_apps; DROP TABLE activity_slices; DROP TABLE activity_devices;
    DROP TABLE activity_counts; DROP TABLE device_seen;
    UPDATE noroshi_schema SET version = 17";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_push_tokens_is_upgraded() {
    let (database, store) = fresh().await;
    let (app, nums) = push_tokens::before_the_upgrade(&store).await;
    store.close().await;
    drop(store);
    let client = database.client().await;
    client.batch_execute(BEFORE_PUSH_TOKENS).await.expect("the former schema");
    let store = open(&database).await;
    push_tokens::after_the_upgrade(&store, app, &nums).await;
    let rows = async || {
        let row = client.query_one("SELECT count(*) FROM push_tokens", &[]).await.expect("read");
        row.get::<_, i64>(0)
    };
    assert_eq!(rows().await, 2);
    // As an older program does.
    client.execute("DELETE FROM devices WHERE num = $1", &[&(nums[0].0 as i64)]).await.expect("deleted");
    assert_eq!(rows().await, 1);
    // An upgrade that was interrupted runs again.
    client.batch_execute("UPDATE noroshi_schema SET version = 17").await.expect("set");
    store.close().await;
    drop(store);
    push_tokens::after_a_restart(&open(&database).await, app).await;
}

//! The promises of every implementation of the batch queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use noroshi_cluster::batches::{BatchQueue, LaneDepth, QueuedBatch, Received};

/// How the implementations under test are set up.
pub(crate) const CLAIM_AFTER: Duration = Duration::from_secs(3);

const DEADLINE: Duration = Duration::from_secs(60);

const LANES: [u8; 3] = [1, 2, 3];

/// An empty queue with several pullers.
#[async_trait]
pub(crate) trait Engine: Sync {
    async fn puller(&self) -> Arc<dyn BatchQueue>;

    /// Whether batches of a lane arrive in the order they were put.
    fn keeps_order(&self) -> bool {
        true
    }
}

pub(crate) async fn until(mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !reached().await {
        assert!(Instant::now() < deadline, "it does not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A body with every byte value, and some more.
pub(crate) fn parcel(key: u64, lane: u8) -> QueuedBatch {
    let body: Vec<u8> = (0..=255).cycle().take(1_000 + usize::try_from(key).expect("small")).collect();
    QueuedBatch { key, lane, body: Bytes::from(body) }
}

/// Pulls until there are `count`.
pub(crate) async fn drain(queue: &dyn BatchQueue, count: usize) -> Vec<Received> {
    let deadline = Instant::now() + DEADLINE;
    let mut received = Vec::new();
    while received.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} batches came", received.len());
        let max = count - received.len();
        received.extend(queue.pull(&LANES, max, Duration::from_millis(500)).await.expect("pulled"));
        assert!(received.len() <= count, "not more than asked for");
    }
    received
}

/// The keys, sorted.
pub(crate) fn all_of(received: &[Received]) -> Vec<u64> {
    let mut keys: Vec<u64> = received.iter().map(|one| one.parcel.key).collect();
    keys.sort_unstable();
    keys
}

async fn finish(queue: &dyn BatchQueue, received: Vec<Received>) {
    queue.done(received.into_iter().map(|one| one.receipt).collect()).await.expect("done");
}

pub(crate) async fn batches_arrive_whole_and_in_order_of_their_lanes(engine: &dyn Engine) {
    let (a, b) = (engine.puller().await, engine.puller().await);
    let parcels: Vec<QueuedBatch> =
        (0..60).map(|key| parcel(key, 3 - u8::try_from(key % 3).expect("small"))).collect();
    a.put(parcels.clone()).await.expect("put");
    let received = drain(&*b, 60).await;
    assert_eq!(all_of(&received), (0..60).collect::<Vec<_>>());
    for one in &received {
        assert_eq!(one.parcel, parcels[usize::try_from(one.parcel.key).expect("small")]);
        assert_eq!((one.deliveries, one.receipt.lane), (1, one.parcel.lane));
    }
    if engine.keeps_order() {
        let order: Vec<(u8, u64)> = received.iter().map(|one| (one.parcel.lane, one.parcel.key)).collect();
        assert!(order.is_sorted(), "lane by lane, oldest first: {order:?}");
    }
    finish(&*b, received).await;
}

pub(crate) async fn a_batch_is_pulled_by_one_sender(engine: &dyn Engine) {
    let (a, b) = (engine.puller().await, engine.puller().await);
    a.put((0..40).map(|key| parcel(key, 2)).collect()).await.expect("put");
    let mut keys = BTreeSet::new();
    until(async || {
        for queue in [&a, &b] {
            let received = queue.pull(&LANES, 7, Duration::from_millis(50)).await.expect("pulled");
            for one in &received {
                assert!(keys.insert(one.parcel.key), "{} came twice", one.parcel.key);
            }
            finish(&**queue, received).await;
        }
        keys.len() == 40
    })
    .await;
}

pub(crate) async fn finished_batches_are_gone(engine: &dyn Engine) {
    let (a, b) = (engine.puller().await, engine.puller().await);
    a.put(vec![parcel(1, 1), parcel(2, 3)]).await.expect("put");
    let received = drain(&*a, 2).await;
    // Idempotent, for any caller.
    finish(&*b, received.clone()).await;
    finish(&*a, received).await;
    tokio::time::sleep(CLAIM_AFTER + CLAIM_AFTER / 2).await;
    assert_eq!(b.pull(&LANES, 9, Duration::from_millis(500)).await.expect("pulled"), []);
}

pub(crate) async fn what_is_left_behind_is_pulled_by_another_unless_it_is_extended(engine: &dyn Engine) {
    let (a, b) = (engine.puller().await, engine.puller().await);
    a.put(vec![parcel(1, 2), parcel(2, 2)]).await.expect("put");
    let received = drain(&*a, 2).await;
    let kept = received.into_iter().find(|one| one.parcel.key == 2).expect("both came");
    let mut left = Vec::new();
    let end = Instant::now() + CLAIM_AFTER * 3;
    while Instant::now() < end {
        a.extend(std::slice::from_ref(&kept.receipt), CLAIM_AFTER).await.expect("extended");
        left.extend(b.pull(&LANES, 9, Duration::from_millis(200)).await.expect("pulled"));
        let receipts: Vec<_> = left.iter().map(|one: &Received| one.receipt.clone()).collect();
        b.extend(&receipts, CLAIM_AFTER).await.expect("extended");
    }
    assert_eq!(all_of(&left), [1]);
    assert_eq!(left[0].parcel, parcel(1, 2));
    // A poll of the first puller that was still in progress may have pulled it meanwhile.
    let deliveries = if engine.keeps_order() { 2..=2 } else { 2..=3 };
    assert!(deliveries.contains(&left[0].deliveries), "{}", left[0].deliveries);
    finish(&*b, left).await;
    finish(&*a, vec![kept]).await;
}

pub(crate) async fn a_pull_waits_for_the_first(engine: &dyn Engine) {
    let (a, b) = (engine.puller().await, engine.puller().await);
    let began = Instant::now();
    assert_eq!(b.pull(&LANES, 9, Duration::from_millis(600)).await.expect("pulled"), []);
    assert!(began.elapsed() >= Duration::from_millis(500), "it waited {:?}", began.elapsed());
    let waiting = tokio::spawn(async move { drain(&*b, 1).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    a.put(vec![parcel(1, 3)]).await.expect("put");
    assert_eq!(all_of(&waiting.await.expect("pulled")), [1]);
    assert!(began.elapsed() < CLAIM_AFTER, "it took {:?}", began.elapsed());
}

pub(crate) async fn other_lanes_are_not_touched(engine: &dyn Engine) {
    let queue = engine.puller().await;
    queue.put(vec![parcel(1, 3), parcel(2, 1), parcel(3, 2)]).await.expect("put");
    let mut received = Vec::new();
    until(async || {
        received.extend(queue.pull(&[1, 2], 9, Duration::from_millis(100)).await.expect("pulled"));
        received.len() >= 2
    })
    .await;
    assert_eq!(all_of(&received), [2, 3]);
    received.extend(drain(&*queue, 1).await);
    assert_eq!(all_of(&received), [1, 2, 3]);
}

pub(crate) async fn the_depth_is_what_waits_and_what_is_under_way(engine: &dyn Engine) {
    let queue = engine.puller().await;
    let depth = async |lane| {
        let depths = queue.depth().await.expect("asked");
        let found = depths.into_iter().find(|depth| depth.lane == lane);
        found.map_or((0, 0), |LaneDepth { parcels, pulled, .. }| (parcels, pulled))
    };
    assert_eq!(depth(3).await, (0, 0));
    // More than one call holds.
    queue
        .put((0..600).map(|key| QueuedBatch { key, lane: 3, body: Bytes::from_static(b"x") }).collect())
        .await
        .expect("put");
    until(async || depth(3).await == (600, 0)).await;
    let received = drain(&*queue, 30).await;
    // They stay pulled until the engine reports otherwise.
    let receipts: Vec<_> = received.iter().map(|one| one.receipt.clone()).collect();
    until(async || {
        queue.extend(&receipts, DEADLINE).await.expect("extended");
        depth(3).await == (600, 30)
    })
    .await;
    finish(&*queue, received).await;
    until(async || depth(3).await == (570, 0)).await;
    assert_eq!(depth(1).await, (0, 0));
}

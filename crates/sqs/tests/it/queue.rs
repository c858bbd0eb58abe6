//! The batch queue: the suite of all implementations, and tests specific to SQS.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::Error;
use noroshi_cluster::batches::{BatchQueue, QueuedBatch};
use noroshi_sqs::{Connection, Queue, QueueConfig};

use crate::sqs::{name, sqs};
use crate::suite::{self, CLAIM_AFTER, Engine, drain};

struct OnSqs(QueueConfig);

impl OnSqs {
    fn new(connection: Connection) -> Self {
        let mut config = QueueConfig::new(connection, name("push"));
        (config.create, config.claim_after) = (true, CLAIM_AFTER);
        Self(config)
    }
}

#[async_trait::async_trait]
impl Engine for OnSqs {
    async fn puller(&self) -> Arc<dyn BatchQueue> {
        Arc::new(Queue::open(&self.0).await.expect("queues"))
    }

    fn keeps_order(&self) -> bool {
        false
    }
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let Some(sqs) = sqs().await else { return };
            suite::$name(&OnSqs::new(sqs.connection)).await;
        })*
    };
}

suite!(
    batches_arrive_whole_and_in_order_of_their_lanes,
    a_batch_is_pulled_by_one_sender,
    finished_batches_are_gone,
    what_is_left_behind_is_pulled_by_another_unless_it_is_extended,
    a_pull_waits_for_the_first,
    other_lanes_are_not_touched,
    the_depth_is_what_waits_and_what_is_under_way,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_queues_are_an_error_unless_they_may_be_created() {
    let Some(sqs) = sqs().await else { return };
    let config = QueueConfig::new(sqs.connection, name("missing"));
    let opened = Queue::open(&config).await.err().expect("refused");
    assert!(matches!(&opened, Error::Refused(why) if why.contains("DoesNotExist")), "{opened}");
    Queue::open(&QueueConfig { create: true, ..config.clone() }).await.expect("made");
    Queue::open(&config).await.expect("found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_sqs_is_a_temporary_error() {
    if sqs().await.is_none() {
        return;
    }
    let nobody = Connection { endpoint: Some("http://127.0.0.1:9".to_owned()), region: Some("x".to_owned()) };
    let opened = Queue::open(&QueueConfig::new(nobody, "push")).await.err().expect("refused");
    assert!(matches!(opened, Error::Unavailable(_)), "{opened}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_batch_is_rejected_before_anything_is_sent() {
    let Some(sqs) = sqs().await else { return };
    let queue = OnSqs::new(sqs.connection).puller().await;
    let large = QueuedBatch { key: 1, lane: 1, body: Bytes::from(vec![0; 1 << 20]) };
    let small = QueuedBatch { key: 2, lane: 1, body: Bytes::from_static(b"x") };
    let put = queue.put(vec![small, large]).await;
    assert!(matches!(put, Err(Error::TooLarge { .. })), "{put:?}");
    assert_eq!(queue.pull(&[1], 9, Duration::from_millis(500)).await.expect("pulled"), []);
    // Ten of these exceed one call.
    let body = Bytes::from(vec![7; 150 << 10]);
    let parcels = (0..10).map(|key| QueuedBatch { key, lane: 2, body: body.clone() }).collect();
    queue.put(parcels).await.expect("put");
    assert!(drain(&*queue, 10).await.iter().all(|one| one.parcel.body == body));
}

/// Prints the throughput of a node; fails only if it takes minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_batches_pass() {
    let Some(sqs) = sqs().await else { return };
    const PARCELS: u64 = 3_000;
    let engine = OnSqs::new(sqs.connection);
    let (a, b) = (engine.puller().await, engine.puller().await);
    let began = Instant::now();
    let putting = tokio::spawn(async move {
        for keys in (0..PARCELS).collect::<Vec<_>>().chunks(100) {
            let parcel = |key: &u64| QueuedBatch { key: *key, lane: 3, body: Bytes::from(vec![1; 600]) };
            a.put(keys.iter().map(parcel).collect()).await.expect("put");
        }
    });
    let mut keys = std::collections::BTreeSet::new();
    suite::until(async || {
        let received = b.pull(&[1, 2, 3], 64, Duration::from_millis(500)).await.expect("pulled");
        keys.extend(received.iter().map(|one| one.parcel.key));
        b.done(received.into_iter().map(|one| one.receipt).collect()).await.expect("done");
        keys.len() as u64 == PARCELS
    })
    .await;
    putting.await.expect("put");
    let seconds = began.elapsed().as_secs_f64();
    println!("{PARCELS} batches in {seconds:.1} s: {:.0}/s", PARCELS as f64 / seconds);
}

//! The queue of push batches: in process and on Redis.

mod suite;

use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::batches::{BatchQueue, InProcess};
use noroshi_cluster::redis::{Config, Redis};
use noroshi_telemetry::registry;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::engine::{config, info};
use crate::recorder::Recorder;
use crate::server::{RedisCluster, Server};
use suite::{CLAIM_AFTER, Engine, all_of, drain, parcel};

struct Alone(InProcess);

#[async_trait::async_trait]
impl Engine for Alone {
    async fn puller(&self) -> Arc<dyn BatchQueue> {
        Arc::new(self.0.clone())
    }
}

struct OnRedis {
    config: Config,
    stop: CancellationToken,
    _stopped: DropGuard,
    _server: Box<dyn std::any::Any + Send + Sync>,
}

impl OnRedis {
    fn new(url: &str, server: impl std::any::Any + Send + Sync) -> Self {
        let stop = CancellationToken::new();
        Self { config: config(url), _stopped: stop.clone().drop_guard(), stop, _server: Box::new(server) }
    }
}

#[async_trait::async_trait]
impl Engine for OnRedis {
    async fn puller(&self) -> Arc<dyn BatchQueue> {
        let redis =
            Redis::open(self.config.clone(), None, info("sender"), &mut registry()).expect("configuration");
        let batches = Arc::new(redis.batches().with_claim_after(CLAIM_AFTER));
        tokio::spawn(redis.run(Arc::new(Recorder::default()), self.stop.clone()));
        while batches.depth().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        batches
    }
}

macro_rules! suites {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                super::suite::$name(&super::Alone(super::InProcess::new(super::CLAIM_AFTER))).await;
            })*
        }

        mod standalone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let server = super::Server::start();
                super::suite::$name(&super::OnRedis::new(&server.url(), server)).await;
            })*
        }
    };
}

suites!(
    batches_arrive_whole_and_in_order_of_their_lanes,
    a_batch_is_pulled_by_one_sender,
    finished_batches_are_gone,
    what_is_left_behind_is_pulled_by_another_unless_it_is_extended,
    a_pull_waits_for_the_first,
    other_lanes_are_not_touched,
    the_depth_is_what_waits_and_what_is_under_way,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cluster_keeps_all_lanes_together() {
    let cluster = RedisCluster::start();
    let engine = OnRedis::new(&cluster.url(), cluster);
    suite::batches_arrive_whole_and_in_order_of_their_lanes(&engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_its_data_is_used_again() {
    let server = Server::start();
    let url = server.url();
    let engine = OnRedis::new(&url, ());
    let (a, b) = (engine.puller().await, engine.puller().await);
    a.put(vec![parcel(1, 3), parcel(2, 3)]).await.expect("put");
    let first = drain(&*a, 1).await;
    server.ask(&["FLUSHALL"]);
    // Old batches are gone; new ones arrive, also at a waiting puller.
    a.done(first.into_iter().map(|one| one.receipt).collect()).await.expect("nothing to be done");
    let waiting = tokio::spawn(async move { drain(&*b, 2).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    a.put(vec![parcel(3, 3), parcel(4, 1)]).await.expect("put");
    assert_eq!(all_of(&waiting.await.expect("pulled")), [3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_redis_is_an_error_until_it_is_back() {
    let mut server = Server::persistent();
    let url = server.url();
    let engine = OnRedis::new(&url, ());
    let a = engine.puller().await;
    a.put(vec![parcel(1, 2), parcel(2, 2)]).await.expect("put");
    let pulled = drain(&*a, 1).await;
    server.kill();
    suite::until(async || a.put(vec![parcel(9, 2)]).await.is_err()).await;
    assert!(a.pull(&[1, 2, 3], 1, Duration::from_secs(1)).await.is_err());
    server.start_again();
    suite::until(async || a.depth().await.is_ok()).await;
    a.done(pulled.into_iter().map(|one| one.receipt).collect()).await.expect("done");
    assert_eq!(all_of(&drain(&*a, 1).await), [2], "it kept the other");
}

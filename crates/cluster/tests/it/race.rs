//! Many concurrent log-ins of one device on several nodes: the displaced ones form one chain, and one remains.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use noroshi_cluster::{Holder, Taken};

use crate::engine::{Engine, TestNode, session};

const NODES: usize = 3;
const TASKS: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_device_is_held_once_in_process() {
    takes_form_a_chain(&Engine::in_process()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_device_is_held_once_on_redis() {
    takes_form_a_chain(&Engine::standalone()).await;
}

async fn takes_form_a_chain(engine: &Engine) {
    let mut nodes = Vec::new();
    for i in 0..NODES {
        nodes.push(Arc::new(engine.node(&i.to_string()).await));
    }
    // Like the clocks of several nodes: close to each other, never equal.
    let clock = Arc::new(AtomicU64::new(1 << 40));
    let tasks: Vec<_> =
        (0..TASKS).map(|i| tokio::spawn(log_in(nodes[i % NODES].clone(), clock.clone(), i))).collect();
    let mut taken = Vec::new();
    for task in tasks {
        taken.push(task.await.expect("task"));
    }
    let mut next: HashMap<Option<Holder>, Holder> = HashMap::new();
    for (holder, previous) in &taken {
        assert!(next.insert(*previous, *holder).is_none(), "{previous:?} was displaced twice");
    }
    let mut stands = None;
    let mut count = 0;
    while let Some(holder) = next.get(&stands).copied() {
        assert!(stands.is_none_or(|before: Holder| before.generation < holder.generation));
        stands = Some(holder);
        count += 1;
    }
    assert_eq!(count, TASKS, "all are in one chain");
    let stands = stands.expect("one stands");
    for node in &nodes {
        assert_eq!(node.locate(node.device("d")).await, [stands.epoch]);
        assert_eq!(node.locate(node.user("u")).await, [stands.epoch]);
    }
}

/// Retries with greater generations until it has the device.
async fn log_in(node: Arc<TestNode>, clock: Arc<AtomicU64>, task: usize) -> (Holder, Option<Holder>) {
    let epoch = node.epoch();
    loop {
        // Tasks draw in another order than they take.
        let generation = (clock.fetch_add(1, SeqCst) << 8) + task as u64;
        tokio::task::yield_now().await;
        let take = session(&node.cluster.keys, "d", Some("u"), generation);
        match node.cluster.directory.take(epoch, vec![take]).await.expect("take")[0] {
            Taken::Now { previous } | Taken::Partly { previous } => {
                return (Holder { epoch, generation }, previous);
            }
            Taken::Behind { generation } => {
                clock.fetch_max((generation >> 8) + 1, SeqCst);
            }
            Taken::Unknown => panic!("the engine is there"),
        }
    }
}

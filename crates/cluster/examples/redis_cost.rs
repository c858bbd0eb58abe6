//! Measures the cost of the cluster on Redis: memory per device, log-ins, requests to 300 users.
//!
//! ```text
//!   redis-server --port 7001 --save '' &
//!   cargo run --release -p noroshi-cluster --example redis_cost -- redis://127.0.0.1:7001 [devices] [requests]
//! ```
//!
//! Ten nodes in this process, each with its own connections. Redis' own counters measure its cost; the nodes' work on a
//! message is not measured. Use a Redis without other data: the example does not clear it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use noroshi_cluster::redis::{Address, Config, Redis};
use noroshi_cluster::{Cluster, Epoch, NodeInfo, Receiver, Roles, SessionKey, Take};
use noroshi_types::{AppId, DeviceId, UserId};
use tokio_util::sync::CancellationToken;

const NODES: usize = 10;
const USERS_PER_REQUEST: usize = 300;
/// A request's payload, and what one target adds to a message.
const PAYLOAD_BYTES: usize = 200;
const TARGET_BYTES: usize = 16;
/// Concurrent log-ins and requests.
const CONCURRENCY: usize = 16;
const LOG_IN_BATCH: usize = 16;

#[derive(Default)]
struct Counter {
    messages: AtomicU64,
    lost: AtomicU64,
}

impl Receiver for Counter {
    fn receive(&self, _: Epoch, _: Bytes) {
        self.messages.fetch_add(1, Relaxed);
    }
    fn lost(&self, _: Instant) {
        self.lost.fetch_add(1, Relaxed);
    }
    fn joined(&self, _: Epoch) {}
    fn left(&self) {}
    fn nodes_changed(&self) {}
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("the address of a Redis");
    let mut number =
        |otherwise: usize| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (devices, requests) = (number(100_000), number(5_000));
    let address = Address::parse(&url).expect("address");
    let (clusters, counters) = start(&address).await;
    let redis = Figures::of(&url);

    let (before, started) = (redis.read(), Instant::now());
    log_in(&clusters, devices).await;
    let after = redis.read();
    let seconds = started.elapsed().as_secs_f64();
    println!("{devices} log-ins: {:.0}/s", devices as f64 / seconds);
    after.print_since(&before, devices as f64, "log-in");
    println!("  memory: {:.0} bytes a device with a user", (after.memory - before.memory) / devices as f64);

    let (before, started) = (redis.read(), Instant::now());
    let mut times = publish(&clusters[0], devices, requests).await;
    let seconds = started.elapsed().as_secs_f64();
    let after = redis.read();
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let rate = requests as f64 / seconds;
    println!(
        "{requests} requests of {USERS_PER_REQUEST} users, half of them online: {rate:.0}/s = {:.0} look-ups/s, {:.0} \
         deliveries/s; p50 {:.1} ms, p99 {:.1} ms",
        rate * USERS_PER_REQUEST as f64,
        rate * USERS_PER_REQUEST as f64 / 2.0,
        at(0.5),
        at(0.99)
    );
    after.print_since(&before, requests as f64, "request");
    let commands = (after.commands - before.commands) / requests as f64;
    println!("  {:.4} commands a delivery", commands / (USERS_PER_REQUEST as f64 / 2.0));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let total = |of: fn(&Counter) -> &AtomicU64| -> u64 {
        counters.iter().map(|counter| of(counter).load(Relaxed)).sum()
    };
    println!("  {} messages arrived, {} losses", total(|c| &c.messages), total(|c| &c.lost));
}

async fn start(address: &Address) -> (Vec<Cluster>, Vec<Arc<Counter>>) {
    let mut nodes = (Vec::new(), Vec::new());
    for i in 0..NODES {
        let info = NodeInfo { name: format!("node-{i}"), roles: Roles::ALL, ..NodeInfo::default() };
        let config = Config::new(address.clone(), [1; 16]);
        let redis =
            Redis::open(config, None, info, &mut noroshi_telemetry::registry()).expect("configuration");
        let counter = Arc::new(Counter::default());
        nodes.0.push(redis.cluster());
        nodes.1.push(counter.clone());
        tokio::spawn(redis.run(counter, CancellationToken::new()));
    }
    for cluster in &nodes.0 {
        while cluster.members.nodes().len() < NODES {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    nodes
}

fn user(cluster: &Cluster, i: usize) -> SessionKey {
    cluster.keys.user(AppId(1), &UserId::parse(&format!("user-{i}")).expect("user"))
}

/// Runs the jobs with these numbers, a few at a time, each as a task of its own.
async fn run_all<T: Send + 'static>(count: usize, job: impl Fn(usize) -> BoxFuture<'static, T>) -> Vec<T> {
    let tasks = futures_util::stream::iter(0..count).map(|number| tokio::spawn(job(number)));
    tasks.buffer_unordered(CONCURRENCY).map(|done| done.expect("task")).collect().await
}

async fn log_in(clusters: &[Cluster], devices: usize) {
    let one_batch = |batch: usize| {
        let cluster = clusters[batch % clusters.len()].clone();
        async move {
            let take = |i: usize| Take {
                device: cluster
                    .keys
                    .device(AppId(1), &DeviceId::parse(&format!("device-{i}")).expect("device")),
                user: Some(user(&cluster, i)),
                generation: 1_700_000_000_000 << 20,
            };
            let first = batch * LOG_IN_BATCH;
            let takes = (first..(first + LOG_IN_BATCH).min(devices)).map(take).collect();
            let epoch = cluster.members.epoch().expect("a lease");
            cluster.directory.take(epoch, takes).await.expect("take");
        }
        .boxed()
    };
    run_all(devices.div_ceil(LOG_IN_BATCH), one_batch).await;
}

async fn publish(cluster: &Cluster, devices: usize, requests: usize) -> Vec<Duration> {
    let request = |request: usize| {
        let cluster = cluster.clone();
        async move {
            let started = Instant::now();
            one_request(&cluster, devices, request).await;
            started.elapsed()
        }
        .boxed()
    };
    run_all(requests, request).await
}

/// One lookup, then one message to each node that holds a target.
async fn one_request(cluster: &Cluster, devices: usize, request: usize) {
    // Every second user has no device. A stride without common factors spreads them.
    let key = |i: usize| user(cluster, (request * 7_919 + i * 104_729) % devices + (i % 2) * devices);
    let found = cluster.directory.locate((0..USERS_PER_REQUEST).map(key).collect()).await.expect("locate");
    let mut targets: BTreeMap<Epoch, usize> = BTreeMap::new();
    found.iter().flatten().for_each(|epoch| *targets.entry(*epoch).or_default() += 1);
    let message = |(epoch, count)| (epoch, Bytes::from(vec![1; PAYLOAD_BYTES + count * TARGET_BYTES]));
    cluster.bus.send(targets.into_iter().map(message).collect()).await.expect("send");
}

/// Redis' own counters, summed over all given servers.
struct Figures(Vec<::redis::Client>);

struct Read {
    commands: f64,
    cpu_seconds: f64,
    memory: f64,
}

impl Figures {
    fn of(url: &str) -> Self {
        let hosts = url.rsplit("://").next().unwrap_or_default();
        let client = |host: &str| ::redis::Client::open(format!("redis://{host}")).expect("host");
        Self(hosts.split(',').map(client).collect())
    }

    fn read(&self) -> Read {
        let mut sum = Read { commands: 0.0, cpu_seconds: 0.0, memory: 0.0 };
        for client in &self.0 {
            let mut connection = client.get_connection().expect("redis");
            let info: String = ::redis::cmd("INFO").arg("all").query(&mut connection).expect("INFO");
            let figure = |name: &str| -> f64 {
                let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
            };
            sum.commands += figure("total_commands_processed");
            sum.cpu_seconds += figure("used_cpu_user") + figure("used_cpu_sys");
            sum.memory += figure("used_memory_dataset") + figure("used_memory_overhead");
        }
        sum
    }
}

impl Read {
    fn print_since(&self, before: &Self, count: f64, what: &str) {
        let cpu_us = (self.cpu_seconds - before.cpu_seconds) * 1e6 / count;
        let commands = (self.commands - before.commands) / count;
        println!("  Redis: {cpu_us:.1} us of CPU and {commands:.2} commands a {what}");
    }
}

//! What it costs a log-in that the store keeps the day on which a device was seen.
//!
//! `cargo run --profile quick -p noroshi-delivery --example seen_bench -- FOLDER [log-ins]` reads a database that
//! `listing_bench` of the crate `noroshi-store` made (`listing_bench 1000000 FOLDER pages`). In turn, and several times, it
//! logs devices in by the store alone, as before the day was kept; by the component of the node, with devices that were
//! seen on this day already; and with devices that are seen for the first time on this day, until all are written. It
//! prints the CPU time of the process for each log-in.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_delivery::metrics::Metrics;
use noroshi_delivery::{Clock, Delivery, LoginAttempt};
use noroshi_store::{Issued, Login, Options, Sqlite, Store};
use noroshi_types::{AppId, DeviceId, Timestamp};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Log-ins of one read of the store, as in a storm.
const BATCH: u64 = 64;
const ROUNDS: u64 = 5;
/// Of a million devices: neighbours of a log-in are elsewhere in the database.
const STRIDE: u64 = 7_919;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("the folder of `listing_bench`")?;
    let count: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let mut registry = noroshi_telemetry::registry();
    let store: Arc<dyn Store> =
        Arc::new(Sqlite::open(Path::new(&folder), Options::default(), &mut registry)?);
    let app = store.apps().await?.first().ok_or("no app")?.id;
    let metrics = Metrics::new(&mut registry);
    let clock = Clock::fixed(NOW);
    let runtime = tokio::runtime::Handle::current();
    let delivery = Delivery::new(store.clone(), clock, metrics, runtime);
    log_in(&store, app, count, NOW).await?;
    for round in 1..=ROUNDS {
        let now = Timestamp(NOW.0 + round * 86_400_000);
        delivery.clock().set(now);
        let alone = measured(count, async || log_in(&store, app, count, now).await).await?;
        let first = measured(count, async || {
            enter(&delivery, app, count, now).await?;
            // The drain writes what waits.
            delivery.clone().run(std::future::ready(())).await;
            Ok(())
        })
        .await?;
        let again = measured(count, async || enter(&delivery, app, count, now).await).await?;
        let ratio = |other: Duration| other.as_secs_f64() / alone.as_secs_f64();
        println!(
            "CPU per log-in: store alone {alone:.2?}; seen before on this day {again:.2?} ({:.3}); first of the day {first:.2?} ({:.3})",
            ratio(again),
            ratio(first)
        );
    }
    store.close().await;
    Ok(())
}

/// The CPU time of each log-in.
async fn measured(count: u64, work: impl AsyncFnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let (before, began) = (cpu()?, Instant::now());
    work().await?;
    let used = cpu()? - before;
    eprintln!("{:.0} log-ins/s", count as f64 / began.elapsed().as_secs_f64());
    Ok(used / u32::try_from(count)?)
}

/// User and system time of the process, in ticks of 10 ms.
fn cpu() -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().ok_or("no fields")?;
    let mut ticks = 0;
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<u64>()?;
    }
    Ok(Duration::from_millis(ticks * 10))
}

fn logins(app: AppId, first: u64, count: u64, now: Timestamp) -> Result<Vec<Login>, Failure> {
    (first..count.min(first + BATCH))
        .map(|i| {
            Ok(Login {
                app,
                device: DeviceId::parse(&format!("device-{}", 1 + i * STRIDE % 1_000_000))?,
                user: None,
                create: false,
                token_version: Some(1),
                issued: Issued::Elsewhere,
                topics: Vec::new(),
                session_topics: Vec::new(),
                resume: None,
                now,
            })
        })
        .collect()
}

async fn log_in(store: &Arc<dyn Store>, app: AppId, count: u64, now: Timestamp) -> Result<(), Failure> {
    for first in (0..count).step_by(BATCH as usize) {
        let (reply, answered) = tokio::sync::oneshot::channel();
        store.read_log_ins(logins(app, first, count, now)?, Box::new(move |read| drop(reply.send(read))));
        answered.await?;
    }
    Ok(())
}

async fn enter(delivery: &Delivery, app: AppId, count: u64, now: Timestamp) -> Result<(), Failure> {
    for first in (0..count).step_by(BATCH as usize) {
        let attempt = |login| LoginAttempt { login, generation: first };
        let entering = logins(app, first, count, now)?.into_iter().map(attempt).collect();
        let (reply, answered) = tokio::sync::oneshot::channel();
        delivery.logins.log_in(entering, move |result| drop(reply.send(result)));
        answered.await??;
    }
    Ok(())
}

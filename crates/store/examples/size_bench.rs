//! How the store behaves as it grows, and for how long heavy work holds its writer.
//!
//! `cargo run --release -p noroshi-store --example size_bench -- grow [inbox rows] [folder]` fills a new SQLite
//! database in steps of ten times as many rows. Every device has ten rows in its inbox and a topic of its own. After
//! each step the program measures log-ins, publishing to 300 users, acknowledgements and the removal of expired rows.
//!
//! `… size_bench -- hold [devices] [folder | postgres://…]` publishes to a condition that all devices match, then
//! cancels, expires and deletes. Meanwhile a probe publishes to one device of another app every 5 ms: the slowest of
//! its answers shows for how long the work holds the writer.
//!
//! `grow` writes rows with SQL, because the interface would take hours; the values are those that the store writes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use noroshi_store::{
    Accept, Accepted, Ack, AppSettings, Error, Login, Options, Postgres, PostgresOptions, Registration,
    Sqlite, Store,
};
use noroshi_types::{
    AppId, AppName, Condition, DeviceId, JsonText, NotificationId, Push, Request, Target, Timestamp, Topic,
    Ttl, Urgency, UserId, When,
};
use prometheus_client::registry::Registry;
use rusqlite::Connection;
use tokio::sync::oneshot;

type Failure = Box<dyn std::error::Error>;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Rows in each inbox, devices of each notification.
const PER_DEVICE: i64 = 10;
const TARGETS: i64 = 300;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let count: i64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let place = arguments
        .next()
        .unwrap_or_else(|| std::env::temp_dir().join("noroshi-size-bench").to_string_lossy().into_owned());
    if !place.starts_with("postgres") && Path::new(&place).exists() {
        return Err(format!("{place} exists already: name a folder to be made").into());
    }
    match mode.as_str() {
        "grow" => grow(count, Path::new(&place)).await,
        "hold" => hold(count, &place).await,
        _ => Err("name a measurement: grow or hold".into()),
    }
}

fn open(folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::new(Sqlite::open(folder, Options::default(), &mut Registry::default())?))
}

fn request(target: Target, ttl: Ttl) -> Request {
    Request {
        target,
        when: When::Stored,
        ttl,
        urgency: Urgency::Normal,
        waits_for_use: false,
        category: None,
        collapse_key: None,
        retain: false,
        notification: None,
        data: Some(JsonText::from_valid(format!("\"{}\"", "x".repeat(198)))),
        push: Push::default(),
        item: None,
        trace: None,
    }
}

async fn accept(store: &dyn Store, app: AppId, request: Request, now: Timestamp) -> Result<Accepted, Error> {
    let (answer, answered) = oneshot::channel();
    let accept = Accept { app, request: request.into(), now, idempotency: None, campaign: None, gate: None };
    store.accept(accept, Box::new(move |result| drop(answer.send(result))));
    answered.await.unwrap_or(Err(Error::Closed))
}

fn at(quantile: f64, sorted: &[Duration]) -> Duration {
    let index = (sorted.len() as f64 * quantile) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!(
        "    {what:<28} median {:>10.1?}   p99 {:>10.1?}   slowest {:>10.1?}",
        at(0.5, &times),
        at(0.99, &times),
        at(1.0, &times)
    );
}

async fn grow(rows: i64, folder: &Path) -> Result<(), Failure> {
    let app = {
        let store = open(folder)?;
        let app = store.create_app(AppName::parse("bench")?, AppSettings::default(), NOW).await?.id;
        // The first number, from which the written rows continue.
        accept(&*store, app, request(Target::Topic(Topic::parse("first")?), Ttl::default()), NOW).await?;
        store.close().await;
        app
    };
    let mut steps: Vec<i64> = std::iter::successors(Some(rows), |rows| Some(rows / 10)).take(3).collect();
    steps.reverse();
    let mut devices = 0;
    for step in steps {
        let wanted = (step / PER_DEVICE / TARGETS).max(1) * TARGETS;
        let started = Instant::now();
        fill(&folder.join("noroshi.db"), app, devices, wanted)?;
        devices = wanted;
        let bytes = std::fs::metadata(folder.join("noroshi.db"))?.len();
        println!(
            "{} inbox rows, {devices} devices and topics: {:.2} GB, {:.0} bytes for each device; filled in {:.0?}",
            devices * PER_DEVICE,
            bytes as f64 / 1e9,
            bytes as f64 / devices as f64,
            started.elapsed()
        );
        let started = Instant::now();
        let store = open(folder)?;
        println!("    {:<28} {:.1?}", "opened in", started.elapsed());
        measure(&*store, app, devices).await?;
        store.close().await;
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Adds devices `from + 1` to `to`, each with its inbox, its user and its topic.
fn fill(file: &Path, app: AppId, from: i64, to: i64) -> Result<(), Failure> {
    let mut db = Connection::open(file)?;
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA cache_size = -524288")?;
    let last: i64 =
        db.query_row("SELECT seq FROM sqlite_sequence WHERE name = 'notifications'", (), |row| row.get(0))?;
    let everyone: i64 =
        db.query_row("SELECT num FROM topics WHERE app = ?1 ORDER BY num LIMIT 1", (app.0,), |row| {
            row.get(0)
        })?;
    let base = 1_000_000;
    let added = to - from;
    let transaction = db.transaction()?;
    {
        let mut device = transaction.prepare(
            "INSERT INTO devices (num, app, id, user, token_version, created_at) VALUES (?1, ?2, ?3, ?4, 1, ?5)",
        )?;
        let mut topic = transaction
            .prepare("INSERT INTO topics (num, app, name, epoch, head) VALUES (?1, ?2, ?3, ?1, 0)")?;
        let mut subscription = transaction
            .prepare("INSERT INTO subscriptions (device, topic, position, named) VALUES (?1, ?2, 0, ?3)")?;
        for num in from + 1..=to {
            device.execute((num, app.0, format!("device-{num}"), format!("user-{num}"), NOW.0 as i64))?;
            topic.execute((base + num, app.0, format!("own/{num}")))?;
            subscription.execute((num, everyone, 0))?;
            subscription.execute((num, base + num, 1))?;
        }
        let mut inbox = transaction.prepare("INSERT INTO inbox (device, num) VALUES (?1, ?2)")?;
        for index in 0..added {
            for round in 0..PER_DEVICE {
                inbox.execute((from + 1 + index, last + 1 + (round * added + index) / TARGETS))?;
            }
        }
        let mut notification = transaction.prepare(
            "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target,
                                        target_text, targets, retain, data, standing)
             VALUES (?1, ?2, ?3, ?4, ?4, ?5, 2, 1, NULL, ?6, 0, ?7, 1)",
        )?;
        let mut kept = transaction
            .prepare("INSERT INTO outcomes (num, outcome, at, count, devices) VALUES (?1, 1, ?2, ?3, ?4)")?;
        let data = format!("\"{}\"", "x".repeat(198));
        for index in 0..added * PER_DEVICE / TARGETS {
            let num = last + 1 + index;
            // Every tenth expires at once, the others in a month.
            let expires_at = NOW.0 as i64 + if index % 10 == 0 { 1_000 } else { 30 * 86_400_000 };
            let values = (num, app.0, NOW.0 as i64, expires_at, When::Stored as u8, TARGETS, &data);
            notification.execute(values)?;
            let first = from + 1 + index * TARGETS % added;
            let mut devices = Vec::new();
            leb128(first as u64, &mut devices);
            devices.resize(devices.len() + TARGETS as usize - 1, 1);
            kept.execute((num, NOW.0 as i64, TARGETS, devices))?;
        }
    }
    transaction.commit()?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
    Ok(())
}

fn leb128(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Different devices, spread over all.
fn spread(index: i64, devices: i64) -> i64 {
    (index * 7_919 + 13) % devices + 1
}

async fn measure(store: &dyn Store, app: AppId, devices: i64) -> Result<(), Failure> {
    let (mut reading, mut writing) = (Vec::new(), Vec::new());
    let (mut logged_count, mut acked) = (0, 0);
    for batch in 0..300 {
        let logins = (0..32)
            .map(|index| {
                Ok(Login {
                    app,
                    device: DeviceId::parse(&format!("device-{}", spread(batch * 32 + index, devices)))?,
                    user: None,
                    create: false,
                    token_version: Some(1),
                    issued: noroshi_store::Issued::Elsewhere,
                    topics: Vec::new(),
                    session_topics: Vec::new(),
                    resume: None,
                    now: NOW,
                })
            })
            .collect::<Result<Vec<_>, noroshi_types::Invalid>>()?;
        let started = Instant::now();
        let logged: Vec<_> = store.log_in(logins).await?.into_iter().flatten().collect();
        reading.push(started.elapsed());
        logged_count += logged.len();
        let ids = |messages: &[Arc<noroshi_types::Message>]| {
            messages.iter().take(2).map(|message| message.id).collect::<Vec<NotificationId>>()
        };
        let acks = logged.iter().map(|one| Ack { device: one.num, ids: ids(&one.page.messages) }).collect();
        let started = Instant::now();
        acked += store.ack(acks, NOW).await?.iter().map(|acked| acked.count).sum::<u64>();
        writing.push(started.elapsed());
    }
    println!("    {logged_count} log-ins, {acked} acknowledgements");
    report("32 log-ins", reading);
    report("64 acknowledgements", writing);
    let mut publishing = Vec::new();
    for number in 0..300 {
        let user = |index| UserId::parse(&format!("user-{}", spread(number * TARGETS + index, devices)));
        let users = (0..TARGETS).map(user).collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        accept(store, app, request(Target::Users(users), Ttl::default()), NOW).await?;
        publishing.push(started.elapsed());
    }
    report("publish to 300 users", publishing);
    let (mut pruning, mut removed, started) = (Vec::new(), 0, Instant::now());
    let later = Timestamp(NOW.0 + 60_000);
    while started.elapsed() < Duration::from_secs(20) {
        let began = Instant::now();
        let pruned = store.prune(later, 2_000).await?;
        pruning.push(began.elapsed());
        removed += pruned.inbox;
        if !pruned.more {
            break;
        }
    }
    println!("    {removed} expired rows removed, {:.0}/s", removed as f64 / started.elapsed().as_secs_f64());
    report("removal, a round", pruning);
    Ok(())
}

/// Publishes to one device every 5 ms until `stop` is true. Returns how long the answers took.
async fn probe(store: Arc<dyn Store>, app: AppId, stop: Arc<AtomicBool>) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let device = DeviceId::parse("probe").map_err(|error| Error::Limit(error.to_string()))?;
        let started = Instant::now();
        accept(&*store, app, request(Target::Devices(vec![device]), Ttl::default()), NOW).await?;
        times.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(times)
}

/// Runs work with the probe beside it.
async fn beside<T>(
    (store, app): (&Arc<dyn Store>, AppId),
    what: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let probe = tokio::spawn(probe(Arc::clone(store), app, Arc::clone(&stop)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = Instant::now();
    let result = work.await;
    println!("{what}: {:.2?}", started.elapsed());
    stop.store(true, Ordering::Relaxed);
    report("answers to the probe", probe.await??);
    result
}

async fn hold(devices: i64, place: &str) -> Result<(), Failure> {
    let mut registry = Registry::default();
    let store: Arc<dyn Store> = match place.starts_with("postgres") {
        true => Arc::new(Postgres::open(PostgresOptions::new(place), &mut registry).await?),
        false => Arc::new(Sqlite::open(Path::new(place), Options::default(), &mut registry)?),
    };
    let app = store.create_app(AppName::parse("bench")?, AppSettings::default(), NOW).await?.id;
    let other = store.create_app(AppName::parse("probe")?, AppSettings::default(), NOW).await?.id;
    let device = DeviceId::parse("probe")?;
    store
        .register(other, vec![Registration { device: Some(device), ..Registration::default() }], NOW)
        .await?;
    let probed = (&store, other);
    let topic = Topic::parse("all")?;
    let registering = async {
        for first in (0..devices).step_by(1_000) {
            let batch = (first..devices.min(first + 1_000)).map(|index| {
                Ok(Registration {
                    device: Some(DeviceId::parse(&format!("device-{index}"))?),
                    user: Some(UserId::parse(&format!("user-{index}"))?),
                    topics: vec![topic.clone()],
                    ..Registration::default()
                })
            });
            let batch = batch.collect::<Result<Vec<_>, noroshi_types::Invalid>>()?;
            store.register(app, batch, NOW).await?;
        }
        Ok(())
    };
    beside(probed, &format!("{devices} devices registered"), registering).await?;
    let condition = || Ok::<_, Failure>(Target::Condition(Condition::parse("'all' in topics")?));
    let publish = async |ttl: u64| {
        let accepted =
            accept(&*store, app, request(condition()?, Ttl::new(Duration::from_secs(ttl))?), NOW).await?;
        println!("    {} rows", accepted.kept());
        Ok::<_, Failure>(accepted.message.id)
    };
    let id = beside(probed, "stored to a condition", publish(3_600)).await?;
    beside(probed, "cancelled", async { Ok(store.cancel(app, id, NOW).await?) }).await?;
    beside(probed, "stored to a condition again", publish(10)).await?;
    let expiring = async {
        let mut removed = 0;
        loop {
            let pruned = store.prune(Timestamp(NOW.0 + 20_000), 2_000).await?;
            removed += pruned.inbox;
            if !pruned.more {
                println!("    {removed} rows");
                return Ok(());
            }
        }
    };
    beside(probed, "expired", expiring).await?;
    beside(probed, "stored to a condition again", publish(3_600)).await?;
    let deleting = async {
        store.delete_app(app).await?;
        while store.prune(NOW, 2_000).await?.more {}
        Ok(())
    };
    beside(probed, "app deleted", deleting).await?;
    store.close().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    for line in
        text.lines().filter(|line| line.starts_with("store_held_seconds_bucket") && line.contains("\"0.1\""))
    {
        println!("{line}");
    }
    for line in text.lines().filter(|line| line.starts_with("store_held_seconds_count")) {
        println!("{line}");
    }
    if !place.starts_with("postgres") {
        drop(store);
        std::fs::remove_dir_all(place)?;
    }
    Ok(())
}

//! Benchmark of the store: registering devices, accepting notifications, logging in, acknowledging.
//!
//! `cargo run --release -p noroshi-store --example store_bench -- [devices] [requests] [folder | postgres://…]`
//!
//! Every device has its own user. A request is `stored` to 300 users with 200 bytes of data; 32 requests run at once.
//! Durability is on. A PostgreSQL database must be empty; the rows stay there. Naming it several times, separated
//! by spaces, runs as many nodes on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use noroshi_store::{
    Accept, Accepted, Ack, AppSettings, Error, LoggedIn, Login, Options, Postgres, PostgresOptions,
    Registration, Sqlite, Store,
};
use noroshi_types::{
    AppId, AppName, DeviceId, JsonText, Push, Request, Target, Timestamp, Ttl, Urgency, UserId, When,
};
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

const TARGETS: usize = 300;
const UNDER_WAY: usize = 32;
const BATCH: usize = 256;
const NOW: Timestamp = Timestamp(1_800_000_000_000);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let devices: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let requests: usize = arguments.next().map_or(Ok(3_000), |text| text.parse())?;
    let place = arguments
        .next()
        .unwrap_or_else(|| std::env::temp_dir().join("noroshi-store-bench").to_string_lossy().into_owned());
    let mut nodes: Vec<Arc<dyn Store>> = Vec::new();
    if place.starts_with("postgres") {
        for url in place.split_whitespace() {
            let options = PostgresOptions::new(url);
            nodes.push(Arc::new(Postgres::open(options, &mut Registry::default()).await?));
        }
        return measure(&nodes, devices, requests).await;
    }
    let folder = PathBuf::from(place);
    if folder.exists() {
        return Err(format!("{} exists already: name a folder to be made", folder.display()).into());
    }
    nodes.push(Arc::new(Sqlite::open(&folder, Options::default(), &mut Registry::default())?));
    measure(&nodes, devices, requests).await?;
    drop(nodes);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

async fn measure(
    nodes: &[Arc<dyn Store>],
    devices: usize,
    requests: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let store = nodes.first().ok_or("no store")?;
    let app = store.create_app(AppName::parse("bench")?, AppSettings::default(), NOW).await?.id;

    let started = Instant::now();
    register(&**store, app, devices).await?;
    report("devices registered", devices, started.elapsed());

    let started = Instant::now();
    let (rows, slowest) = keep(nodes, app, devices, requests).await?;
    report("inbox rows kept", rows, started.elapsed());
    println!("{:>42}", format!("slowest answer {slowest:.1?}"));

    let started = Instant::now();
    let logged = log_in(store, app, devices).await?;
    report("log-ins", logged.len(), started.elapsed());

    let started = Instant::now();
    let acked = acknowledge(&**store, logged).await?;
    report("acknowledgements", acked, started.elapsed());
    Ok(())
}

fn report(what: &str, count: usize, took: Duration) {
    println!("{what:<20} {count:>10} {:>10.0}/s", count as f64 / took.as_secs_f64());
}

async fn register(store: &dyn Store, app: AppId, devices: usize) -> Result<(), Box<dyn std::error::Error>> {
    for first in (0..devices).step_by(5_000) {
        let batch = (first..devices.min(first + 5_000)).map(|i| {
            Ok(Registration {
                device: Some(DeviceId::parse(&format!("device-{i}"))?),
                user: Some(UserId::parse(&format!("user-{i}"))?),
                ..Registration::default()
            })
        });
        let batch = batch.collect::<Result<Vec<_>, noroshi_types::Invalid>>()?;
        for answer in store.register(app, batch, NOW).await? {
            answer?;
        }
    }
    Ok(())
}

fn request(devices: usize, number: usize) -> Result<Request, noroshi_types::Invalid> {
    // A stride that is coprime to most counts spreads each request over all devices.
    let users =
        (0..TARGETS).map(|i| UserId::parse(&format!("user-{}", (number * TARGETS + i) * 7_919 % devices)));
    Ok(Request {
        target: Target::Users(users.collect::<Result<_, _>>()?),
        when: When::Stored,
        ttl: Ttl::default(),
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
    })
}

/// Rows written, and the slowest answer.
async fn keep(
    nodes: &[Arc<dyn Store>],
    app: AppId,
    devices: usize,
    requests: usize,
) -> Result<(usize, Duration), Box<dyn std::error::Error>> {
    let lane = |(first, store): (usize, &Arc<dyn Store>)| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let (mut rows, mut slowest) = (0, Duration::ZERO);
            for number in (first..requests).step_by(UNDER_WAY) {
                let request = request(devices, number).map_err(|error| Error::Limit(error.to_string()))?;
                let started = Instant::now();
                rows += accept(&*store, app, request).await?.kept() as usize;
                slowest = slowest.max(started.elapsed());
            }
            Ok::<_, Error>((rows, slowest))
        })
    };
    let lanes = try_join_all((0..UNDER_WAY).zip(nodes.iter().cycle()).map(lane)).await?;
    let mut sum = (0, Duration::ZERO);
    for lane in lanes {
        let (rows, slowest) = lane?;
        sum = (sum.0 + rows, sum.1.max(slowest));
    }
    Ok(sum)
}

async fn accept(store: &dyn Store, app: AppId, request: Request) -> Result<Accepted, Error> {
    let (answer, answered) = oneshot::channel();
    let accept =
        Accept { app, request: request.into(), now: NOW, idempotency: None, campaign: None, gate: None };
    store.accept(accept, Box::new(move |result| drop(answer.send(result))));
    answered.await.unwrap_or(Err(Error::Closed))
}

async fn log_in(
    store: &Arc<dyn Store>,
    app: AppId,
    devices: usize,
) -> Result<Vec<LoggedIn>, Box<dyn std::error::Error>> {
    let lane = |lane: usize| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut logged = Vec::new();
            for first in (lane * BATCH..devices).step_by(2 * BATCH) {
                let batch = (first..devices.min(first + BATCH)).filter_map(|i| {
                    Some(Login {
                        app,
                        device: DeviceId::parse(&format!("device-{i}")).ok()?,
                        user: None,
                        create: false,
                        token_version: Some(1),
                        issued: noroshi_store::Issued::Elsewhere,
                        topics: Vec::new(),
                        session_topics: Vec::new(),
                        resume: None,
                        now: NOW,
                    })
                });
                logged.extend(store.log_in(batch.collect()).await?.into_iter().flatten());
            }
            Ok::<_, Error>(logged)
        })
    };
    let lanes = try_join_all((0..2).map(lane)).await?;
    Ok(lanes.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

async fn acknowledge(store: &dyn Store, logged: Vec<LoggedIn>) -> Result<usize, Error> {
    let mut count = 0;
    for devices in logged.chunks(BATCH) {
        let acks = devices.iter().map(|one| Ack {
            device: one.num,
            ids: one.page.messages.iter().map(|message| message.id).collect(),
        });
        count +=
            store.ack(acks.collect(), NOW).await?.iter().map(|acked| acked.count as usize).sum::<usize>();
    }
    Ok(count)
}

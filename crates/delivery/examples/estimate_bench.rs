//! How long the estimate of a campaign's audience takes in a large store, and how long it holds the writer.
//!
//! `cargo run --profile quick -p noroshi-delivery --example estimate_bench -- FOLDER` reads a database that `listing_bench`
//! of the crate `noroshi-store` made (`listing_bench 1000000 FOLDER pages`), ten times for each audience. Meanwhile another
//! task writes one small row after the other: its slowest commit shows whether an estimate holds the writer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use noroshi_delivery::campaign::spec::{Audience, CampaignMessage, Spec};
use noroshi_delivery::filter::Filter;
use noroshi_delivery::metrics::Metrics;
use noroshi_delivery::{Clock, Delivery};
use noroshi_store::{Options, Sqlite, Store};
use noroshi_types::{Condition, DeviceNum, JsonText, Lane, Push, Topic, Ttl, Urgency, UtcDay, When};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const REPEATS: usize = 10;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1).ok_or("the folder of `listing_bench`")?;
    let mut registry = noroshi_telemetry::registry();
    let store: Arc<dyn Store> =
        Arc::new(Sqlite::open(Path::new(&folder), Options::default(), &mut registry)?);
    let app = store.apps().await?.first().ok_or("no app")?.id;
    let metrics = Metrics::new(&mut registry);
    let delivery = Delivery::new(store.clone(), Clock::system(), metrics, tokio::runtime::Handle::current());
    let condition = Audience::Condition(Condition::parse("'half' in topics && 'third' in topics")?);
    let ios = Filter { platforms: vec!["ios".to_owned()], ..Filter::default() };
    let rare = Filter { platforms: vec!["console".to_owned()], ..Filter::default() };
    println!("without an estimate: slowest of the writes {:.1?}", writes(&store, None).await?);
    for (name, audience, filter, when) in [
        ("all devices", Audience::Everyone, Filter::default(), None),
        ("a topic (500,000 devices)", Audience::Topic(Topic::parse("half")?), Filter::default(), None),
        ("a condition, stored (166,667 devices)", condition.clone(), Filter::default(), Some(When::Stored)),
        ("a condition and a filter, stored", condition, ios, Some(When::Stored)),
        ("a filter that selects 10 devices", Audience::Devices, rare, None),
    ] {
        let spec = spec(audience, filter, when)?;
        let done = AtomicBool::new(false);
        let estimates = async {
            let mut times = Vec::with_capacity(REPEATS);
            let mut sizes = (0, 0, 0, 0);
            for seed in 0..REPEATS as u64 {
                let began = Instant::now();
                let found = delivery.campaigns.estimate(app, None, &spec, seed).await?;
                let found = found.map_err(|_| "another estimate runs")?;
                times.push(began.elapsed());
                let size = found.devices;
                sizes = (found.examined, size.value, size.low, size.high);
            }
            done.store(true, Ordering::Relaxed);
            times.sort_unstable();
            Ok::<_, Failure>((times, sizes))
        };
        let (found, slowest) = tokio::join!(estimates, writes(&store, Some(&done)));
        let (times, (examined, devices, low, high)) = found?;
        println!(
            "{name}: median {:.1?}, slowest {:.1?}; read {examined}; {devices} ({low} to {high}) devices; slowest write {:.1?}",
            times[REPEATS / 2],
            times[REPEATS - 1],
            slowest?
        );
    }
    store.close().await;
    Ok(())
}

/// Small writes until the flag is set, or for a second. The slowest one.
async fn writes(store: &Arc<dyn Store>, until: Option<&AtomicBool>) -> Result<Duration, Failure> {
    let (began, mut slowest, mut day) = (Instant::now(), Duration::ZERO, 100_000);
    while until.map_or(began.elapsed() < Duration::from_secs(1), |done| !done.load(Ordering::Relaxed)) {
        day += 1;
        let one = Instant::now();
        store.record_seen(vec![DeviceNum(1)], UtcDay(day)).await?;
        slowest = slowest.max(one.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(slowest)
}

fn spec(audience: Audience, filter: Filter, when: Option<When>) -> Result<Spec, Failure> {
    Ok(Spec {
        name: None,
        audience,
        filter,
        message: CampaignMessage {
            notification: Some(JsonText::from_valid(r#"{"title":"T"}"#)),
            data: None,
            urgency: Urgency::Normal,
            ttl: Ttl::new(Duration::from_secs(86_400))?,
            collapse_key: None,
            when,
            push: Push::default(),
            category: None,
        },
        locales: Default::default(),
        trial: None,
        variables: Default::default(),
        start_at: None,
        local_time: None,
        quiet_hours: None,
        rate_per_second: None,
        lane: Lane::Campaign,
        batch_size: 500,
        start: false,
        trace: None,
    })
}

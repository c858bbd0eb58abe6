//! Benchmark of push work: walking an audience onto the queue, taking batches, reading their recipients, and
//! finishing them.
//!
//! `cargo run --release -p noroshi-store --example push_bench -- [--postgres URL] [devices] [folder]`
//!
//! Every device has a token and its own user; batches have 500 recipients. The audience is walked three times: as
//! `always`; as the `fallback` of a live message that half of the devices acknowledged before it was due; and as
//! `always` again behind 100,000 waiting batches of one device, half of a paused campaign and half due later.
//! Durability is on, and calls run one at a time. With a URL the benchmark runs on SQLite and then on the (empty)
//! PostgreSQL database, where two nodes also send at once.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use noroshi_store::{
    Accept, Accepted, Ack, AppSettings, Apps as _, BATCH_RECIPIENTS_MAX, Batch, CampaignState, Error,
    Finished, Maintenance as _, NewBatch, NewCampaign, Options, Postgres, PostgresOptions, PushPart,
    Registration, Sqlite, Store, Take,
};
use noroshi_types::{
    AppId, AppName, DeviceId, DeviceNum, JsonText, Lane, NotificationId, Outcome, Push, PushEnvironment,
    PushMode, PushService, PushToken, Request, Target, Timestamp, Ttl, Urgency, UserId, When,
};
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

/// Batches per call of `take`.
const TAKEN: usize = 8;
const WAITING: usize = 100_000;
const NOW: Timestamp = Timestamp(1_800_000_000_000);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let url = match arguments.next_if(|text| text == "--postgres") {
        Some(_) => Some(arguments.next().ok_or("--postgres needs a URL")?),
        None => None,
    };
    let devices: usize = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let folder =
        arguments.next().map_or_else(|| std::env::temp_dir().join("noroshi-push-bench"), PathBuf::from);
    if folder.exists() {
        return Err(format!("{} exists already: name a folder to be made", folder.display()).into());
    }
    let store = Sqlite::open(&folder, Options::default(), &mut Registry::default())?;
    println!("SQLite");
    let sqlite = run(&store, devices).await?;
    drop(store);
    std::fs::remove_dir_all(&folder)?;
    let Some(url) = url else { return Ok(()) };

    println!("\nPostgreSQL");
    let open = async || Postgres::open(PostgresOptions::new(&url), &mut Registry::default()).await;
    let (store, other) = (open().await?, open().await?);
    let postgres = run(&store, devices).await?;
    let names = ["always", "fallback, half acknowledged", "behind batches that wait"];
    println!("\ndevices through, PostgreSQL / SQLite");
    for (name, (postgres, sqlite)) in names.into_iter().zip(postgres.into_iter().zip(sqlite)) {
        println!("{name:<24} {:>10.2}", postgres / sqlite);
    }
    println!("\ntwo nodes, four senders each");
    let app = store.create_app(AppName::parse("nodes")?, AppSettings::default(), NOW).await?.id;
    register(&store, app, devices).await?;
    accept(&store, app, Push { mode: PushMode::Always, ..Push::default() }).await?;
    walk(&store).await?;
    let started = Instant::now();
    let senders = (0..8).map(|i| send_all(if i % 2 == 0 { &store } else { &other }, |_, _| {}));
    let counts = futures_util::future::try_join_all(senders).await?;
    report("devices through", counts.iter().map(|(_, devices)| devices).sum(), started.elapsed());
    store.close().await;
    other.close().await;
    Ok(())
}

/// Devices per second: as `always`, as `fallback`, and behind other batches.
async fn run(store: &dyn Store, devices: usize) -> Result<[f64; 3], Box<dyn std::error::Error>> {
    let app = store.create_app(AppName::parse("bench")?, AppSettings::default(), NOW).await?.id;
    let nums = register(store, app, devices).await?;

    let always = Push { mode: PushMode::Always, ..Push::default() };
    accept(store, app, always).await?;
    walk(store).await?;
    let plain = send(store).await?;

    println!("\nfallback, half acknowledged");
    let id = accept(store, app, Push { mode: PushMode::Fallback, ..Push::default() }).await?;
    let started = Instant::now();
    let half: Vec<DeviceNum> = nums.iter().copied().step_by(2).collect();
    for some in half.chunks(5_000) {
        let acks = some.iter().map(|device| Ack { device: *device, ids: vec![id] }).collect();
        store.ack(acks, NOW).await?;
    }
    report("acknowledgements", half.len(), started.elapsed());
    walk(store).await?;
    let fallback = send(store).await?;

    println!("\nbehind {WAITING} batches that wait");
    wait(store, app, &nums).await?;
    accept(store, app, Push { mode: PushMode::Always, ..Push::default() }).await?;
    walk(store).await?;
    Ok([plain, fallback, send(store).await?])
}

fn report(what: &str, count: usize, took: Duration) {
    println!("{what:<24} {count:>10} {:>10.0}/s", count as f64 / took.as_secs_f64());
}

async fn register(
    store: &dyn Store,
    app: AppId,
    devices: usize,
) -> Result<Vec<DeviceNum>, Box<dyn std::error::Error>> {
    let started = Instant::now();
    let mut nums = Vec::with_capacity(devices);
    for first in (0..devices).step_by(5_000) {
        let batch = (first..devices.min(first + 5_000)).map(|i| {
            let token = format!(r#"{{"service":"apns","token":"{i:064x}"}}"#);
            Ok(Registration {
                device: Some(DeviceId::parse(&format!("device-{i}"))?),
                user: Some(UserId::parse(&format!("user-{i}"))?),
                push_token: Some(PushToken {
                    service: PushService::Apns,
                    environment: PushEnvironment::Production,
                    json: JsonText::from_valid(token),
                }),
                ..Registration::default()
            })
        });
        let batch = batch.collect::<Result<Vec<_>, noroshi_types::Invalid>>()?;
        for answer in store.register(app, batch, NOW).await? {
            nums.push(answer?.num);
        }
    }
    report("devices registered", devices, started.elapsed());
    Ok(nums)
}

/// A live message to everyone.
async fn accept(store: &dyn Store, app: AppId, push: Push) -> Result<NotificationId, Error> {
    let request = Request {
        target: Target::Everyone,
        when: When::Connected,
        ttl: Ttl::default(),
        urgency: Urgency::Normal,
        waits_for_use: false,
        category: None,
        collapse_key: None,
        retain: false,
        notification: Some(JsonText::from_valid(r#"{"title":"news"}"#)),
        data: None,
        push,
        item: None,
        trace: None,
    };
    let (answer, answered) = oneshot::channel();
    let accept =
        Accept { app, request: request.into(), now: NOW, idempotency: None, campaign: None, gate: None };
    store.accept(accept, Box::new(move |result: Result<Accepted, Error>| drop(answer.send(result))));
    Ok(answered.await.unwrap_or(Err(Error::Closed))?.message.id)
}

/// Fills the queue with batches that may not be taken.
async fn wait(store: &dyn Store, app: AppId, nums: &[DeviceNum]) -> Result<(), Error> {
    let started = Instant::now();
    for (due_at, state) in
        [(NOW, CampaignState::Paused), (Timestamp(NOW.0 + 3_600_000), CampaignState::Running)]
    {
        let new = NewCampaign {
            app,
            spec: JsonText::from_valid("{}"),
            state: CampaignState::Running,
            notification: None,
            data: None,
            urgency: Urgency::Normal,
            when: None,
            push: Push::default(),
            expires_at: Timestamp(NOW.0 + 86_400_000),
            variants: Vec::new(),
            idempotency: None,
            draft: Default::default(),
        };
        let id = store.create_campaign(new, NOW).await?.campaign.id;
        for cursor in 0..WAITING as u64 / 2 / 1_000 {
            let recipients = nums.iter().copied().cycle().take(1_000);
            let batches = recipients.map(|device| NewBatch {
                service: Some(PushService::Apns),
                due_at,
                lane: Lane::Campaign,
                token: None,
                recipients: vec![device],
            });
            store.enqueue(id, cursor, batches.collect(), cursor + 1, false, Vec::new(), NOW).await?;
        }
        store.set_campaign_state(app, id, &[CampaignState::Running], state, NOW).await?;
    }
    report("batches enqueued", WAITING, started.elapsed());
    Ok(())
}

/// The work of a collector: a page of the audience becomes a batch.
async fn walk(store: &dyn Store) -> Result<(), Error> {
    let started = Instant::now();
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while let Some(walk) = store.walks(NOW, 1).await?.due.pop() {
        let page =
            store.audience(walk.app, &walk.audience, walk.cursor, 4 * BATCH_RECIPIENTS_MAX, None).await?;
        count += page.members.len();
        let recipients: Vec<DeviceNum> = page.members.iter().map(|member| member.num).collect();
        let batches = recipients.chunks(BATCH_RECIPIENTS_MAX).map(|recipients| NewBatch {
            service: Some(PushService::Apns),
            due_at: NOW,
            lane: walk.lane,
            token: None,
            recipients: recipients.to_vec(),
        });
        let batches = batches.collect();
        let begun = Instant::now();
        store.walked(&walk, batches, page.next, Vec::new(), NOW).await?;
        slowest = slowest.max(begun.elapsed());
    }
    report("devices walked", count, started.elapsed());
    println!("{:>47}", format!("slowest commit {slowest:.1?}"));
    Ok(())
}

/// The work of a sender, without sending. Returns how many batches and devices it processed, and reports the time of
/// each step: taking, reading recipients, finishing.
async fn send_all(
    store: &dyn Store,
    mut spent: impl FnMut(usize, Duration),
) -> Result<(usize, usize), Error> {
    let (mut batches, mut devices) = (0, 0);
    loop {
        let begun = Instant::now();
        let taken = store.take(asked()).await?;
        spent(0, begun.elapsed());
        if taken.batches.is_empty() && taken.next_due.is_none_or(|due| due > NOW) {
            return Ok((batches, devices));
        }
        batches += taken.batches.len();
        let begun = Instant::now();
        for batch in &taken.batches {
            let Batch { app, work, recipients, .. } = batch;
            devices += store.push_recipients(*app, *work, None, None, recipients.clone()).await?.len();
        }
        spent(1, begun.elapsed());
        let begun = Instant::now();
        store.finish(taken.batches.into_iter().map(pushed).collect(), NOW).await?;
        spent(2, begun.elapsed());
    }
}

/// One sender. Returns devices per second.
async fn send(store: &dyn Store) -> Result<f64, Error> {
    let mut took = [Duration::ZERO; 3];
    let mut slowest = [Duration::ZERO; 3];
    let spent = |step: usize, time: Duration| {
        took[step] += time;
        slowest[step] = slowest[step].max(time);
    };
    let (batches, devices) = send_all(store, spent).await?;
    println!("{batches} batches of {devices} devices, {TAKEN} a call:");
    for (what, (took, slowest)) in
        ["take", "recipients", "finish"].into_iter().zip(took.into_iter().zip(slowest))
    {
        let each = took / batches.max(1) as u32;
        println!("  {what:<12} {each:>10.1?} a batch, slowest call {slowest:.1?}");
    }
    let all: Duration = took.into_iter().sum();
    report("devices through", devices, all);
    Ok(devices as f64 / all.as_secs_f64())
}

fn asked() -> Take {
    Take {
        now: NOW,
        lease: Duration::from_secs(60),
        batches_max: TAKEN,
        busy: Vec::new(),
        held: Vec::new(),
        lanes: Lane::ALL.to_vec(),
        sends: true,
    }
}

fn pushed(batch: Batch) -> Finished {
    Finished {
        batch: batch.id,
        rest: None,
        parts: vec![PushPart {
            outcome: Outcome::Pushed,
            reason: None,
            variant: None,
            devices: batch.recipients,
        }],
        again: Vec::new(),
        gone: Vec::new(),
        suspects: Vec::new(),
        latencies: Vec::new(),
        record: None,
    }
}

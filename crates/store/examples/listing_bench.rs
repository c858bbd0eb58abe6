//! How long pages of the lists with filters take in a large store, what their index costs when a notification is
//! accepted, and what it costs to write on which day devices were seen.
//!
//! `cargo run --profile quick -p noroshi-store --example listing_bench -- [rows] [folder | postgres://…]` makes a database
//! with that many devices (1,000,000) and notifications of one app. Each page is read 20 times. Then it accepts
//! notifications to one user each, with and without the index in turn. With `pages` as the third argument it ends before that, and keeps
//! the database for `estimate_bench` of the crate `noroshi-delivery`.
//!
//! The rows are written with SQL, because the interface would take hours; the values are those that the store writes. The
//! database of PostgreSQL must be empty, and stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_store::{
    Accept, AppSettings, DEVICES_READ_MAX, DeviceSearch, NOTIFICATIONS_READ_MAX, NotificationFilter, Options,
    Postgres, PostgresOptions, Recipient, SeenFilter, Sqlite, Store, TokenFilter,
};
use noroshi_types::{
    AppId, AppName, DeviceNum, JsonText, Push, PushService, Request, Target, Timestamp, Topic, Ttl, Urgency,
    UserId, UtcDay, When,
};
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Of notifications, between two of them.
const INTERVAL_MS: i64 = 100;
/// The day of [`NOW`].
const TODAY: UtcDay = UtcDay(20_833);
const PAGE: usize = 50;
const REPEATS: usize = 20;
const ACCEPTED: usize = 20_000;
const IN_FLIGHT: usize = 500;
const ROUNDS: usize = 4;
const INDEX: &str = "notifications_by_app";

enum Place {
    Folder(PathBuf),
    Server(String),
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let rows: i64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let place = arguments
        .next()
        .unwrap_or_else(|| std::env::temp_dir().join("noroshi-listing-bench").to_string_lossy().into_owned());
    let place = match place.starts_with("postgres") {
        true => Place::Server(place),
        false if Path::new(&place).exists() => return Err(format!("{place} exists already").into()),
        false => Place::Folder(place.into()),
    };
    let store = place.open().await?;
    let app = store.create_app(AppName::parse("bench")?, AppSettings::default(), NOW).await?.id;
    store.close().await;
    drop(store);
    place.execute(&place.rows_of(app, rows)).await?;
    let store = place.open().await?;
    pages(&*store, app, rows).await?;
    days(&*store, app, rows).await?;
    store.close().await;
    drop(store);
    match arguments.next().as_deref() {
        Some("pages") => Ok(()),
        _ => accepting(&place, app).await,
    }
}

impl Place {
    async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(match self {
            Self::Folder(folder) => {
                Arc::new(Sqlite::open(folder, Options::default(), &mut Registry::default())?)
            }
            Self::Server(url) => {
                Arc::new(Postgres::open(PostgresOptions::new(url), &mut Registry::default()).await?)
            }
        })
    }

    async fn execute(&self, sql: &str) -> Result<(), Failure> {
        match self {
            Self::Folder(folder) => {
                rusqlite::Connection::open(folder.join("noroshi.db"))?.execute_batch(sql)?
            }
            Self::Server(url) => {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                client.batch_execute(sql).await?;
            }
        }
        Ok(())
    }

    /// Devices: every fifth without a token, one of 1,000 suspended, one of 100,000 on a console; a fifth was never seen, the
    /// others on the last 120 days; half of them subscribe to a topic, a third to another. Notifications: each to a user.
    fn rows_of(&self, app: AppId, rows: i64) -> String {
        let (numbers, blob, analyze) = match self {
            Self::Folder(_) => (
                format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"),
                "x'a0b1c2d3e405'",
                "",
            ),
            Self::Server(_) => (
                format!("WITH n AS (SELECT i FROM generate_series(1, {rows}) AS i)"),
                "decode('a0b1c2d3e405', 'hex')",
                "ANALYZE devices; ANALYZE notifications; ANALYZE device_seen; ANALYZE subscriptions;",
            ),
        };
        let token = r#"'{"service":"fcm","token":"APA91b' || i || '"}'"#;
        let (app, first, end) = (app.0, NOW.0, NOW.0 + 7 * 86_400_000);
        let num = format!("({first} + i * {INTERVAL_MS}) * 4096");
        let insert =
            |into: &str, values: &str| format!("{numbers} INSERT INTO {into} SELECT {values} FROM n;");
        let devices = insert(
            "devices (app, id, \"user\", platform, push_token, push_service, push_environment, push_token_at,
                 push_suspect_at, push_suspect_reason, token_version, created_at)",
            &format!(
                "{app}, 'device-' || i, 'user-' || (i / 2),
                 CASE WHEN i % 100000 = 0 THEN 'console' WHEN i % 2 = 0 THEN 'ios' ELSE 'android' END,
                 CASE WHEN i % 5 = 0 THEN NULL ELSE {token} END, CASE WHEN i % 5 = 0 THEN NULL ELSE 2 END,
                 CASE WHEN i % 5 = 0 THEN NULL ELSE 1 END, CASE WHEN i % 5 = 0 THEN NULL ELSE {first} END,
                 CASE WHEN i % 1000 = 1 THEN {first} END, CASE WHEN i % 1000 = 1 THEN 'SENDER_ID_MISMATCH' END,
                 1, {first}"
            ),
        );
        let notifications = insert(
            "notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target, targets, retain,
                 notification, standing, named)",
            &format!(
                "{num}, {app}, {first} + i * {INTERVAL_MS}, {end}, {end}, 3, 4, 0, 1, 0,
                 '{{\"title\":\"Your order is on its way\",\"body\":\"It arrives tomorrow.\"}}', 1, {blob}"
            ),
        );
        let outcomes = insert(
            "outcomes (num, outcome, at, count, devices)",
            &format!("{num}, 1, {first}, 1, {}", blob.replace("a0b1c2d3e405", "05")),
        );
        let days = format!(
            "INSERT INTO device_seen (app, device, day) SELECT app, num, {} - (num * 7919) % 120 FROM devices
             WHERE num % 5 <> 3 ORDER BY num;",
            TODAY.0
        );
        let topics = ["half", "third"].map(|name| {
            let share = if name == "half" { 2 } else { 3 };
            format!(
                "INSERT INTO topics (app, name, epoch) VALUES ({app}, '{name}', {share});
                 INSERT INTO subscriptions (device, topic, position, named)
                     SELECT d.num, t.num, 0, 1 FROM devices d CROSS JOIN topics t
                     WHERE t.name = '{name}' AND d.num % {share} = 0 ORDER BY d.num;"
            )
        });
        format!("{devices} {days} {} {notifications} {outcomes} {analyze}", topics.concat())
    }
}

/// The median and the slowest of some calls, and the result of the last.
async fn timed<T>(
    name: &str,
    mut call: impl AsyncFnMut() -> Result<T, noroshi_store::Error>,
) -> Result<T, Failure> {
    let mut times = Vec::with_capacity(REPEATS);
    let mut last = None;
    for _ in 0..REPEATS {
        let started = Instant::now();
        last = Some(call().await?);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    println!("{name:<62} median {:>8.1?}  slowest {:>8.1?}", times[REPEATS / 2], times[REPEATS - 1]);
    Ok(last.ok_or("nothing was measured")?)
}

async fn pages(store: &dyn Store, app: AppId, rows: i64) -> Result<(), Failure> {
    let now = Timestamp(NOW.0 + (rows * INTERVAL_MS) as u64);
    let all = || NotificationFilter { limit: PAGE, rows_max: NOTIFICATIONS_READ_MAX, ..Default::default() };
    let list = async |filter: NotificationFilter| store.list_notifications(app, filter, now).await;
    timed("notifications: the newest", async || list(all()).await).await?;
    let middle = Some(Timestamp(NOW.0 + (rows / 2 * INTERVAL_MS) as u64));
    timed("notifications: in the middle", async || list(NotificationFilter { until: middle, ..all() }).await)
        .await?;
    let topic = Some(Topic::parse("news")?);
    let none = async || list(NotificationFilter { topic: topic.clone(), ..all() }).await;
    timed("notifications: a topic that has none (reads 20,000)", none).await?;
    let user = Some(Recipient::User(UserId::parse("user-1")?));
    let none = async || list(NotificationFilter { recipient: user.clone(), ..all() }).await;
    timed("notifications: a user who got none (reads 20,000)", none).await?;

    let search = |platform: Option<&str>, token| DeviceSearch {
        platform: platform.map(str::to_owned),
        token,
        limit: PAGE,
        rows_max: DEVICES_READ_MAX,
        ..Default::default()
    };
    let find = async |asked: &DeviceSearch| store.search_devices(app, asked.clone(), now).await;
    let some = |service, suspended| Some(TokenFilter::Some { service, kind: None, suspended });
    for (name, asked) in [
        ("devices: without a token", search(None, Some(TokenFilter::None))),
        ("devices: with a token of FCM in use", search(None, some(Some(PushService::Fcm), Some(false)))),
        (
            "devices: with a suspended token (one of 1,000; reads 20,000)",
            search(None, some(None, Some(true))),
        ),
        ("devices: of a platform (one of 100,000; reads 20,000)", search(Some("console"), None)),
        (
            "devices: with a token of APNs (none; reads 20,000)",
            search(None, some(Some(PushService::Apns), None)),
        ),
        (
            "devices: of a user, with a token",
            DeviceSearch { user: Some(UserId::parse("user-7")?), ..search(None, some(None, None)) },
        ),
    ] {
        timed(name, async || find(&asked).await).await?;
    }
    let (started, mut requests, mut found) = (Instant::now(), 0, 0);
    let mut asked = search(Some("console"), None);
    loop {
        let page = find(&asked).await?;
        (requests, found) = (requests + 1, found + page.devices.len());
        asked.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    println!("all devices of a rare platform: {found} in {requests} pages, {:.1?}", started.elapsed());
    Ok(())
}

/// Pages of devices by the day when they were seen, at three places, and writes of that day.
async fn days(store: &dyn Store, app: AppId, rows: i64) -> Result<(), Failure> {
    let between = |from, before| Some(SeenFilter::Days { from: UtcDay(from), before: UtcDay(before) });
    let today = TODAY.0;
    for (name, seen, platform) in [
        ("seen since yesterday (one of 75)", between(today - 1, u32::MAX), None),
        ("seen in the last 7 days", between(today - 7, u32::MAX), None),
        ("seen in the last 30 days", between(today - 30, u32::MAX), None),
        ("seen more than 30 days ago", between(0, today - 30), None),
        ("seen more than 90 days ago", between(0, today - 90), None),
        ("seen more than a year ago (none)", between(0, today - 365), None),
        ("never seen", Some(SeenFilter::Never), None),
        ("seen in the last 30 days, rare platform", between(today - 30, u32::MAX), Some("console")),
    ] {
        for (place, after) in [("start", 0), ("middle", rows / 2), ("end", rows - 1_000)] {
            let search = DeviceSearch {
                seen,
                platform: platform.map(str::to_owned),
                after: Some(DeviceNum(after as u64)),
                limit: PAGE,
                rows_max: DEVICES_READ_MAX,
                ..Default::default()
            };
            timed(&format!("devices: {name}, {place}"), async || {
                store.search_devices(app, search.clone(), NOW).await
            })
            .await?;
        }
    }
    let mut asked = DeviceSearch {
        seen: between(0, today - 365),
        limit: PAGE,
        rows_max: DEVICES_READ_MAX,
        ..Default::default()
    };
    let (started, mut requests) = (Instant::now(), 0);
    loop {
        requests += 1;
        asked.after = store.search_devices(app, asked.clone(), NOW).await?.next;
        if asked.after.is_none() {
            break;
        }
    }
    println!("no device in all: {requests} pages, {:.1?}", started.elapsed());

    // As the nodes write them: 1,000 devices of a storm in the order of their numbers.
    let storm = |day: u32, stride: usize| async move {
        let (mut slowest, mut count, started) = (Duration::ZERO, 0, Instant::now());
        let devices: Vec<_> = (1..=rows as u64).step_by(stride).map(DeviceNum).collect();
        for part in devices.chunks(1_000) {
            let began = Instant::now();
            store.record_seen(part.to_vec(), UtcDay(day)).await?;
            (slowest, count) = (slowest.max(began.elapsed()), count + part.len());
        }
        let each = started.elapsed() / u32::try_from(count.max(1))?;
        println!("days written: {count} devices, {each:.1?} each, slowest commit of 1,000: {slowest:.1?}");
        Ok::<_, Failure>(())
    };
    println!("every 10th device, day {}:", today + 1);
    storm(today + 1, 10).await?;
    println!("the same once more (no row changes):");
    storm(today + 1, 10).await?;
    println!("all devices, day {}:", today + 2);
    storm(today + 2, 1).await
}

async fn accepting(place: &Place, app: AppId) -> Result<(), Failure> {
    let columns = if matches!(place, Place::Folder(_)) { "app" } else { "app, num" };
    for round in 0..ROUNDS {
        for has_index in [true, false] {
            let sql = match has_index {
                true => format!("CREATE INDEX IF NOT EXISTS {INDEX} ON notifications ({columns})"),
                false => format!("DROP INDEX IF EXISTS {INDEX}"),
            };
            let store = place.open().await?;
            // Opening makes the index in PostgreSQL.
            place.execute(&sql).await?;
            let rate = accepted(&store, app, round).await?;
            println!("accepted with{} the index: {rate:.0}/s", if has_index { "" } else { "out" });
            store.close().await;
        }
    }
    Ok(())
}

async fn accepted(store: &Arc<dyn Store>, app: AppId, round: usize) -> Result<f64, Failure> {
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let started = Instant::now();
    for i in 0..ACCEPTED {
        let user = UserId::parse(&format!("user-{}", (i * 7_919 + round * 104_729) % 400_000))?;
        let request = Request {
            target: Target::Users(vec![user]),
            when: When::Stored,
            ttl: Ttl::new(Duration::from_secs(3_600))?,
            urgency: Urgency::Normal,
            waits_for_use: false,
            category: None,
            collapse_key: None,
            retain: false,
            notification: Some(JsonText::from_valid(r#"{"title":"T"}"#)),
            data: None,
            push: Push::default(),
            item: None,
            trace: None,
        };
        let permit = Arc::clone(&room).acquire_owned().await?;
        let accept = Accept {
            app,
            request: request.into(),
            now: Timestamp(NOW.0 + 200_000_000_000),
            idempotency: None,
            campaign: None,
            gate: None,
        };
        store.accept(
            accept,
            Box::new(move |result| {
                result.expect("accepted");
                drop(permit);
            }),
        );
    }
    let _all = room.acquire_many(IN_FLIGHT as u32).await?;
    Ok(ACCEPTED as f64 / started.elapsed().as_secs_f64())
}

//! How long the upgrade of a large database takes, and whom it keeps waiting meanwhile.
//!
//! `cargo run --release -p noroshi-store --example migration_bench -- [devices] [folder | postgres://…]` makes a
//! database of the version before push tokens had a table of their own, with that many devices (1,000,000) that have a
//! token each. Then it opens the store, which upgrades the database. Beside it:
//!
//! - SQLite: a reader finds one device after the other.
//! - PostgreSQL: every 5 ms one session reads a device, its app and its due pushes, and another one writes a device, as
//!   running nodes do. The slowest of them shows the longest lock. With `--backup SECONDS`, a transaction that has read
//!   all tables stays open for that long, as that of `pg_dump` does.
//!
//! The database of PostgreSQL must be empty, and stays.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use noroshi_store::{Maintenance as _, Options, Postgres, PostgresOptions, Sqlite, Store};
use noroshi_types::{AppId, DeviceId};
use prometheus_client::registry::Registry;
use rusqlite::{Connection, OpenFlags};
use tokio_postgres::{Client, NoTls};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The last migrations before `push_tokens`.
const SQLITE_BEFORE: usize = 20;
const POSTGRES_BEFORE: usize = 18;
const INTERVAL: Duration = Duration::from_millis(5);
/// In SQL: the token of device `num`, as long as one of FCM.
const TOKEN: &str = r#"'{"service":"fcm","token":"' || num || ':APA91b'
    || 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}'"#;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let backup = match arguments.iter().position(|argument| argument == "--backup") {
        Some(at) => arguments.drain(at..).nth(1).ok_or("--backup needs seconds")?.parse()?,
        None => 0,
    };
    let mut arguments = arguments.into_iter();
    let devices: i64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let place = arguments.next().unwrap_or_else(|| {
        std::env::temp_dir().join("noroshi-migration-bench").to_string_lossy().into_owned()
    });
    match place.starts_with("postgres") {
        true => postgres(devices, &place, Duration::from_secs(backup)).await,
        false => sqlite(devices, Path::new(&place)).await,
    }
}

/// The first `count` migrations of a folder.
fn migrations(folder: &str, count: usize) -> Result<Vec<String>, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.map(|file| file.map(|file| file.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    Ok(files.iter().take(count).map(std::fs::read_to_string).collect::<Result<_, _>>()?)
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!(
        "    {what:<28} {:>8}   median {:>10.1?}   p99 {:>10.1?}   slowest {:>10.1?}",
        times.len(),
        at(0.5),
        at(0.99),
        times.last().copied().unwrap_or_default()
    );
}

/// A device of each tenth still has its token.
async fn check(store: &dyn Store, devices: i64) -> Result<(), Failure> {
    for num in (1..=devices).step_by(usize::try_from(devices / 10)?.max(1)) {
        let found = store.device(AppId(1), &DeviceId::parse(&format!("device-{num}"))?).await?;
        if found.and_then(|device| device.push_token).is_none() {
            return Err(format!("device {num} has no token").into());
        }
    }
    Ok(())
}

async fn sqlite(devices: i64, folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        return Err(format!("{} exists already: name a folder to be made", folder.display()).into());
    }
    std::fs::create_dir_all(folder)?;
    let file = folder.join("noroshi.db");
    let db = Connection::open(&file)?;
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA cache_size = -524288")?;
    for sql in migrations("migrations", SQLITE_BEFORE)? {
        db.execute_batch(&sql)?;
    }
    db.execute_batch(&format!(
        "PRAGMA user_version = {SQLITE_BEFORE};
         INSERT INTO devices (num, app, id, user, push_token, push_service, push_environment, push_token_at,
                              token_version, created_at)
         WITH RECURSIVE numbers (num) AS (SELECT 1 UNION ALL SELECT num + 1 FROM numbers WHERE num < {devices})
         SELECT num, 1, 'device-' || num, 'user-' || num, {TOKEN}, 2, 1, 1800000000000, 1, 1800000000000
         FROM numbers"
    ))?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
    drop(db);
    println!(
        "{devices} devices with tokens in SQLite: {:.0} MB",
        std::fs::metadata(&file)?.len() as f64 / 1e6
    );

    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (file, stop) = (file.clone(), Arc::clone(&stop));
        move || read_devices(&file, devices, &stop)
    });
    let started = Instant::now();
    let store = Sqlite::open(folder, Options::default(), &mut Registry::default())?;
    println!("upgraded and opened in {:.2?}", started.elapsed());
    stop.store(true, Ordering::Relaxed);
    report("reads of a device", reader.join().map_err(|_| "the reader panicked")??);
    check(&store, devices).await?;
    store.close().await;
    drop(store);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Reads one device after the other until `stop` is true.
fn read_devices(file: &Path, devices: i64, stop: &AtomicBool) -> Result<Vec<Duration>, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(Duration::from_secs(60))?;
    let mut read = db.prepare("SELECT push_token FROM devices WHERE app = 1 AND id = ?1")?;
    let mut times = Vec::new();
    for index in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let started = Instant::now();
        read.query_row((format!("device-{}", index * 7_919 % devices + 1),), |row| row.get::<_, String>(0))?;
        times.push(started.elapsed());
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(times)
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn postgres(devices: i64, url: &str, backup: Duration) -> Result<(), Failure> {
    let client = connect(url).await?;
    client.batch_execute("CREATE TABLE noroshi_schema (version BIGINT NOT NULL)").await?;
    for sql in migrations("migrations/postgres", POSTGRES_BEFORE)? {
        client.batch_execute(&format!("BEGIN; {sql}; COMMIT")).await?;
    }
    client
        .batch_execute(&format!(
            "INSERT INTO noroshi_schema VALUES ({POSTGRES_BEFORE});
             INSERT INTO devices (num, app, id, \"user\", push_token, push_service, push_environment, push_token_at,
                                  token_version, created_at)
             SELECT num, 1, 'device-' || num, 'user-' || num, {TOKEN}, 2, 1, 1800000000000, 1, 1800000000000
             FROM generate_series(1, {devices}) AS numbers (num)"
        ))
        .await?;
    client.batch_execute("VACUUM ANALYZE devices").await?;
    client.batch_execute("CHECKPOINT").await?;
    let size = client.query_one("SELECT pg_database_size(current_database())", &[]).await?;
    println!("{devices} devices with tokens in PostgreSQL: {:.0} MB", size.get::<_, i64>(0) as f64 / 1e6);

    let stop = Arc::new(AtomicBool::new(false));
    let read = "SELECT push_token, (SELECT name FROM apps WHERE id = app), (SELECT min(due_at) FROM push_queue WHERE lane = 0)
                FROM devices WHERE app = 1 AND id = 'device-' || $1::BIGINT";
    let write = "UPDATE devices SET push_token_at = push_token_at + 1 WHERE num = $1::BIGINT";
    let reader = tokio::spawn(repeat(connect(url).await?, read, devices, Arc::clone(&stop)));
    let writer = tokio::spawn(repeat(connect(url).await?, write, devices, Arc::clone(&stop)));
    let dump = connect(url).await?;
    let held = async {
        if !backup.is_zero() {
            let tables = "SELECT string_agg(quote_ident(relname), ', ') FROM pg_class
                          WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace";
            let tables: String = dump.query_one(tables, &[]).await?.get(0);
            dump.batch_execute(&format!("BEGIN; LOCK TABLE {tables} IN ACCESS SHARE MODE")).await?;
            tokio::time::sleep(backup).await;
            dump.batch_execute("COMMIT").await?;
        }
        Ok::<(), Failure>(())
    };
    let opened = async {
        if !backup.is_zero() {
            // The transaction has locked the tables by then.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let started = Instant::now();
        let store = Postgres::open(PostgresOptions::new(url), &mut Registry::default()).await?;
        println!("upgraded and opened in {:.2?}", started.elapsed());
        Ok::<Postgres, Failure>(store)
    };
    let (held, opened) = tokio::join!(held, opened);
    held?;
    let store = opened?;
    stop.store(true, Ordering::Relaxed);
    report("reads of a device", reader.await??);
    report("writes of a device", writer.await??);
    check(&store, devices).await?;
    store.close().await;
    Ok(())
}

/// Runs a statement with the number of a device every 5 ms until `stop` is true. Returns how long each one took.
async fn repeat(
    client: Client,
    sql: &'static str,
    devices: i64,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Duration>, tokio_postgres::Error> {
    let statement = client.prepare(sql).await?;
    let mut times = Vec::new();
    let mut index = 0;
    while !stop.load(Ordering::Relaxed) {
        index += 7_919;
        let started = Instant::now();
        client.execute(&statement, &[&(index % devices + 1)]).await?;
        times.push(started.elapsed());
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(times)
}

//! `noroshi migrate`: a filled SQLite store, then the same queries to both.

use std::path::Path;

use noroshi_store::cells::{
    Assign, CellChange, CellNum, Cells, MoveStep, NewMessage, PartEnd, Relocation, Wanted,
};
use noroshi_store::migrate::{MigrateError, Migrated, migrate};
use noroshi_store::{
    Ack, AppSettings, Apps, Audience, CampaignState, DeviceFilter, EndpointHash, Idempotency, InvalidToken,
    KeyHash, Login, Maintenance as _, NewCredential, NewEndpoint, NewKey, NewToken, Registration, Sqlite,
    Store, SuspectToken, UploadLine,
};
use noroshi_types::{
    AppId, AppName, JsonText, NotificationId, PushEnvironment, PushService, Request, Scope, Scopes, Target,
    Timestamp, TokenKey, Topic, TraceContext, Urgency, UtcDay, When,
};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use super::server::{Database, server};
use super::{open, options};
use crate::conformance::broadcasts::{channel, with_broadcast};
use crate::conformance::fixture::*;
use crate::conformance::push_fixture::*;

fn sqlite(folder: &Path) -> Sqlite {
    let options = noroshi_store::Options {
        inbox_rows: crate::conformance::INBOX_ROWS,
        item_rows: crate::conformance::ITEM_ROWS,
        topic_log_rows: crate::conformance::TOPIC_LOG_ROWS,
        ..noroshi_store::Options::default()
    };
    Sqlite::open(folder, options, &mut Registry::default()).expect("opened")
}

/// Two apps with rows in every table.
async fn fill(store: &dyn Store) -> (Vec<AppId>, Vec<NotificationId>) {
    let (mut apps, mut sent) = (Vec::new(), Vec::new());
    for name in ["gone", "shop", "news"] {
        let settings = AppSettings {
            jwt_secret: Some(vec![0, 255]),
            jwks: Some("{}".to_owned()),
            ..AppSettings::default()
        };
        let name = AppName::parse(name).expect("a name");
        let app = store.create_app(name, settings, NOW).await.expect("created").id;
        apps.push(app);
        let scopes = Scopes::default().with(Scope::Publish);
        let key = NewKey {
            app,
            name: "ci \"1\"".to_owned(),
            hash: KeyHash([app.0 as u8; 32]),
            scopes,
            expires_at: Some(NOW),
        };
        store.create_key(key, NOW).await.expect("created");
        let credential = NewCredential {
            app,
            service: PushService::Apns,
            environment: PushEnvironment::Production,
            provider: String::new(),
            name: "ours".to_owned(),
            shown: JsonText::from_valid("{}"),
            sealed: vec![0, 1, 255],
            replace: false,
        };
        store.put_credential(credential, NOW).await.expect("created");
        sent.extend(fill_app(store, app).await);
    }
    store.delete_app(apps.remove(0)).await.expect("deleted");
    assert!(store.secret("device-token-key", vec![7; 32]).await.is_ok());
    (apps, sent)
}

async fn fill_app(store: &dyn Store, app: AppId) -> Vec<NotificationId> {
    let mut sent = Vec::new();
    let mut nums = Vec::new();
    for i in 0..6 {
        let (id, of) = (format!("d{i}"), format!("u{}", i % 3));
        nums.push(pushable(store, app, &id, &of, &["news", "狼煙"], PushService::Apns).await);
    }
    let mut plain = Registration { device: Some(device("plain")), ..Registration::default() };
    plain.attributes.tags = [("team".to_owned(), "red \\ \n\t 狼".to_owned())].into();
    plain.attributes.platform = Some("web".to_owned());
    let key = TokenKey::parse("controls/lamp").expect("a key");
    let (token, expires_at) = (token_of(PushService::Apns, "lamp"), Some(at(86_400)));
    plain.push_tokens = vec![NewToken { key, token, expires_at, only_if_missing: false }];
    let plain =
        store.register(app, vec![plain], at(1)).await.expect("registered").remove(0).expect("a device");
    store.record_seen(vec![plain.num], UtcDay(20_000)).await.expect("recorded");
    join(store, app, "deleted", "u1", &[]).await;
    store.delete_device(app, &device("deleted"), NOW).await.expect("deleted");
    store.revoke_tokens(app, &device("d5"), NOW).await.expect("revoked");
    let endpoint = NewEndpoint {
        app,
        device: device("d4"),
        hash: EndpointHash([app.0 as u8; 32]),
        base: "https://push.example.com".to_owned(),
        vapid_key: Some([4; 65]),
        label: Some("狼煙".to_owned()),
        idle_urgency: Urgency::Low,
        expires_at: Some(at(3_600)),
    };
    store.create_endpoint(endpoint, NOW).await.expect("created");
    channel(store, app, "final", Some("news")).await;
    sent.push(send(store, app, with_broadcast("news", "1", 60)).await);
    for i in 0..7 {
        sent.push(
            send(store, app, Request { push: fallback(5), ..stored(users(&["u0", "u1", "nobody"])) }).await,
        );
        sent.push(send(store, app, Request { retain: i == 2, ..stored(to_topic("news")) }).await);
    }
    sent.push(send(store, app, Request { collapse_key: Some("k".into()), ..stored(users(&["u2"])) }).await);
    sent.push(send(store, app, Request { push: always(), ..stored(Target::Everyone) }).await);
    sent.push(
        send(store, app, Request { when: When::Active, push: fallback(60), ..stored(devices(&["d1"])) })
            .await,
    );
    sent.push(
        send_once(store, app, stored(to_topic("other")), "once", 3, NOW).await.expect("new").message.id,
    );
    assert!(ack(store, nums[0], &sent[4..8]).await > 0);
    assert_eq!(store.open(nums[0], vec![sent[0]], NOW).await.expect("written").len(), 1);
    let line = UploadLine { user: user("u1"), line: JsonText::from_valid(r#"{"user":"u1"}"#) };
    let id = store
        .create_campaign(new_campaign(app, CampaignState::Draft), NOW)
        .await
        .expect("created")
        .campaign
        .id;
    store.upload(app, id, vec![line], Default::default(), NOW).await.expect("uploaded");
    running(store, app).await;
    let taken = take(store, 6).await.batches;
    if let Some(batch) = taken.first() {
        let mut finished = ended(batch.id);
        finished.gone =
            vec![InvalidToken { device: nums[1], token_at: NOW, since: None, reason: "Unregistered" }];
        finished.suspects = vec![SuspectToken { device: nums[2], token_at: NOW, reason: "BadDeviceToken" }];
        store.finish(vec![finished], at(6)).await.expect("finished");
    }
    sent
}

/// The answers of a store, as text.
async fn answers(store: &dyn Store, apps: &[AppId], sent: &[NotificationId]) -> Vec<String> {
    let mut all = vec![
        format!("{:?}", store.apps().await.expect("read")),
        format!("{:?}", store.keys().await.expect("read")),
        format!("{:?}", store.credentials().await.expect("read")),
        format!("{:?}", store.secret("device-token-key", vec![1]).await.expect("found")),
        format!("{:?}", store.place().await.expect("read")),
    ];
    for &app in apps {
        let devices =
            store.devices(app, DeviceFilter { limit: 99, ..DeviceFilter::default() }).await.expect("read");
        all.push(format!("{:?}", store.topics(app, None, 99).await.expect("read")));
        all.push(format!("{:?}", store.topic(app, &Topic::everyone()).await.expect("read")));
        all.push(format!("{:?}", store.channels(app, None, 10).await.expect("read")));
        all.push(format!("{:?}", store.retained(app, &topic("news"), NOW).await.expect("read")));
        all.push(format!("{:?}", store.invalidations(app, 0, 99).await.expect("read")));
        all.push(format!("{:?}", store.audience(app, &Audience::Everyone, 0, 99, None).await.expect("read")));
        all.push(format!(
            "{:?}",
            store.list_campaigns(app, noroshi_store::CampaignFilter::first(99), NOW).await.expect("read")
        ));
        for device in &devices {
            let mut logged_in =
                log_in(store, Login { token_version: None, ..login(app, device.id.as_str()) }).await;
            logged_in.topics.sort();
            logged_in.page.heads.sort_by_key(|head| head.topic.clone());
            all.push(format!("{logged_in:?}"));
            all.push(format!("{:?}", store.inbox(app, &device.id, 99, NOW).await.expect("read")));
            all.push(format!("{:?}", store.endpoints(app, &device.id, NOW).await.expect("read")));
            for id in sent {
                let trace = store.trace(app, *id, &device.id).await.expect("read");
                all.push(
                    trace.map_or_else(String::new, |trace| format!("{:?} {}", trace.steps, trace.in_inbox)),
                );
            }
        }
        for id in sent {
            all.push(format!("{:?}", store.notification(app, *id, NOW).await.expect("read")));
        }
        all.push(format!("{devices:?}"));
    }
    all
}

async fn migrated(folder: &Path, database: &Database) -> Result<Migrated, MigrateError> {
    let secrets =
        vec![("operator.token".to_owned(), b"no_x".to_vec()), ("device-token-key".to_owned(), vec![0])];
    let mut last = (0, 0);
    let url = database.url();
    let migrated = migrate(folder, &url, secrets, |progress| {
        assert!(progress.rows >= last.0, "progress only increases");
        last = (progress.rows, progress.rows_total);
    });
    let migrated = migrated.await?;
    assert_eq!(last.0, last.1, "progress reached the end");
    Ok(migrated)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_copies_everything() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = sqlite(folder.path());
    let (apps, sent) = fill(&before).await;
    let expected = answers(&before, &apps, &sent).await;
    before.close().await;
    drop(before);

    let database = server().empty_database().await;
    let done = migrated(folder.path(), &database).await.expect("copied");
    assert_eq!(done.credentials, 2);
    for name in [
        "broadcasts",
        "endpoints",
        "inbox",
        "topic_log",
        "outcomes",
        "openings",
        "push_channels",
        "push_queue",
        "push_tokens",
        "push_walks",
        "deleted_devices",
        "device_seen",
        "campaigns",
        "clean_up",
    ] {
        assert!(
            done.tables.iter().any(|(table, rows)| table == name && *rows > 0),
            "{name}: {:?}",
            done.tables
        );
    }
    let after = open(&database).await;
    let found = answers(&after, &apps, &sent).await;
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(
        Apps::secret(&after, "operator.token", vec![1]).await.expect("found"),
        b"no_x",
        "of the folder's files"
    );

    goes_on(&after, &apps, &sent).await;
    // The folder is unchanged.
    let again = sqlite(folder.path());
    assert_eq!(answers(&again, &apps, &sent).await, expected);
}

/// Numbers are not reused, and outstanding messages stay outstanding.
async fn goes_on(store: &dyn Store, apps: &[AppId], sent: &[NotificationId]) {
    let app = apps[0];
    let last = sent.iter().max().expect("not empty");
    let next = send_at(store, app, stored(users(&["u0"])), Timestamp(1)).await.message.id;
    assert!(next > *last, "{next} after {last}");
    let newest =
        store.devices(app, DeviceFilter { limit: 99, ..DeviceFilter::default() }).await.expect("read");
    let fresh = join(store, app, "fresh", "u9", &["news"]).await;
    assert!(newest.iter().all(|device| device.num < fresh));
    join(store, app, "deleted", "u1", &[]).await;
    let again = store.device(app, &device("deleted")).await.expect("read").expect("made again");
    assert_eq!(again.token_version, 2, "the device's old tokens stay revoked");
    assert!(self::app(store, "gone").await > apps[1], "an app's number is not used again");
    let replayed = send_once(store, app, stored(to_topic("other")), "once", 3, NOW).await.expect("repeated");
    assert!(replayed.replayed && sent.contains(&replayed.message.id));
    let waiting = waiting(store, app, "d3", NOW).await;
    let num = log_in(store, login(app, "d3")).await.num;
    let acked =
        store.ack(vec![Ack { device: num, ids: waiting.clone() }], at(9)).await.expect("acknowledged");
    assert!(!waiting.is_empty() && acked.len() == waiting.len());
    // Inbox rows count.
    for _ in 0..crate::conformance::INBOX_ROWS {
        send(store, app, stored(users(&["u1"]))).await;
    }
    let (_, total) = store.inbox(app, &device("d4"), 99, NOW).await.expect("read");
    assert_eq!(total, u64::from(crate::conformance::INBOX_ROWS));
    assert!(!take(store, 100).await.batches.is_empty(), "no earlier lease is held");
}

/// A front's rows are copied too: residences, waiting parts, and provisioned apps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_continues_after_the_migration() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = sqlite(folder.path());
    let app = fill_front(&before).await;
    let expected = answers_of_front(&before, app).await;
    before.close().await;
    drop(before);
    let database = server().empty_database().await;
    let done = migrated(folder.path(), &database).await.expect("copied");
    for name in
        ["cells", "cell_apps", "cell_devices", "cell_keys", "cell_messages", "cell_parts", "cell_users"]
    {
        assert!(done.tables.iter().any(|(table, _)| table == name), "{name}: {:?}", done.tables);
    }
    let after = open(&database).await;
    assert_eq!(answers_of_front(&after, app).await, expected);

    // Numbers continue, keys are known, and waiting parts are forwarded.
    let cells = after.enrol(vec!["d".to_owned()]).await.expect("enrolled");
    assert_eq!(cells.iter().map(|cell| cell.num.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let repeated = after.keep(vec![kept(app, 1, users(&["u1"]))], at(1)).await.expect("kept").remove(0);
    assert!(repeated.expect("taken before").replayed);
    let newest = after.newest().await.expect("read");
    after.keep(vec![kept(app, 9, users(&["u1"]))], at(1)).await.expect("kept").remove(0).expect("taken");
    assert!(after.newest().await.expect("read") > newest);
    let waiting = after.waiting(cells[0].num, Wanted::ALL, 99, 1 << 20).await.expect("read");
    let ended = waiting.iter().map(|part| (part.num, PartEnd::Refused("no".to_owned()))).collect();
    after.end(cells[0].num, ended).await.expect("ended");
    assert!(after.waiting(cells[0].num, Wanted::ALL, 99, 1 << 20).await.expect("read").is_empty());
}

fn kept(app: AppId, n: u8, target: Target) -> NewMessage {
    NewMessage {
        id: NotificationId::from_bytes([n; 16]),
        app,
        target,
        to: r#"{"topic":"t"}"#.into(),
        body: r#"{"data":"狼煙"}"#.into(),
        summary: "{}".into(),
        expires_at: at(600),
        trace: TraceContext::from_stored(&[n; TraceContext::STORED_BYTES]),
        idempotency: Some(Idempotency { key: format!("k{n}").into(), body_hash: [n; 32] }),
        everywhere: Vec::new().into(),
        full: Vec::new().into(),
    }
}

async fn fill_front(store: &Sqlite) -> AppId {
    let app = app(store, "shop").await;
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let cells: Vec<CellNum> =
        store.enrol(names).await.expect("enrolled").iter().map(|cell| cell.num).collect();
    let change = CellChange { weight: Some(Some(7)), draining: Some(true) };
    store.adjust(cells[2], change).await.expect("changed");
    let devices = [("d1", Some("u1")), ("d2", Some("u1")), ("d3", None), ("d4", Some("u2"))];
    let assigned =
        devices.map(|(name, of)| Assign { device: device(name), user: of.map(user), fresh: cells[0] });
    store.assign(app, assigned.to_vec(), NOW).await.expect("assigned");
    let mut messages = vec![kept(app, 1, users(&["u1"])), kept(app, 2, devices_named())];
    messages.push(NewMessage { everywhere: cells.clone().into(), ..kept(app, 3, to_topic("t")) });
    for taken in store.keep(messages, NOW).await.expect("kept") {
        taken.expect("taken");
    }
    store.relocate(Relocation::User(app, user("u2")), cells[1], at(1), at(500)).await.expect("moved");
    let first = store.waiting(cells[1], Wanted::ALL, 1, 1 << 20).await.expect("read").remove(0);
    let forwarded = PartEnd::Forwarded(NotificationId::from_bytes([77; 16]));
    store.end(cells[1], vec![(first.num, forwarded)]).await.expect("ended");
    store.cancel_relayed(app, NotificationId::from_bytes([3; 16])).await.expect("cancelled");
    let name = AppName::parse("shop").expect("a name");
    store.set_provisioned(cells[0], name, Some([5; 32])).await.expect("recorded");
    app
}

fn devices_named() -> Target {
    devices(&["d3", "nobody"])
}

async fn answers_of_front(store: &impl Cells, app: AppId) -> Vec<String> {
    let cells = store.enrol(Vec::new()).await.expect("read");
    let mut all = vec![
        format!("{cells:?}"),
        format!("{:?}", store.populations().await.expect("read")),
        format!("{:?}", store.newest().await.expect("read")),
        format!("{:?}", store.depths().await.expect("read")),
    ];
    for name in ["d1", "d2", "d3", "d4"] {
        all.push(format!("{:?}", store.residences(&[app], &device(name)).await.expect("read")));
    }
    let users = ["u1", "u2", "nobody"].map(user).to_vec();
    all.push(format!("{:?}", store.cells_of_users(app, users, NOW).await.expect("read")));
    for n in 1..=3 {
        let id = NotificationId::from_bytes([n; 16]);
        all.push(format!("{:?}", store.relayed(app, id).await.expect("read")));
    }
    for cell in cells {
        all.push(format!("{:?}", store.waiting(cell.num, Wanted::ALL, 99, 1 << 20).await.expect("read")));
        all.push(format!("{:?}", store.cancelling(cell.num, 99).await.expect("read")));
        all.push(format!("{:?}", store.moves(cell.num, MoveStep::Tell, None, 99).await.expect("read")));
        all.push(format!("{:?}", store.provisioned(cell.num).await.expect("read")));
    }
    all
}

fn stopped() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    drop(sqlite(folder.path()));
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_cannot_succeed_is_rejected() {
    let (folder, database) = (stopped(), server().empty_database().await);
    let run = async || migrated(folder.path(), &database).await;

    let nothing = tempfile::tempdir().expect("a temporary folder");
    let error = migrated(nothing.path(), &database).await.expect_err("refused");
    assert!(matches!(error, MigrateError::Missing { .. }), "{error}");
    let running = sqlite(folder.path());
    let error = run().await.expect_err("refused");
    assert!(matches!(error, MigrateError::Locked { .. }), "{error}");
    drop(running);
    let set = |version: u32| {
        let db = rusqlite::Connection::open(folder.path().join("noroshi.db")).expect("opened");
        let found: u32 = db.query_row("PRAGMA user_version", (), |row| row.get(0)).expect("read");
        db.execute_batch(&format!("PRAGMA user_version = {version}")).expect("set");
        found
    };
    let known = set(1);
    let error = run().await.expect_err("refused");
    assert!(matches!(error, MigrateError::Older { found: 1, .. }), "{error}");
    set(99);
    let error = run().await.expect_err("refused");
    assert!(matches!(error, MigrateError::Newer { found: 99, .. }), "{error}");
    set(known);
    let error = migrate(folder.path(), "postgres://nobody@127.0.0.1:1/none", Vec::new(), |_| {}).await;
    assert!(matches!(error, Err(MigrateError::Target(_))), "{error:?}");

    run().await.expect("no failure");
    let error = run().await.expect_err("refused");
    let MigrateError::NotEmpty { table, .. } = &error else { panic!("{error}") };
    assert!(["clean_up", "secrets"].contains(&table.as_str()), "{error}");
    assert!(!error.to_string().contains('\n') && error.to_string().contains(table), "{error}");
}

/// A crash during the copy leaves an empty database, which the next attempt fills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_migration_leaves_nothing() {
    let (folder, database) = (stopped(), server().empty_database().await);
    let store = sqlite(folder.path());
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &["news"]).await;
    send(&store, app, stored(users(&["u1"]))).await;
    drop(store);
    let db = rusqlite::Connection::open(folder.path().join("noroshi.db")).expect("opened");
    // PostgreSQL does not allow this character in a text.
    db.execute_batch("UPDATE devices SET locale = 'a' || char(0)").expect("set");
    drop(db);
    let error = migrated(folder.path(), &database).await.expect_err("refused");
    assert!(matches!(&error, MigrateError::Failed { table, .. } if table == "devices"), "{error}");
    let rows = database.client().await.query_one("SELECT count(*) FROM apps", &[]).await.expect("read");
    assert_eq!(rows.get::<_, i64>(0), 0);
    let db = rusqlite::Connection::open(folder.path().join("noroshi.db")).expect("opened");
    db.execute_batch("UPDATE devices SET locale = NULL").expect("set");
    drop(db);
    migrated(folder.path(), &database).await.expect("copied");
    let after = super::Postgres::open(options(&database), &mut Registry::default()).await.expect("opened");
    assert_eq!(waiting(&after, app, "d1", NOW).await.len(), 1);
}

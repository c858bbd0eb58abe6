//! Push work across restarts and migrations, and the indexes of its queries.

use std::path::Path;

use noroshi_store::{
    Ack, CampaignState, Campaigns, Devices, Maintenance, PushQueue, REMOVED_PARTS_MAX, Sessions, Take,
};
use noroshi_types::{Lane, Outcome, PushEnvironment, PushService, Request, Timestamp, When};
use rusqlite::Connection;

use super::{fresh, open, options};
use crate::conformance::fixture::*;
use crate::conformance::push_fixture::*;

fn database(folder: &Path) -> Connection {
    Connection::open(folder.join("noroshi.db")).expect("opened")
}

fn number(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, (), |row| row.get(0)).expect(sql)
}

#[tokio::test]
async fn a_restart_ends_leases_and_keeps_claims() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    let a = pushable(&store, app, "a", "u1", &[], PushService::Apns).await;
    let b = pushable(&store, app, "b", "u1", &[], PushService::Apns).await;
    let c = pushable(&store, app, "c", "u1", &[], PushService::Apns).await;
    let mut sent = Vec::new();
    for when in [When::Stored, When::Connected] {
        let request = Request { when, push: fallback(30), ..stored(users(&["u1"])) };
        let id = send(&store, app, request).await;
        ack(&store, a, &[id]).await;
        sent.push(id);
    }
    let taken = take(&store, 30).await;
    assert_eq!((taken.batches.len(), not_needed(&taken)), (2, 2));
    // Acknowledged after the claim, then the process crashes.
    store.ack(vec![Ack { device: b, ids: sent }], at(31)).await.expect("acknowledged");
    drop(store);
    let store = open(folder.path(), options()).expect("opened again");
    let again = take(&store, 31).await;
    assert_eq!(
        without_leases(again.batches.clone()),
        without_leases(taken.batches),
        "exactly the claimed devices"
    );
    assert!(again.batches.iter().all(|batch| batch.recipients == [b, c]));
    assert_eq!(not_needed(&again), 0);
    end_all(&store, again.batches, Outcome::Pushed).await;
    drop(store);
    let store = open(folder.path(), options()).expect("opened again");
    assert_eq!(take(&store, 9_999).await.next_due, None, "finished batches stay finished");
}

#[tokio::test]
async fn a_walk_and_a_campaign_continue_after_a_restart() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    let num = pushable(&store, app, "a", "u1", &["news"], PushService::Apns).await;
    send(&store, app, Request { push: always(), ..stored(to_topic("news")) }).await;
    let walk = store.walks(NOW, 9).await.expect("read").due.remove(0);
    let batches = vec![batch(Lane::Direct, 0, &[num])];
    assert!(store.walked(&walk, batches, Some(num.0), Vec::new(), NOW).await.expect("enqueued"));
    let campaign = running(&store, app).await;
    enqueue(&store, campaign, Lane::Campaign, 0, &[num]).await;
    store.close().await;
    drop(store);
    let store = open(folder.path(), options()).expect("opened again");
    assert_eq!(store.walks(NOW, 9).await.expect("read").due[0].cursor, num.0);
    let found = store.active_campaigns(NOW).await.expect("read").remove(0);
    assert_eq!((found.id, found.cursor, found.recipients, found.batches_open), (campaign, 1, 1, 1));
    assert_eq!(take(&store, 0).await.batches.len(), 2);
}

#[tokio::test]
async fn rows_of_forgotten_notifications_are_removed_in_bounded_steps() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    let mut nums = Vec::new();
    for id in ["a", "b", "c"] {
        nums.push(pushable(&store, app, id, "u1", &[], PushService::Apns).await);
    }
    let bare = join(&store, app, "bare", "u1", &[]).await;
    let request =
        Request { when: When::Connected, ttl: ttl(60), push: fallback(30), ..stored(users(&["u1"])) };
    let id = send(&store, app, request).await;
    // One device is in the batch; the other needs no push.
    for num in [nums[0], bare] {
        assert_eq!(ack(&store, num, &[id]).await, 1);
    }
    let taken = take(&store, 30).await.batches;
    assert_eq!(ack(&store, nums[1], &[id]).await, 0, "no push waits for it any more");
    end_all(&store, taken, Outcome::Pushed).await;
    store.check().await.expect("written");
    let rows = || number(&database(folder.path()), "SELECT count(*) FROM push_confirmed");
    assert_eq!(rows(), 1);
    let pruned = store.prune(at(1_000_000), 1).await.expect("pruned");
    assert_eq!((pruned.notifications, pruned.more, rows()), (0, true, 0), "bounded");
    let outcomes = || number(&database(folder.path()), "SELECT count(*) FROM outcomes");
    let before = outcomes();
    assert!(before > 1);
    for left in (0..before).rev() {
        let pruned = store.prune(at(1_000_000), 1).await.expect("pruned");
        assert_eq!(
            (pruned.notifications, pruned.more, outcomes()),
            (0, true, left),
            "a campaign has many batches"
        );
    }
    assert_eq!(store.prune(at(1_000_000), 1).await.expect("pruned").notifications, 1);
}

#[tokio::test]
async fn a_version_1_database_is_upgraded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let db = database(folder.path());
    db.execute_batch(include_str!("../../../migrations/0001_initial.sql")).expect("the first schema");
    db.execute_batch(
        r#"PRAGMA user_version = 1;
        INSERT INTO apps (name, created_at) VALUES ('shop', 1);
        INSERT INTO topics (app, name, epoch) VALUES (1, '$everyone', 7);
        INSERT INTO devices (app, id, user, tags, push_token, token_version, created_at) VALUES
            (1, 'a', 'u1', '{"k":"v"}', '{"service":"apns","token":"00","environment":"sandbox"}', 3, 1000),
            (1, 'p', 'u1', NULL, '{"service":"apns","token":"00"}', 1, 1001),
            (1, 'f', 'u1', NULL, '{"service":"fcm","token":"x","environment":"sandbox"}', 1, 1002),
            (1, 'w', 'u1', NULL, '{"service":"webpush","endpoint":"https://x/y"}', 1, 1003),
            (1, 'n', 'u1', NULL, NULL, 1, 1004),
            (1, 'x', 'u1', NULL, '{"service":"pigeon"}', 1, 1005),
            (1, 'y', 'u1', NULL, 'no JSON', 1, 1006);
        INSERT INTO subscriptions (device, topic, position, named) SELECT num, 1, 0, 0 FROM devices;"#,
    )
    .expect("data of version 1");
    drop(db);
    let store = open(folder.path(), options()).expect("upgraded");
    let app = noroshi_types::AppId(1);
    let service = async |id: &str| {
        let found = store.device(app, &device(id)).await.expect("read").expect("kept");
        assert!(found.push_suspect.is_none());
        found.push_token.map(|token| (token.service, token.environment))
    };
    assert_eq!(service("a").await, Some((PushService::Apns, PushEnvironment::Sandbox)));
    assert_eq!(service("p").await, Some((PushService::Apns, PushEnvironment::Production)));
    assert_eq!(service("f").await, Some((PushService::Fcm, PushEnvironment::Production)));
    assert_eq!(service("w").await, Some((PushService::WebPush, PushEnvironment::Production)));
    for id in ["n", "x", "y"] {
        assert_eq!(service(id).await, None, "{id}");
    }
    let found = store.device(app, &device("a")).await.expect("read").expect("kept");
    assert_eq!((found.token_version, found.created_at), (3, Timestamp(1_000)));
    assert_eq!(found.attributes.tags.get("k").map(String::as_str), Some("v"));
    let accepted = send_at(&store, app, Request { push: always(), ..stored(users(&["u1"])) }, NOW).await;
    let without: Vec<_> =
        outcomes_of(&accepted).into_iter().filter(|part| part.0 == Outcome::NoPushToken).collect();
    assert_eq!((without.len(), without[0].2, without[0].1.len()), (1, 3, 3));
    let batches = take(&store, 0).await.batches;
    assert_eq!(batches.len(), 3);
    let found = recipients_of(&store, &batches[0]).await;
    assert_eq!(found.iter().map(|found| found.token_at.0).collect::<Vec<_>>(), [1_000, 1_001]);
    assert!(number(&database(folder.path()), "PRAGMA user_version") >= 6);
}

/// Queries do not read rows that are due later, leased, or paused: their plans search an index and sort nothing.
#[tokio::test]
async fn push_queries_use_indexes() {
    let (folder, store) = fresh(options());
    store.close().await;
    let db = database(folder.path());
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).expect("set");
    let group = "lane = ?1 AND app = ?2 AND service = ?3 AND campaign = ?4 AND leased_until = 0";
    let checks = [
        (
            "SELECT due_at FROM push_queue
             WHERE lane = ?1 AND app = ?2 AND service = ?3 AND campaign > ?4 AND leased_until = 0
             ORDER BY campaign, due_at LIMIT 1"
                .to_owned(),
            "push_queue_to_take (lane=? AND app=? AND service=? AND campaign>?)",
        ),
        (
            "SELECT due_at FROM push_queue WHERE lane = ?1 AND app = ?2 AND service > ?3 AND leased_until = 0
             ORDER BY service, campaign, due_at LIMIT 1"
                .to_owned(),
            "push_queue_to_take (lane=? AND app=? AND service>?)",
        ),
        (
            "SELECT due_at FROM push_queue WHERE lane = ?1 AND app > ?2 AND leased_until = 0
             ORDER BY app, service, campaign, due_at LIMIT 1"
                .to_owned(),
            "push_queue_to_take (lane=? AND app>?)",
        ),
        (
            format!("SELECT recipients FROM push_queue WHERE {group} ORDER BY due_at, id LIMIT 1"),
            "push_queue_to_take (lane=? AND app=? AND service=? AND campaign=?)",
        ),
        (
            "SELECT min(leased_until) FROM push_queue WHERE leased_until > 0".to_owned(),
            "push_queue_leased (leased_until>?)",
        ),
        (
            "DELETE FROM push_queue WHERE num = ?1 AND num > 0 AND leased_until = 0".to_owned(),
            "push_queue_by_notification (num=?)",
        ),
        (
            "SELECT 1 FROM push_queue WHERE num = ?1 AND num > 0 AND fallback = 3".to_owned(),
            "push_queue_by_notification (num=? AND fallback=?)",
        ),
        (
            "SELECT count(*) FILTER (WHERE due_at > ?2) FROM push_queue WHERE campaign = ?1 AND campaign > 0"
                .to_owned(),
            "push_queue_by_campaign (campaign=?)",
        ),
        (
            "SELECT d.num, d.user FROM devices d WHERE d.app = ?1 AND d.num > ?2 ORDER BY d.num LIMIT ?3"
                .to_owned(),
            "devices_by_app (app=? AND rowid>?)",
        ),
        (
            "SELECT d.num FROM subscriptions s CROSS JOIN devices d ON d.num = s.device
             WHERE s.topic = ?1 AND s.named = 1 AND s.device > ?3 ORDER BY s.device LIMIT ?4"
                .to_owned(),
            "subscriptions_by_topic (topic=? AND named=? AND device>?)",
        ),
        (
            "SELECT seq FROM push_invalidations WHERE app = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3".to_owned(),
            "push_invalidations_by_app (app=? AND rowid>?)",
        ),
        (
            "SELECT spec FROM campaigns WHERE app = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3".to_owned(),
            "campaigns_by_app (app=? AND id<?)",
        ),
    ];
    for (sql, expected) in checks {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepared");
        let plan: Vec<String> =
            statement.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().expect("read");
        let plan = plan.join("; ");
        assert!(plan.contains(expected), "{sql}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

/// Any number of paused and later rows is skipped.
#[tokio::test]
async fn waiting_rows_are_skipped() {
    let (_folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    let num = pushable(&store, app, "a", "u1", &[], PushService::Apns).await;
    let (paused, ahead) = (running(&store, app).await, running(&store, app).await);
    for (campaign, due) in [(paused, 0), (ahead, 5_000)] {
        let batches = (0..10_000).map(|_| batch(Lane::Campaign, due, &[num])).collect();
        store.enqueue(campaign, 0, batches, 1, false, Vec::new(), NOW).await.expect("enqueued");
    }
    store
        .set_campaign_state(app, paused, &[CampaignState::Running], CampaignState::Paused, NOW)
        .await
        .expect("paused");
    let direct = Request { when: When::Connected, push: always(), ..stored(devices(&["a"])) };
    for _ in 0..3 {
        send(&store, app, direct.clone()).await;
        let taken = store.take(Take { batches_max: 9, ..asked(0) }).await.expect("taken");
        assert_eq!((taken.batches.len(), taken.next_due), (1, Some(at(LEASE_SECONDS))));
        end_all(&store, taken.batches, Outcome::Pushed).await;
    }
    assert_eq!(take(&store, 0).await.next_due, Some(at(5_000)));
    // Aborting removes more rows than one commit does.
    let (_, departed) = store
        .set_campaign_state(app, ahead, &[CampaignState::Running], CampaignState::Aborted, at(1))
        .await
        .expect("aborted");
    let aborted = store.campaign(app, ahead, at(1)).await.expect("read").expect("found");
    assert_eq!(
        (aborted.batches_open, &*aborted.counts),
        (0, &[(Outcome::Cancelled, String::new(), 10_000)][..])
    );
    assert_eq!(departed.parts.len(), REMOVED_PARTS_MAX, "the total of all pages");
    assert_eq!(departed.count(Outcome::Cancelled), 10_000);
}

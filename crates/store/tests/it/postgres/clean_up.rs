//! Clean-up next to other nodes, of this version and of older ones.

use std::time::Duration;

use noroshi_store::{
    Devices as _, Maintenance as _, Notifications as _, Postgres, PostgresOptions, Topics as _,
};
use noroshi_types::{AppId, NotificationId};
use prometheus_client::registry::Registry;
use tokio_postgres::Client;

use super::server::{Database, server};
use super::{fresh, open, options, two};
use crate::conformance::clean_up::{self, DAY, UNUSED, names, prune_all};
use crate::conformance::fixture::*;

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("read").get(0)
}

/// Subscriptions to topics that do not exist.
const DANGLING: &str = "SELECT count(*) FROM subscriptions WHERE topic NOT IN (SELECT num FROM topics)";

/// Waits until a connection waits for a row that another transaction holds.
async fn until_one_waits(client: &Client) {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..3_000 {
        if count(client, sql).await > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing waits");
}

/// A topic that nothing has needed for long enough, and a device.
async fn unused(store: &Postgres, app: AppId, id: &str, name: &str) {
    join(store, app, "maker", "u1", &[name]).await;
    store.delete_device(app, &device("maker"), NOW).await.expect("deleted");
    join(store, app, id, "u1", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_waits_for_a_removal_and_creates_the_topic_again() {
    let (database, store) = fresh().await;
    let app = app(&store, "shop").await;
    unused(&store, app, "d1", "news").await;
    assert_eq!(prune_all(&store, at(0), 100).await, (0, 0));
    let (removing, client) = (database.client().await, database.client().await);
    removing.batch_execute("BEGIN; DELETE FROM topics WHERE name = 'news'").await.expect("removed");
    let (news, d1) = (topic("news"), device("d1"));
    let subscribing = store.subscribe(app, &d1, &news, at(UNUSED));
    let registering = join(&store, app, "d2", "u1", &["news"]);
    let committing = async {
        until_one_waits(&client).await;
        removing.batch_execute("COMMIT").await.expect("committed");
    };
    let (subscribed, _, ()) = tokio::join!(subscribing, registering, committing);
    assert!(subscribed.expect("subscribed"));
    assert_eq!(count(&client, DANGLING).await, 0);
    assert_eq!(store.topic(app, &news).await.expect("read").subscribers, 2);
    let sent = send(&store, app, stored(to_topic("news"))).await;
    for id in ["d1", "d2"] {
        assert_eq!(waiting(&store, app, id, NOW).await, [sent]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_leaves_out_a_topic_that_is_being_used() {
    let (database, store) = fresh().await;
    let app = app(&store, "shop").await;
    unused(&store, app, "d1", "news").await;
    unused(&store, app, "d2", "other").await;
    assert_eq!(prune_all(&store, at(0), 100).await, (0, 0));
    let using = database.client().await;
    using.batch_execute("BEGIN; UPDATE topics SET unused_since = 0 WHERE name = 'news'").await.expect("used");
    assert_eq!(prune_all(&store, at(UNUSED), 100).await, (0, 1));
    using.batch_execute("ROLLBACK").await.expect("not after all");
    assert_eq!(names(&store, app).await, ["news"]);
    assert_eq!(prune_all(&store, at(UNUSED), 100).await, (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_waits_for_a_group_that_is_accepted() {
    let (database, store) = fresh().await;
    let app = app(&store, "shop").await;
    unused(&store, app, "d1", "news").await;
    assert_eq!(prune_all(&store, at(0), 100).await, (0, 0));
    let (accepting, client) = (database.client().await, database.client().await);
    // The order lock, and a message of a node that does not know marks.
    let sql = "SELECT pg_advisory_lock(7957704889590114561); BEGIN;
               INSERT INTO topic_log (topic, topic_offset, num) SELECT num, 1, 1 FROM topics WHERE name = 'news'";
    accepting.batch_execute(sql).await.expect("accepted");
    let committing = async {
        until_one_waits(&client).await;
        let sql = "COMMIT; SELECT pg_advisory_unlock(7957704889590114561)";
        accepting.batch_execute(sql).await.expect("committed");
    };
    let (pruned, ()) = tokio::join!(prune_all(&store, at(UNUSED), 100), committing);
    assert_eq!((pruned, names(&store, app).await), ((0, 0), vec!["news".to_owned()]));
}

/// Nodes subscribe and publish to topics, register and delete devices while another one removes the topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_subscription_and_no_message_is_lost_while_topics_are_removed() {
    const TOPICS: usize = 24;
    let (database, one, other) = two().await;
    let app = app(&one, "shop").await;
    let client = database.client().await;
    for round in 0..12 {
        let topics: Vec<String> = (0..TOPICS).map(|i| format!("t{round}/{i}")).collect();
        let all: Vec<&str> = topics.iter().map(String::as_str).collect();
        join(&one, app, "maker", "u1", &all).await;
        one.delete_device(app, &device("maker"), NOW).await.expect("deleted");
        let registrations: Vec<String> = (0..TOPICS).map(|i| format!("d{round}-{i}")).collect();
        let devices: Vec<&str> = registrations.iter().map(String::as_str).collect();
        join_many(&one, app, &devices).await;
        client
            .batch_execute("UPDATE topics SET unused_since = 1 WHERE name LIKE 't%'")
            .await
            .expect("marked");
        let removing = async {
            let mut removed = 0;
            for _ in 0..6 {
                removed += prune_all(&one, at(UNUSED), 8).await.1;
                tokio::task::yield_now().await;
            }
            removed
        };
        let subscribing = async {
            for i in 0..TOPICS / 2 {
                let subscribed = other.subscribe(app, &device(devices[i]), &topic(all[i]), NOW).await;
                assert!(subscribed.expect("subscribed"));
            }
        };
        let registering = async {
            for i in (TOPICS / 2..TOPICS).rev() {
                join(&other, app, devices[i], "u1", &[all[i], all[TOPICS - 1 - i]]).await;
            }
        };
        let publishing = async {
            let mut sent: Vec<NotificationId> = Vec::new();
            for i in (0..TOPICS).rev().step_by(3) {
                let message = send_at(&other, app, stored(to_topic(all[i])), at(UNUSED)).await.message;
                sent.push(message.id);
            }
            sent
        };
        let (_, (), (), sent) = tokio::join!(removing, subscribing, registering, publishing);
        assert_eq!(count(&client, DANGLING).await, 0, "round {round}");
        let sql = "SELECT count(*) FROM topic_log WHERE topic NOT IN (SELECT num FROM topics)";
        assert_eq!(count(&client, sql).await, 0, "round {round}");
        for (i, id) in devices.iter().enumerate() {
            let found = one.device(app, &device(id)).await.expect("read").expect("created").topics;
            assert!(found.contains(&topic(all[i])), "round {round}: {id} lost {}: {found:?}", all[i]);
            let last = send(&one, app, stored(to_topic(all[i]))).await;
            assert!(waiting(&other, app, id, NOW).await.contains(&last), "round {round}: {id}");
        }
        for id in sent {
            assert!(one.notification(app, id, NOW).await.expect("read").is_some());
        }
    }
}

async fn with_ttl(database: &Database, device_token_ttl: Duration) -> Postgres {
    let options = PostgresOptions { device_token_ttl, ..options(database) };
    Postgres::open(options, &mut Registry::default()).await.expect("opened")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_greatest_lifetime_of_device_tokens_of_all_nodes_counts() {
    let database = server().database().await;
    let greater = with_ttl(&database, clean_up::GREATER_TTL).await;
    let app = clean_up::before_a_lower_ttl(&greater).await;
    greater.close().await;
    let lower = with_ttl(&database, clean_up::LOWER_TTL).await;
    clean_up::after_a_lower_ttl(&lower, app).await;
}

/// Removes what the last migration added.
const BEFORE: &str =
    "DROP TRIGGER deleted_devices_again ON deleted_devices; DROP FUNCTION deleted_devices_again;
    ALTER TABLE deleted_devices DROP COLUMN deleted_at; ALTER TABLE topics DROP COLUMN unused_since;
    DROP TABLE clean_up; UPDATE noroshi_schema SET version = 25";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_devices_and_topics_of_an_older_database_are_kept_for_a_while() {
    let (database, store) = fresh().await;
    let app = clean_up::before_the_upgrade(&store).await;
    store.close().await;
    database.client().await.batch_execute(BEFORE).await.expect("the former schema");
    let store = open(&database).await;
    clean_up::after_the_upgrade(&store, app).await;
}

/// The former statement of a deletion.
const REMEMBER: &str = "INSERT INTO deleted_devices (app, id, token_version)
     SELECT app, id, token_version + 1 FROM devices WHERE id = 'd1'
     ON CONFLICT (app, id) DO UPDATE SET token_version = excluded.token_version;
     DELETE FROM devices WHERE id = 'd1'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_by_an_older_node_counts_from_then_on() {
    let (database, store) = fresh().await;
    let app = app(&store, "shop").await;
    let client = database.client().await;
    let deleted_at = async || count(&client, "SELECT deleted_at FROM deleted_devices WHERE id = 'd1'").await;
    join(&store, app, "d1", "u1", &[]).await;
    client.batch_execute(REMEMBER).await.expect("deleted");
    assert_eq!(deleted_at().await, 0);
    store.prune(at(1), 100).await.expect("pruned");
    assert_eq!(deleted_at().await, at(1).0 as i64);
    // Again, after this node knew the time.
    join(&store, app, "d1", "u1", &[]).await;
    store.delete_device(app, &device("d1"), at(DAY)).await.expect("deleted");
    assert_eq!(deleted_at().await, at(DAY).0 as i64);
    join(&store, app, "d1", "u1", &[]).await;
    client.batch_execute(REMEMBER).await.expect("deleted");
    assert_eq!(deleted_at().await, 0);
    store.prune(at(20 * DAY), 100).await.expect("pruned");
    assert_eq!(deleted_at().await, at(20 * DAY).0 as i64);
    join(&store, app, "d1", "u1", &[]).await;
    let made = store.device(app, &device("d1")).await.expect("read").expect("created again");
    assert_eq!(made.token_version, 4);
}

//! What a start does to the schema.

use std::time::Duration;

use noroshi_store::Maintenance as _;
use tokio_postgres::Client;

use super::open;
use super::server::server;

async fn is_valid(client: &Client) -> Option<bool> {
    let sql = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('notifications_by_campaign')";
    client.query_opt(sql, &[]).await.expect("read").map(|row| row.get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_makes_large_indexes_that_are_missing_or_unfinished() {
    let database = server().database().await;
    open(&database).await.close().await;
    let client = database.client().await;
    assert_eq!(is_valid(&client).await, Some(true));
    let unfinished =
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'notifications_by_campaign'::regclass";
    for change in [unfinished, "DROP INDEX notifications_by_campaign"] {
        client.batch_execute(change).await.expect("changed");
        // Neither of two nodes waits for the other forever.
        let (one, other) = tokio::join!(open(&database), open(&database));
        assert_eq!(is_valid(&client).await, Some(true), "{change}");
        one.close().await;
        other.close().await;
    }
}

/// One number.
async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("read").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_waits_for_a_backup_lets_running_nodes_pass() {
    let database = server().database().await;
    let (backup, node) = (database.client().await, database.client().await);
    let version = "SELECT version FROM noroshi_schema";
    let known = count(&node, version).await;
    // Step 25 changes `apps`; it and the later ones may run again.
    const BEFORE: i64 = 24;
    node.batch_execute(&format!("UPDATE noroshi_schema SET version = {BEFORE}")).await.expect("set");
    backup.batch_execute("BEGIN; LOCK TABLE apps IN ACCESS SHARE MODE").await.expect("locked");
    let reading = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'apps'::regclass";
        let blocked = async {
            while count(&node, waiting).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), blocked).await.expect("the upgrade waits");
        // It waits behind the upgrade, which waits for the backup.
        let read = tokio::time::timeout(Duration::from_secs(60), count(&node, "SELECT count(*) FROM apps"));
        read.await.expect("the upgrade has given way");
        assert_eq!(count(&node, version).await, BEFORE);
        backup.batch_execute("COMMIT").await.expect("committed");
    };
    let (store, ()) = tokio::join!(open(&database), reading);
    assert_eq!(count(&node, version).await, known);
    store.close().await;
}

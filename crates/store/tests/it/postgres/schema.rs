//! What a start does to the schema.

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

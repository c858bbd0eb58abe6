//! Expansions with several nodes.

use std::time::Duration;

use noroshi_store::{Maintenance, Place};

use super::server::{Database, server};
use super::{open, two};
use crate::conformance::expansions::{crowd, plain, prune_all, submit, to_all};
use crate::conformance::fixture::{NOW, app, devices, send, stored, waiting};

/// Many slices.
const CROWD: usize = 6_000;

async fn count(database: &Database, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    database.client().await.query_one(&sql, &[]).await.expect("counted").get(0)
}

/// Waits until rows of an expansion are committed.
async fn begun(database: &Database) {
    while count(database, "inbox").await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_other_nodes_wait_for_an_expansion() {
    let (database, store, other) = two().await;
    let app = app(&store, "shop").await;
    crowd(&store, app, CROWD).await;
    let large = submit(&store, plain(app, to_all()));
    begun(&database).await;
    let place = other.place().await.expect("read");
    let second = submit(&other, plain(app, stored(devices(&["d0"]))));
    let again = submit(&other, plain(app, to_all()));
    let large = large.await.expect("answered").expect("accepted").message.id;
    let second = second.await.expect("answered").expect("accepted").message.id;
    let again = again.await.expect("answered").expect("accepted").message.id;
    assert!(place < Place::of(large), "a sweep from this place finds it");
    assert!(large < second && second < again);
    assert_eq!(waiting(&other, app, "d0", NOW).await, [large, second, again]);
    assert_eq!(waiting(&store, app, "d5999", NOW).await, [large, again]);
    assert_eq!(count(&database, "expansions").await, 0);
}

#[test]
fn an_expansion_of_a_node_that_disappears_is_undone() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let (lasting, killed) = (runtime(), runtime());
    let (database, store, app) = lasting.block_on(async {
        let database = server().database().await;
        let store = open(&database).await;
        let app = app(&store, "shop").await;
        crowd(&store, app, CROWD).await;
        (database, store, app)
    });
    let gone = killed.block_on(open(&database));
    let answer = submit(&gone, plain(app, to_all()));
    lasting.block_on(begun(&database));
    killed.shutdown_background();
    lasting.block_on(async move {
        drop(answer);
        // Its lease ends.
        let ended = "UPDATE expansions SET until = 1 WHERE until > 0";
        assert_eq!(database.client().await.execute(ended, &[]).await.expect("changed"), 1);
        let first = send(&store, app, stored(devices(&["d0"]))).await;
        assert_eq!(waiting(&store, app, "d0", NOW).await, [first]);
        prune_all(&store, 1).await;
        assert_eq!((count(&database, "expansions").await, count(&database, "inbox").await), (0, 1));
        assert_eq!(waiting(&store, app, "d5999", NOW).await, []);
        let id = send(&store, app, to_all()).await;
        assert_eq!(waiting(&store, app, "d5999", NOW).await, [id]);
    });
    drop(gone);
}

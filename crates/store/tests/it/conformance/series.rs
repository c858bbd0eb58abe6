//! The time series: rows by step, time and node.

use noroshi_store::{SeriesBound, SeriesRange, SeriesRow, Store};
use noroshi_types::Timestamp;

fn row(step_s: u32, at: u64, node: &str, data: &[u8]) -> SeriesRow {
    SeriesRow { step_s, at: Timestamp(at), node: node.to_owned(), data: data.to_vec() }
}

async fn all(store: &dyn Store, step_s: u32) -> Vec<(u64, String, Vec<u8>)> {
    let range = SeriesRange { step_s, from: Timestamp(0), until: Timestamp(1 << 50), rows_max: 1_000 };
    let rows = store.series(range).await.expect("read");
    rows.into_iter().map(|row| (row.at.0, row.node, row.data)).collect()
}

fn bound(step_s: u32, since: u64, until: u64, rows_max: usize) -> SeriesBound {
    SeriesBound { step_s, since: Timestamp(since), until: Timestamp(until), rows_max, removed_max: 1_000 }
}

pub(crate) async fn rows_are_read_by_step_and_time(store: &dyn Store) {
    let rows =
        vec![row(10, 20, "b", b"1"), row(10, 20, "a", b"2"), row(10, 10, "a", b"3"), row(60, 0, "", b"4")];
    store.write_series(rows).await.expect("written");
    store.write_series(vec![row(10, 10, "a", b"new")]).await.expect("replaced");
    let of = |at: u64, node: &str, data: &[u8]| (at, node.to_owned(), data.to_vec());
    assert_eq!(all(store, 10).await, [of(10, "a", b"new"), of(20, "a", b"2"), of(20, "b", b"1")]);
    assert_eq!(all(store, 60).await, [of(0, "", b"4")]);
    let part = async |from, until, rows_max| {
        let range = SeriesRange { step_s: 10, from: Timestamp(from), until: Timestamp(until), rows_max };
        store.series(range).await.expect("read").len()
    };
    assert_eq!((part(10, 20, 9).await, part(11, 21, 9).await, part(0, 30, 2).await), (1, 2, 2));
    let newest = async |before| store.newest_series(10, Timestamp(before)).await.expect("read");
    assert_eq!((newest(10).await, newest(20).await), (None, Some(Timestamp(10))));
    assert_eq!(newest(21).await, Some(Timestamp(20)));
}

pub(crate) async fn rows_are_bounded_by_age_and_number(store: &dyn Store) {
    let rows = (0..10).flat_map(|at| [row(10, at, "a", b"x"), row(10, at, "b", b"x")]);
    store.write_series(rows.chain([row(60, 0, "", b"x")]).collect()).await.expect("written");
    let prune = async |bounds| store.prune_series(bounds).await.expect("pruned");
    assert_eq!(prune(vec![bound(10, 0, 100, 20)]).await, 0);
    assert_eq!(prune(vec![bound(10, 1, 8, 20), bound(60, 0, 100, 20)]).await, 4);
    assert_eq!(all(store, 10).await.len(), 16);
    // The fifth newest row goes, and so does the other one of its time.
    assert_eq!(prune(vec![bound(10, 0, 100, 5)]).await, 12);
    assert_eq!(all(store, 10).await.iter().map(|row| row.0).collect::<Vec<_>>(), [7, 7, 8, 8]);
    // In slices.
    let slice = SeriesBound { removed_max: 1, ..bound(10, 100, 100, 5) };
    assert_eq!((prune(vec![slice]).await, prune(vec![slice]).await, prune(vec![slice]).await), (2, 2, 0));
    assert_eq!(all(store, 60).await.len(), 1);
}

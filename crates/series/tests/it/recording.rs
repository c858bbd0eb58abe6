//! Rows: what a node writes, what the leader sums up, what stays, and what the reader answers.

use std::sync::Arc;
use std::time::Duration;

use noroshi_series::reader::Span;
use noroshi_series::recorder::{Step, prune};
use noroshi_series::row::{NODE_ROW_BYTES_MAX, TOTAL_ROW_BYTES_MAX};
use noroshi_series::{Answer, Query, Reader, SHOWN};
use noroshi_store::{SeriesRange, SeriesRow};
use noroshi_types::{AppId, Timestamp};

use crate::world::{Node, World};

fn query(world: &World, from: u64, until: u64, step: Step) -> Query {
    let (from, until) = (world.at(from), world.at(until));
    Query { series: (0..SHOWN.len()).collect(), from, until, step, app: None, node: None }
}

async fn answer(world: &World, query: Query) -> Arc<Answer> {
    // A reader of its own keeps no earlier answer.
    Reader::new(world.store.clone()).read(query, world.clock.now()).await.expect("an answer")
}

fn points<'a>(answer: &'a Arc<Answer>, name: &str) -> &'a [Option<f64>] {
    &answer.series.iter().find(|(shown, _)| shown.name == name).expect("a series").1
}

/// Both nodes run from the begin to `until`, `b` with a pause.
async fn run(world: &World, nodes: &mut [(Node, std::ops::Range<u64>)], until: u64) {
    for begin in (0..until).step_by(10) {
        world.set(begin + 10);
        for (node, pause) in nodes.iter_mut() {
            if !pause.contains(&begin) {
                node.step(5).await;
            }
        }
    }
}

#[tokio::test]
async fn nodes_are_summed_and_a_missing_one_is_named() {
    let world = World::new();
    let mut nodes = [(world.node("a"), 0..0), (world.node("b"), 20..40)];
    nodes[0].0.connections.set(3);
    nodes[1].0.connections.set(4);
    run(&world, &mut nodes, 60).await;
    let answer = answer(&world, query(&world, 0, 80, Step::TenSeconds)).await;
    let ten = [Some(10.0), Some(10.0), Some(5.0), Some(5.0), Some(10.0), Some(10.0), None, None];
    assert_eq!(points(&answer, "publishes"), ten);
    assert_eq!(points(&answer, "connections")[..3], [Some(7.0), Some(7.0), Some(3.0)]);
    assert_eq!(answer.covered_s, [10, 10, 10, 10, 10, 10, 0, 0], "what was not measured is a gap");
    let missing = Span { from: world.at(20), until: world.at(40) };
    assert_eq!(answer.nodes, [("a".to_owned(), vec![]), ("b".to_owned(), vec![missing])]);
    let only = Query { node: Some("b".to_owned()), ..query(&world, 0, 60, Step::TenSeconds) };
    let only = self::answer(&world, only).await;
    assert_eq!(points(&only, "publishes")[..3], [Some(5.0), Some(5.0), None]);
}

#[tokio::test]
async fn the_leader_sums_minutes_and_hours_up() {
    let world = World::new();
    let mut nodes = [(world.node("a"), 0..0), (world.node("b"), 60..120)];
    run(&world, &mut nodes, 3_600).await;
    let minutes = query(&world, 0, 3_600, Step::Minute);
    let before = answer(&world, minutes.clone()).await;
    // Nobody leads yet: only the newest minutes are summed up, by the reader.
    assert_eq!(points(&before, "publishes").iter().flatten().count(), 5);
    world.set(3_600 + 60);
    nodes[0].0.recorder.lead().await;
    let after = answer(&world, minutes.clone()).await;
    let publishes = points(&after, "publishes");
    assert_eq!((publishes[0], publishes[1], publishes[59]), (Some(60.0), Some(30.0), Some(60.0)));
    assert_eq!(after.covered_s, [60; 60]);
    let missing = Span { from: world.at(60), until: world.at(120) };
    assert_eq!(after.nodes[1], ("b".to_owned(), vec![missing]));
    // The hour has not settled; the reader sums it up.
    let hours = query(&world, 0, 7_200, Step::Hour);
    let hour = [Some(3_570.0), None];
    let newest =
        async |step: Step| world.store.newest_series(step.seconds(), Timestamp(1 << 50)).await.expect("read");
    assert_eq!(newest(Step::Hour).await, None);
    assert_eq!(points(&answer(&world, hours.clone()).await, "publishes"), hour);
    world.set(3_600 + 150);
    // Another node takes over; on one store, every node leads.
    nodes[1].0.recorder.lead().await;
    assert_eq!(newest(Step::Hour).await, Some(world.at(0)));
    assert_eq!(points(&answer(&world, hours.clone()).await, "publishes"), hour);
    // Once more changes nothing.
    nodes[0].0.recorder.lead().await;
    assert_eq!(points(&answer(&world, hours).await, "publishes"), hour);
    assert_eq!(points(&answer(&world, minutes).await, "publishes"), publishes);
}

#[tokio::test]
async fn the_end_of_a_range_is_summed_up_from_finer_rows() {
    let world = World::new();
    let mut nodes = [(world.node("a"), 0..0)];
    run(&world, &mut nodes, 90).await;
    let answer = answer(&world, query(&world, 0, 120, Step::Minute)).await;
    assert_eq!(points(&answer, "publishes"), [Some(30.0), Some(15.0)]);
    assert_eq!(answer.covered_s, [60, 30]);
    // The present hour has just begun.
    let hour = self::answer(&world, query(&world, 0, 3_600, Step::Hour)).await;
    assert_eq!((points(&hour, "publishes"), &hour.covered_s[..]), (&[Some(45.0)][..], &[90][..]));
}

#[tokio::test]
async fn a_restarted_node_loses_at_most_a_step() {
    let world = World::new();
    let mut node = world.node("a");
    world.set(10);
    node.step(7).await;
    // Killed in the next step: its publishes are lost. It counts from 0 again.
    node.publishes.inc_by(1);
    let mut node = world.node("a");
    world.set(20);
    node.step(2).await;
    let answer = answer(&world, query(&world, 0, 20, Step::TenSeconds)).await;
    assert_eq!(points(&answer, "publishes"), [Some(7.0), Some(2.0)]);
}

#[tokio::test]
async fn clocks_may_jump() {
    let world = World::new();
    let mut node = world.node("a");
    world.set(1_003);
    node.step(1).await;
    // Back by a quarter of an hour, into the middle of a step.
    world.set(107);
    node.step(2).await;
    world.set(110);
    node.step(3).await;
    // Forward again.
    world.set(5_000);
    node.step(4).await;
    // The process did not run for a minute: what it counted belongs to no step.
    world.set(5_060);
    node.publishes.inc_by(100);
    node.recorder.record(Duration::from_secs(60)).await;
    world.set(5_070);
    node.step(5).await;
    let answer = answer(&world, query(&world, 0, 5_070, Step::TenSeconds)).await;
    let found =
        points(&answer, "publishes").iter().enumerate().filter_map(|(at, point)| Some((at * 10, (*point)?)));
    let expected = [(90, 2.0), (100, 3.0), (990, 1.0), (4_990, 4.0), (5_060, 5.0)];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    // Rows of the future go, as soon as the clock is right.
    world.set(0);
    node.recorder.lead().await;
    let range = SeriesRange { step_s: 10, from: Timestamp(0), until: Timestamp(1 << 50), rows_max: 100 };
    let left = world.store.series(range).await.expect("read");
    assert_eq!(left.iter().map(|row| row.at).collect::<Vec<_>>(), [world.at(90), world.at(100)]);
}

#[tokio::test]
async fn figures_of_an_app_are_apart() {
    use noroshi_delivery::quota::Configured;
    let world = World::new();
    let mut node = world.node("a");
    let configured = |app: u32| Configured {
        app: AppId(app),
        name: noroshi_types::AppName::parse(&format!("app-{app}")).expect("a name"),
        overrides: Default::default(),
    };
    node.delivery.quotas.configure((1..=3).map(configured));
    let permit = node.delivery.quotas.enter(AppId(1), || false).expect("entered");
    node.delivery.quotas.delivered(AppId(2), 40);
    world.set(10);
    node.step(9).await;
    let of = |app| Query { app: Some(AppId(app)), ..query(&world, 0, 20, Step::TenSeconds) };
    let first = answer(&world, of(1)).await;
    assert_eq!(points(&first, "connections"), [Some(1.0), None]);
    assert_eq!((points(&first, "log_ins")[0], points(&first, "publishes")[0]), (Some(1.0), Some(0.0)));
    assert_eq!(points(&answer(&world, of(2)).await, "deliveries"), [Some(40.0), None]);
    assert_eq!(points(&answer(&world, of(3)).await, "deliveries"), [Some(0.0), None], "it did nothing");
    // Beyond the busiest, apps are unknown.
    node.delivery.quotas.configure((1..=100).map(configured));
    (1..=100_u32).for_each(|app| node.delivery.quotas.delivered(AppId(app), u64::from(app) * 1_000));
    world.set(20);
    node.step(1).await;
    let deliveries = async |app| points(&answer(&world, of(app)).await, "deliveries")[1];
    assert_eq!((deliveries(100).await, deliveries(1).await), (Some(100_000.0), None));
    drop(permit);
}

#[tokio::test]
async fn equal_questions_are_answered_once() {
    let world = World::new();
    let mut node = world.node("a");
    world.set(10);
    node.step(1).await;
    let reader = Reader::new(world.store.clone());
    let asked = query(&world, 0, 20, Step::TenSeconds);
    let read = async || reader.read(asked.clone(), world.clock.now()).await.expect("an answer");
    world.set(11);
    let (first, second) = (read().await, read().await);
    assert!(Arc::ptr_eq(&first, &second));
    world.set(21);
    assert!(!Arc::ptr_eq(&first, &read().await));
}

/// The promise of 50 MB, with rows of the largest size.
#[tokio::test]
async fn a_full_table_has_at_most_50_megabytes() {
    let world = World::new();
    let size = || std::fs::metadata(world.folder.path().join("noroshi.db")).expect("the file").len();
    let now = world.at(40 * 86_400);
    world.clock.set(now);
    let row = |step: Step, steps_ago: u64, node: &str, bytes: usize| SeriesRow {
        step_s: step.seconds(),
        at: Timestamp(step.begin(now).0 - steps_ago * step.ms()),
        node: node.to_owned(),
        data: vec![7; bytes],
    };
    // 40 nodes with long names, which write more than may stay; and more times than are kept.
    let mut rows = Vec::new();
    for ago in (0..800).rev() {
        let name = |node| format!("a-node-with-a-long-name-in-a-large-cluster-{node:02}");
        rows.extend((0..40).map(|node| row(Step::TenSeconds, ago, &name(node), NODE_ROW_BYTES_MAX)));
    }
    rows.extend((0..5_000).map(|ago| row(Step::Minute, ago, "", TOTAL_ROW_BYTES_MAX)));
    rows.extend((0..800).map(|ago| row(Step::Hour, ago, "", TOTAL_ROW_BYTES_MAX)));
    let before = size();
    // As they come: pruned while they are written.
    for rows in rows.chunks(700) {
        world.store.write_series(rows.to_vec()).await.expect("written");
        while prune(&*world.store, now).await.expect("pruned") > 0 {}
    }
    let count = async |step: Step| {
        let (from, until) = (Timestamp(0), Timestamp(1 << 50));
        let range = SeriesRange { step_s: step.seconds(), from, until, rows_max: 100_000 };
        world.store.series(range).await.expect("read").len()
    };
    let counts = [count(Step::TenSeconds).await, count(Step::Minute).await, count(Step::Hour).await];
    assert!(counts[0] <= 18_000 && counts[0] > 17_900, "{counts:?}");
    assert!(counts[1] <= 4_320 && counts[1] > 4_300 && counts[2] <= 744 && counts[2] > 740, "{counts:?}");
    world.store.close().await;
    let bytes = size() - before;
    assert!(bytes < 50_000_000, "{bytes} bytes");
    assert!(bytes > 30_000_000, "{bytes} bytes: the test fills the table");
}

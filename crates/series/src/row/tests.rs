//! Rows read back, add up in any order, and stay within their size.

use proptest::prelude::*;

use super::*;

fn values() -> impl Strategy<Value = Values> {
    proptest::collection::btree_map(0_u16..400, 1_u64.., 0..60)
}

fn row() -> impl Strategy<Value = Row> {
    let apps = proptest::collection::btree_map(any::<u32>(), values(), 0..20);
    let nodes = proptest::collection::btree_map("[a-z]{0,40}", any::<u64>(), 0..5);
    (values(), apps, any::<bool>(), nodes).prop_map(|(values, apps, has_more_apps, nodes)| Row {
        values,
        apps,
        has_more_apps,
        nodes,
    })
}

proptest! {
    #[test]
    fn a_row_reads_back(row in row()) {
        prop_assert_eq!(Row::decode(&row.encode()), Ok(row));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Row::decode(&bytes);
        let mut versioned = vec![VERSION];
        versioned.extend(bytes);
        let _ = Row::decode(&versioned);
    }

    #[test]
    fn a_cut_row_is_unreadable(row in row(), cut in 0_usize..10_000) {
        let bytes = row.encode();
        prop_assert_eq!(Row::decode(&bytes[..cut % bytes.len()]), Err(Unreadable));
    }

    #[test]
    fn the_order_of_times_makes_no_difference(mut a in row(), mut b in row(), mut c in row()) {
        // With apps left out, only what is whole counts (below).
        for row in [&mut a, &mut b, &mut c] {
            row.has_more_apps = false;
        }
        let sum = |rows: [&Row; 3]| {
            let mut sum = Row::default();
            rows.iter().for_each(|row| sum.add_later(row));
            sum
        };
        let all = sum([&a, &b, &c]);
        prop_assert_eq!(&sum([&c, &b, &a]), &all);
        let mut pair = b.clone();
        pair.add_later(&c);
        let mut grouped = a.clone();
        grouped.add_later(&pair);
        prop_assert_eq!(grouped, sum([&a, &b, &c]));
    }

    #[test]
    fn a_row_of_a_node_stays_within_its_size(mut row in row()) {
        // What a node counts: some 120 numbers at most.
        row.nodes.clear();
        row.values.retain(|_, value| { *value >>= 24; *value > 0 });
        let bytes = row.encode_within(NODE_ROW_BYTES_MAX);
        prop_assert!(bytes.len() <= NODE_ROW_BYTES_MAX);
        prop_assert_eq!(Row::decode(&bytes), Ok(row));
    }
}

fn counted(steps: u64, number: u16, value: u64) -> Row {
    let mut row = Row::default();
    add(&mut row.values, STEPS, steps);
    add(&mut row.values, ROWS, steps);
    add(&mut row.values, number, value);
    row
}

#[test]
fn nodes_of_a_step_count_once_as_time() {
    let rows = [counted(1, 1, 10), counted(1, 1, 30), counted(1, 1, 20)];
    // Two nodes in the first step, one in the second.
    let sum = Row::sum([(0, &rows[0]), (0, &rows[1]), (10, &rows[2])]);
    assert_eq!(sum.steps(), 2);
    // The mean of 40 and 20 connections.
    assert_eq!(shown(&sum.values, 1, 0.0), Some(30.0));
    // A count is a sum.
    let sum = Row::sum([(0, &counted(1, 4, 10)), (0, &counted(1, 4, 30)), (10, &counted(1, 4, 20))]);
    assert_eq!(shown(&sum.values, 4, 0.0), Some(60.0));
    assert_eq!(shown(&Values::new(), 4, 0.0), None, "a gap is no zero");
    assert_eq!(shown(&counted(1, 4, 0).values, 4, 0.0), Some(0.0));
}

#[test]
fn the_busiest_apps_stay() {
    let mut row = counted(1, 4, 1);
    for app in 0..300 {
        let mut values = Values::from_iter([(ROWS, 1)]);
        add(&mut values, 4, u64::from(app) * 1_000_000);
        row.apps.insert(app, values);
    }
    let bytes = row.encode_within(NODE_ROW_BYTES_MAX);
    assert!(bytes.len() <= NODE_ROW_BYTES_MAX && bytes.len() > NODE_ROW_BYTES_MAX - 100, "{}", bytes.len());
    let read = Row::decode(&bytes).expect("a row");
    assert!(read.has_more_apps);
    assert!(read.apps.contains_key(&299) && !read.apps.contains_key(&0));
    assert_eq!(read.of_app(299).and_then(|values| shown(&values, 4, 0.0)), Some(299_000_000.0));
    assert_eq!(read.of_app(0), None, "it is unknown, not idle");
    // In a later step the app is missing: its sum is not whole.
    let mut sum = read.clone();
    sum.add_later(&Row { has_more_apps: true, ..counted(1, 4, 1) });
    assert_eq!(sum.of_app(299), None);
    // On another node it is known to have done nothing.
    let mut sum = read.clone();
    sum.add_node(&counted(1, 4, 1));
    assert_eq!(sum.of_app(299).and_then(|values| shown(&values, 4, 0.0)), Some(299_000_000.0));
    // On another node it was left out.
    sum.add_node(&Row { has_more_apps: true, ..counted(1, 4, 1) });
    assert_eq!(sum.of_app(299), None);
    // Without apps that are left out, an absent app did nothing.
    assert_eq!(shown(&counted(3, 4, 1).of_app(7).expect("known"), 4, 0.0), Some(0.0));
}

#[test]
fn a_quantile_is_interpolated() {
    // 100 times in the bucket from 1 to 2.5 ms, 100 above a minute.
    let mut values = Values::from_iter([(STEPS, 1)]);
    let first = 256;
    add(&mut values, first + 4, 100);
    assert_eq!(quantile_of(&values, first, 0.5), Some(0.001_75));
    assert_eq!(quantile_of(&values, first, 1.0), Some(0.002_5));
    add(&mut values, first + 18, 100);
    assert_eq!(quantile_of(&values, first, 0.99), Some(60.0));
    assert_eq!(quantile_of(&values, first + 32, 0.5), None, "nothing was timed");
}

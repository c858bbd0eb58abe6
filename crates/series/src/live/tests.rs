//! Sums of several nodes, and what a viewer may see.

use super::*;

fn report(at_ms: u64, totals: &[(u16, u64)], apps: &[(u32, u16, u64)]) -> Report {
    let mut known: HashMap<u32, Values> = HashMap::new();
    for (app, number, value) in apps {
        known.entry(*app).or_default().insert(*number, *value);
    }
    Report { at_ms, totals: totals.iter().copied().collect(), apps: known }
}

fn figure(sum: &Sum, name: &str) -> Option<f64> {
    sum.shown(Shown::named(name).expect("a series"))
}

#[test]
fn counts_are_rates_of_all_nodes() {
    let mut sum = Sum::default();
    sum.add(None, &report(1_000, &[(1, 5), (4, 100)], &[]), None);
    assert_eq!((figure(&sum, "connections"), figure(&sum, "publishes")), (Some(5.0), None));
    let mut sum = Sum::default();
    let (before, last) = (report(1_000, &[(4, 100)], &[]), report(3_000, &[(1, 5), (4, 120)], &[]));
    sum.add(Some(&before), &last, None);
    let (before, last) = (report(9_000, &[(4, 1)], &[]), report(9_500, &[(1, 7), (4, 4)], &[]));
    sum.add(Some(&before), &last, None);
    assert_eq!((figure(&sum, "connections"), figure(&sum, "publishes")), (Some(12.0), Some(16.0)));
    assert_eq!(figure(&sum, "log_ins"), Some(0.0));
    assert_eq!(figure(&sum, "delivery_p50"), None, "nothing was delivered");
}

#[test]
fn an_app_has_only_its_own_figures() {
    let mut sum = Sum::default();
    let before = report(0, &[(4, 0)], &[(7, 4, 10)]);
    let last = report(1_000, &[(1, 100), (4, 1_000)], &[(7, 1, 2), (7, 4, 13), (8, 4, 500)]);
    sum.add(Some(&before), &last, Some(7));
    assert_eq!((figure(&sum, "connections"), figure(&sum, "publishes")), (Some(2.0), Some(3.0)));
    // It was not asked for before: its rate is not known yet.
    let mut sum = Sum::default();
    sum.add(Some(&before), &last, Some(8));
    assert_eq!(figure(&sum, "publishes"), None);
    let nodes = [("a".to_owned(), true), ("b".to_owned(), false)];
    let of_app = text(Some(7), &sum, &nodes, Timestamp(0));
    let of_app = std::str::from_utf8(&of_app).expect("text");
    assert!(of_app.starts_with("event: figures\ndata: {") && of_app.ends_with("}\n\n"), "{of_app}");
    assert!(of_app.contains(r#""nodes_missing":1"#) && !of_app.contains(r#""name""#), "{of_app}");
    assert!(!of_app.contains("cpu") && !of_app.contains("delivery_p50"), "{of_app}");
    let all = text(None, &sum, &nodes, Timestamp(0));
    let all = std::str::from_utf8(&all).expect("text");
    assert!(all.contains(r#"{"name":"b","missing":true}"#) && all.contains(r#""cpu":"#), "{all}");
}

#[test]
fn a_report_reads_back() {
    let report = report(u64::MAX, &[(1, 5), (4, u64::MAX)], &[(7, 1, 2), (u32::MAX, 4, 1)]);
    let read = decode(&encode(&report)).expect("a report");
    assert_eq!((read.at_ms, read.totals, read.apps), (report.at_ms, report.totals, report.apps));
    assert!(decode(&[1, 2, 3]).is_none() && decode(&[0; 8]).is_none());
    let apps: Vec<_> = (0..10_000).map(|app| (app, 4, u64::MAX)).collect();
    assert!(encode(&self::report(1, &[], &apps)).len() <= REPORT_BYTES_MAX);
}

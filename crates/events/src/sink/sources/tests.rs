//! Order within a source, whatever fails and in whatever order answers come; limits; fairness.

use std::sync::Arc;

use super::*;
use crate::batch::Run;

const KIB: usize = 1 << 10;

/// A batch of runs: source, first number, lines. A line has `bytes` bytes with its source and number.
fn batch(runs: &[(u32, usize, usize)], bytes: usize) -> Batch {
    let (mut text, mut table) = (String::new(), Vec::new());
    for &(source, first, count) in runs {
        for number in first..first + count {
            let line = format!("{source}:{number}");
            let padding = " ".repeat(bytes - 1 - line.len());
            text.push_str(&format!("{line}{padding}\n"));
        }
        let number = |count: usize| u32::try_from(count).expect("small");
        table.push(Run { source, bytes: number(count * bytes), events: number(count) });
    }
    let events = table.iter().map(|run| u64::from(run.events)).sum();
    Batch { bytes: text.into(), events, since: Instant::now(), runs: table.into() }
}

/// What a fake has accepted, by source.
#[derive(Default)]
struct Accepted(HashMap<u32, Vec<usize>>);

impl Accepted {
    fn accept(&mut self, record: &Record) {
        let bytes = record.bytes();
        let text = std::str::from_utf8(&bytes).expect("text");
        assert_eq!(text.lines().count() as u64, record.events());
        for line in text.lines() {
            let (source, number) = line.trim().split_once(':').expect("a line");
            self.0.entry(source.parse().expect("source")).or_default().push(number.parse().expect("number"));
        }
    }

    fn check(&self, counts: &[(u32, usize)]) {
        for (source, count) in counts {
            assert!(self.0[source].iter().copied().eq(0..*count), "source {source}: in order, each once");
        }
    }
}

/// The n-th of a sequence that looks random.
fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)) >> 11
}

#[test]
fn lines_of_a_source_stay_in_order_whatever_fails() {
    for seed in 0..200 {
        let mut step = seed * 1_000_000;
        let mut random = |below: u64| {
            step += 1;
            mix(step) % below
        };
        let mut firsts = [0; 5];
        let mut batches = Vec::new();
        for _ in 0..4 {
            let mut runs = Vec::new();
            for _ in 0..10 {
                let (source, count) = (random(5), 1 + random(40) as usize);
                let first = &mut firsts[usize::try_from(source).expect("small")];
                runs.push((u32::try_from(source).expect("small"), *first, count));
                *first += count;
            }
            batches.push(batch(&runs, 40));
        }
        let record_bytes = [100, 999, 10 * KIB][usize::try_from(random(3)).expect("small")];
        let mut sources = Sources::new(&batches, record_bytes, false);
        let (mut accepted, mut calls, mut now) = (Accepted::default(), Vec::new(), Instant::now());
        loop {
            while calls.len() < 3 {
                let call = sources.call(now);
                if call.is_empty() {
                    break;
                }
                assert!(call.iter().all(|record| record.bytes().len() <= record_bytes));
                calls.push(call);
            }
            if calls.is_empty() {
                match sources.ready_at() {
                    Some(at) => now = at,
                    None => break,
                }
                continue;
            }
            let call = calls.swap_remove(usize::try_from(random(calls.len() as u64)).expect("small"));
            if random(10) == 0 {
                sources.unanswered(call);
                continue;
            }
            let (failed, well): (Vec<_>, Vec<_>) = call.into_iter().partition(|_| random(3) == 0);
            well.iter().for_each(|record| accepted.accept(record));
            sources.answered(&well, failed, now);
        }
        let counts = (0..5).zip(firsts).filter(|(_, count)| *count > 0).collect::<Vec<(u32, usize)>>();
        accepted.check(&counts);
    }
}

#[test]
fn a_source_has_one_record_in_flight_and_others_continue_when_it_fails() {
    let mut sources = Sources::new(&[batch(&[(1, 0, 10), (2, 0, 10)], 100)], 500, false);
    let now = Instant::now();
    let mut call = sources.call(now);
    assert_eq!(
        call.iter().map(|record| (record.source, record.events())).collect::<Vec<_>>(),
        [(0, 5), (1, 5)]
    );
    assert!(sources.call(now).is_empty() && sources.ready_at().is_none(), "both are in flight");
    let second = call.pop().expect("two");
    sources.answered(&[second], call, now);
    assert_eq!(sources.call(now).iter().map(|record| record.source).collect::<Vec<_>>(), [1]);
    let at = sources.ready_at().expect("the first waits");
    assert!(at > now && at <= now + PAUSE_MIN);
    let mut accepted = Accepted::default();
    sources.call(at).iter().for_each(|record| accepted.accept(record));
    accepted.check(&[(1, 5)]);
}

#[test]
fn a_source_that_fails_again_waits_longer() {
    let mut sources = Sources::new(&[batch(&[(1, 0, 1)], 100)], 500, false);
    let mut now = Instant::now();
    for doubled in [1, 2, 4, 8] {
        let call = sources.call(now);
        assert_eq!(call.len(), 1);
        sources.answered(&[], call, now);
        let pause = sources.ready_at().expect("it waits") - now;
        assert!((PAUSE_MIN * doubled / 2..=PAUSE_MIN * doubled).contains(&pause), "{pause:?} of {doubled}");
        now += pause;
    }
}

#[test]
fn with_one_call_all_lines_have_an_order() {
    let runs = [(1, 0, 2), (2, 0, 2), (1, 2, 2)];
    let mut sources = Sources::new(&[batch(&runs, 100)], RECORD_BYTES_MAX, true);
    let call = sources.call(Instant::now());
    assert_eq!(call.len(), 1);
    let text = String::from_utf8(call[0].bytes()).expect("text");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(lines, ["1:0", "1:1", "2:0", "2:1", "1:2", "1:3"]);
}

#[test]
fn large_records_go_in_parallel_and_small_ones_share_a_call() {
    let small: Vec<_> = (0..600).map(|source| (source, 0, 1)).collect();
    let mut sources = Sources::new(&[batch(&small, 100)], RECORD_BYTES_MAX, false);
    let now = Instant::now();
    assert_eq!([sources.call(now).len(), sources.call(now).len()], [RECORDS_MAX, 100]);

    let large: Vec<_> = (0..3).map(|source| (source, 0, 20)).collect();
    let mut sources = Sources::new(&[batch(&large, 100 * KIB)], RECORD_BYTES_MAX, false);
    let calls: Vec<_> = (0..4).map(|_| sources.call(now)).collect();
    let sizes = |call: &Vec<Record>| call.iter().map(Record::events).collect::<Vec<_>>();
    assert_eq!(calls.iter().map(sizes).collect::<Vec<_>>(), [vec![10], vec![10], vec![10], vec![]]);
}

#[test]
fn sources_take_turns() {
    let large: Vec<_> = (0..3).map(|source| (source, 0, 4)).collect();
    let mut sources = Sources::new(&[batch(&large, 300 * KIB)], 300 * KIB, false);
    let now = Instant::now();
    let mut order = Vec::new();
    for _ in 0..6 {
        let call = sources.call(now);
        order.extend(call.iter().map(|record| record.source));
        sources.answered(&call, Vec::new(), now);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn each_line_is_a_record_if_configured() {
    let mut sources = Sources::new(&[batch(&[(1, 0, 600), (2, 0, 300)], 100)], 0, false);
    let now = Instant::now();
    let (first, second) = (sources.call(now), sources.call(now));
    assert_eq!((first.len(), second.len()), (500, 300), "a source has one call in flight");
    assert!(first.iter().chain(&second).all(|record| record.events() == 1 && record.bytes().len() == 100));
    // The failed ones come before everything that was not sent, in order, in a call of their own.
    let (failed, well): (Vec<_>, Vec<_>) =
        first.into_iter().enumerate().partition(|(index, _)| index % 100 == 7);
    let records = |of: Vec<(usize, Record)>| of.into_iter().map(|(_, record)| record).collect::<Vec<_>>();
    sources.answered(&records(well), records(failed), now);
    let at = sources.ready_at().expect("a pause");
    let mut accepted = Accepted::default();
    for _ in 0..2 {
        let call = sources.call(at);
        call.iter().for_each(|record| accepted.accept(record));
        sources.answered(&call, Vec::new(), at);
    }
    assert!(accepted.0[&1].iter().copied().eq([7, 107, 207, 307, 407].into_iter().chain(500..600)));
}

#[test]
fn a_line_that_no_record_holds_is_skipped_and_counted() {
    let mut text = vec![b'x'; RECORD_BYTES_MAX];
    text.extend(b"\n");
    text.extend(b"short\n");
    let bytes = Bytes::from(text);
    let run = Run { source: 3, bytes: u32::try_from(bytes.len()).expect("small"), events: 2 };
    let batch = Batch { bytes, events: 2, since: Instant::now(), runs: Arc::new([run]) };
    for record_bytes in [0, 99, RECORD_BYTES_MAX] {
        let mut sources = Sources::new(std::slice::from_ref(&batch), record_bytes, false);
        let call = sources.call(Instant::now());
        assert_eq!((call.len(), sources.too_long), (1, 1), "{record_bytes}");
        assert_eq!(call[0].bytes(), b"short\n");
    }
}

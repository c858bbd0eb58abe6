//! Stored batches come back in order: across restarts, truncated writes and damage.

use std::time::Instant;

use bytes::Bytes;

use super::*;

fn batch(text: &str) -> Batch {
    Batch::of_one_source(Bytes::copy_from_slice(text.as_bytes()), 1, Instant::now())
}

fn open(folder: &Path) -> Spool {
    Spool::open(folder, 64 << 20).expect("spool")
}

fn head(spool: &mut Spool) -> Option<Batch> {
    spool.heads(0).pop()
}

fn taken(spool: &mut Spool) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(batch) = head(spool) {
        texts.push(String::from_utf8(batch.bytes.to_vec()).expect("text"));
        spool.take();
    }
    texts
}

#[test]
fn unaccepted_batches_survive_a_restart() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    for text in ["a", "b", "c"] {
        spool.append(&batch(text)).expect("kept");
    }
    assert_eq!(head(&mut spool).expect("head").bytes, "a");
    spool.take();
    assert_eq!(head(&mut spool).expect("head").bytes, "b");
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!(spool.events(), 2);
    spool.append(&batch("d")).expect("kept");
    assert_eq!(taken(&mut spool), ["b", "c", "d"]);
    assert!(spool.is_empty() && spool.bytes() == 0);
    // Numbering continues: a new segment is not mistaken for one that was read.
    drop(spool);
    let mut spool = open(folder.path());
    spool.append(&batch("e")).expect("kept");
    drop(spool);
    assert_eq!(taken(&mut open(folder.path())), ["e"]);
}

#[test]
fn a_spool_cannot_be_opened_twice() {
    let folder = tempfile::tempdir().expect("folder");
    let _first = open(folder.path());
    let error = Spool::open(folder.path(), 1 << 20).expect_err("refused");
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
}

#[test]
fn many_segments_are_read_in_order_and_removed() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    let text = |n: usize| format!("{n}:{}", "x".repeat(3 << 20));
    for n in 0..9 {
        spool.append(&batch(&text(n))).expect("kept");
    }
    assert!(spool.segments.len() >= 3);
    let full = spool.bytes();
    for n in 0..9 {
        assert_eq!(head(&mut spool).expect("head").bytes, text(n).as_bytes());
        spool.take();
    }
    assert!(full > 27 << 20 && spool.bytes() == 0);
    assert!(spool.numbers().expect("folder").is_empty());
}

#[test]
fn the_spool_never_exceeds_its_limit() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = Spool::open(folder.path(), 120).expect("spool");
    assert!(spool.append(&batch(&"x".repeat(60))).is_ok());
    assert!(matches!(spool.append(&batch(&"x".repeat(60))), Err(Refused::Full)));
    assert!(spool.append(&batch("y")).is_ok(), "a smaller one still fits");
    assert!(head(&mut spool).is_some());
    spool.take();
    assert_eq!(head(&mut spool).expect("head").bytes, "y");
}

#[test]
fn a_truncated_write_is_not_read() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    spool.append(&batch("whole")).expect("kept");
    spool.append(&batch("cut off")).expect("kept");
    let path = spool.path(1);
    drop(spool);
    let file = OpenOptions::new().write(true).open(path).expect("segment");
    file.set_len(file.metadata().expect("length").len() - 3).expect("cut");
    let mut spool = open(folder.path());
    assert_eq!(spool.events(), 1);
    spool.append(&batch("later")).expect("kept");
    assert_eq!(taken(&mut spool), ["whole", "later"]);
}

#[test]
fn damage_loses_the_rest_of_its_segment_and_is_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    for text in ["first", "later", "third"] {
        spool.append(&batch(text)).expect("kept");
    }
    let second = spool.segments[0].bytes / 3 + FRAME_HEAD;
    spool.segments[0].file.write_all_at(b"L", second).expect("damaged");
    assert_eq!(taken(&mut spool), ["first"]);
    assert_eq!((spool.take_damaged(), spool.events()), (2, 0));
    spool.append(&batch("fourth")).expect("kept");
    assert_eq!(taken(&mut spool), ["fourth"]);
}

#[test]
fn several_batches_are_read_ahead_across_segments_and_only_accepted_ones_are_removed() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    let text = |n: usize| format!("{n}:{}", "x".repeat(3 << 20));
    (0..9).for_each(|n| spool.append(&batch(&text(n))).expect("kept"));
    let numbers = |batches: Vec<Batch>| batches.iter().map(|batch| batch.bytes[0] - b'0').collect::<Vec<_>>();
    assert_eq!(numbers(spool.heads(0)), [0]);
    assert_eq!(numbers(spool.heads(12 << 20)), [0, 1, 2, 3], "of two segments");
    assert_eq!(numbers(spool.heads(0)), [0], "one, as requested");
    (0..3).for_each(|_| spool.take());
    assert_eq!(numbers(spool.heads(9 << 20)), [3, 4, 5]);
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!(numbers(spool.heads(usize::MAX)), [3, 4, 5, 6, 7, 8]);
    (3..9).for_each(|_| spool.take());
    assert!(spool.heads(0).is_empty() && spool.is_empty() && spool.bytes() == 0);
    spool.append(&batch("9")).expect("kept");
    assert_eq!(numbers(spool.heads(usize::MAX)), [9]);
}

#[test]
fn sources_survive_on_disk_and_batches_of_earlier_versions_have_one() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    let run = |source, bytes, events| crate::batch::Run { source, bytes, events };
    let runs = [run(7, 4, 2), run(9, 2, 1)];
    let kept = Batch { runs: runs.into(), events: 3, ..batch("a\nb\nc\n") };
    spool.append(&kept).expect("kept");
    // As version 0.1 wrote it: without a table.
    let mut old = Vec::new();
    [4, crc32fast::hash(b"d\ne\n"), 2, 0].iter().for_each(|n: &u32| old.extend(n.to_le_bytes()));
    old.extend(b"d\ne\n");
    spool.segments[0].file.write_all_at(&old, spool.segments[0].bytes).expect("written");
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!(spool.events(), 5);
    let batches = spool.heads(usize::MAX);
    assert_eq!(batches[0].runs[..], runs);
    assert_eq!(batches[1].runs[..], [run(0, 4, 2)]);
}

#[test]
fn damage_behind_batches_that_are_read_ahead_waits_for_its_turn() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = open(folder.path());
    for text in ["first", "later", "third"] {
        spool.append(&batch(text)).expect("kept");
    }
    let second = spool.segments[0].bytes / 3 + FRAME_HEAD;
    spool.segments[0].file.write_all_at(b"L", second).expect("damaged");
    assert_eq!(spool.heads(usize::MAX).len(), 1);
    assert_eq!((spool.take_damaged(), spool.events()), (0, 3));
    spool.take();
    assert!(spool.heads(usize::MAX).is_empty());
    assert_eq!((spool.take_damaged(), spool.events()), (2, 0));
}

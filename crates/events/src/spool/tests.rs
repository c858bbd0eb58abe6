//! Stored batches come back in order: across restarts, truncated writes and damage.

use super::*;

fn batch(text: &str) -> Batch {
    Batch { bytes: Bytes::copy_from_slice(text.as_bytes()), events: 1, since: Instant::now() }
}

fn open(folder: &Path) -> Spool {
    Spool::open(folder, 64 << 20).expect("spool")
}

fn taken(spool: &mut Spool) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(batch) = spool.head() {
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
    assert_eq!(spool.head().expect("head").bytes, "a");
    spool.take();
    assert_eq!(spool.head().expect("head").bytes, "b");
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
        assert_eq!(spool.head().expect("head").bytes, text(n).as_bytes());
        spool.take();
    }
    assert!(full > 27 << 20 && spool.bytes() == 0);
    assert!(spool.numbers().expect("folder").is_empty());
}

#[test]
fn the_spool_never_exceeds_its_limit() {
    let folder = tempfile::tempdir().expect("folder");
    let mut spool = Spool::open(folder.path(), 100).expect("spool");
    assert!(spool.append(&batch(&"x".repeat(60))).is_ok());
    assert!(matches!(spool.append(&batch(&"x".repeat(60))), Err(Refused::Full)));
    assert!(spool.append(&batch("y")).is_ok(), "a smaller one still fits");
    assert!(spool.head().is_some());
    spool.take();
    assert_eq!(spool.head().expect("head").bytes, "y");
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
    for text in ["first", "second", "third"] {
        spool.append(&batch(text)).expect("kept");
    }
    let second = FRAME_HEAD + 5 + FRAME_HEAD;
    spool.segments[0].file.write_all_at(b"S", second).expect("damaged");
    assert_eq!(taken(&mut spool), ["first"]);
    assert_eq!((spool.take_damaged(), spool.events()), (2, 0));
    spool.append(&batch("fourth")).expect("kept");
    assert_eq!(taken(&mut spool), ["fourth"]);
}

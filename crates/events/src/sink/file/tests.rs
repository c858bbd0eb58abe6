//! Files are rotated, compressed, bounded, and complete.

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use super::*;

fn batch(text: &str) -> Batch {
    let events = text.lines().count() as u64;
    Batch::of_one_source(Bytes::copy_from_slice(text.as_bytes()), events, Instant::now())
}

fn config(folder: &Path) -> config::File {
    config::File { bytes: 64 << 10, ..config::File::new(folder) }
}

/// The files of a folder in the order of their lines: "events-…" sorts before "events.ndjson", the current one.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path()).collect();
    paths.sort_unstable();
    paths
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Waits for the thread that compresses.
fn wait_for_packed(folder: &Path, enough: impl Fn(usize) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let count = || files(folder).iter().filter(|path| is_packed(path)).count();
    while !enough(count()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(enough(count()), "{} files are compressed", count());
}

/// All lines of a folder that is no longer written to.
fn read_back(folder: &Path) -> String {
    let mut text = String::new();
    for path in files(folder) {
        match is_packed(&path) {
            true => {
                let file = Handle::open(&path).expect("file");
                MultiGzDecoder::new(file).read_to_string(&mut text).expect("gzip");
            }
            false => text.push_str(&std::fs::read_to_string(&path).expect("text")),
        }
    }
    text
}

#[test]
fn rotated_and_compressed_files_have_all_lines() {
    let folder = tempfile::tempdir().expect("folder");
    let mut sink = File::open(&config(folder.path()), &Threads::default()).expect("sink");
    let mut all = String::new();
    for n in 0..100 {
        let text: String = (0..50).map(|line| format!("{{\"n\":{}}}\n", n * 50 + line)).collect();
        sink.write(&batch(&text)).expect("written");
        all.push_str(&text);
        // 100 × about 600 bytes are one file of 64 KiB; lines of 2 KiB make several.
        let long = format!("{{\"long\":\"{}\"}}\n", "x".repeat(2 << 10));
        sink.write(&batch(&long)).expect("written");
        all.push_str(&long);
    }
    wait_for_packed(folder.path(), |count| count >= 3);
    sink.end();
    let text = read_back(folder.path());
    assert!(text == all, "{} of {} bytes", text.len(), all.len());
}

#[test]
fn a_truncated_line_is_removed() {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join(NAME), "{\"n\":1}\n{\"n\":2}\n{\"n\":").expect("written");
    let mut sink = File::open(&config(folder.path()), &Threads::default()).expect("sink");
    sink.write(&batch("{\"n\":3}\n")).expect("written");
    sink.end();
    assert_eq!(read_back(folder.path()), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
}

#[test]
fn the_next_start_compresses_leftovers_and_removes_the_oldest_files() {
    let folder = tempfile::tempdir().expect("folder");
    let name = |second: u64| {
        archive::free_name(folder.path(), SystemTime::UNIX_EPOCH + Duration::from_secs(second)).expect("name")
    };
    // Random text does not compress.
    let text = |n: u64| {
        (0..20_000)
            .map(|k| format!("{:x}\n", (k + n).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect::<String>()
    };
    for second in 1..=3 {
        std::fs::write(name(second), text(second)).expect("written");
    }
    let sink = File::open(&config(folder.path()), &Threads::default()).expect("sink");
    wait_for_packed(folder.path(), |count| count == 3);
    sink.end();
    assert_eq!(read_back(folder.path()), [text(1), text(2), text(3)].concat());
    let few = config::File { keep_bytes: 1, ..config(folder.path()) };
    let sink = File::open(&few, &Threads::default()).expect("sink");
    wait_for_packed(folder.path(), |count| count == 0);
    sink.end();
}

#[test]
fn two_files_closed_at_the_same_time_have_different_names() {
    let folder = tempfile::tempdir().expect("folder");
    let first = archive::free_name(folder.path(), SystemTime::UNIX_EPOCH).expect("name");
    std::fs::write(&first, "").expect("written");
    let second = archive::free_name(folder.path(), SystemTime::UNIX_EPOCH).expect("name");
    assert!(first < second, "{} and {}", first.display(), second.display());
}

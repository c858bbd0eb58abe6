//! From many threads to files; the effects of a full ring and of an abrupt end.

use noroshi_events::config::{File, Sink};

use super::*;

fn to_file(folder: &Path) -> Config {
    Config { sinks: vec![Sink::File(File::new(folder.join("log")))], ..config(&folder.join("spool")) }
}

fn read(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log/events.ndjson")).unwrap_or_default()
}

#[test]
fn events_of_many_threads_are_in_the_file_once_and_in_order() {
    let folder = tempfile::tempdir().expect("folder");
    let log = start(&to_file(folder.path()), None);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let events = &log.events;
            scope.spawn(move || (0..20_000).for_each(|n| tell(events, thread * 100_000 + n)));
        }
    });
    let drained = log.service.drain();
    assert_eq!((drained.lost, drained.spooled), (0, 0));
    let numbers = numbers(&read(folder.path()));
    assert_eq!(numbers.len(), 80_000);
    for thread in 0..4_u64 {
        let of: Vec<u64> = numbers.iter().copied().filter(|number| number / 100_000 == thread).collect();
        assert!(of.iter().copied().eq((0..20_000).map(|n| thread * 100_000 + n)), "thread {thread}");
    }
    assert_eq!((log.metrics.sent("file"), log.metrics.lost_by_rings()), (80_001, 0));
}

#[test]
fn events_without_room_are_counted_and_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let config = Config { ring_places: 64, flush_interval: Duration::from_secs(5), ..to_file(folder.path()) };
    let log = start(&config, None);
    for n in 0..200_000 {
        log.events.emit(Timestamp(n), || written(n));
    }
    let metrics = log.metrics.clone();
    log.service.drain();
    let text = read(folder.path());
    let lost = metrics.lost_by_rings();
    assert!(lost > 0, "64 places are filled faster than they are read");
    assert_eq!(numbers(&text).len() as u64 + lost, 200_000);
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let told: u64 =
        lines.filter(|line| line["event"] == "lost").filter_map(|line| line["count"].as_u64()).sum();
    assert_eq!(told, lost);
}

#[test]
fn a_second_run_continues_the_file() {
    let folder = tempfile::tempdir().expect("folder");
    for run in 0..2 {
        let log = start(&to_file(folder.path()), None);
        tell(&log.events, run);
        log.service.drain();
    }
    assert_eq!(numbers(&read(folder.path())), [0, 1]);
}

#[test]
fn a_handle_without_a_log_does_nothing() {
    let events = Events::off();
    events.emit(Timestamp(0), || unreachable!("nobody reads it"));
    assert!(!events.is_on());
}

//! A tap beside the sinks and without one: what it reads, and that nothing is emitted while it is closed.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_events::Tap;
use noroshi_events::config::{File, Sink};
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Reader {
    seen: Mutex<Vec<u64>>,
    lost: AtomicU64,
}

impl Tap for Reader {
    fn read(&self, records: &mut Vec<Record>, lost: u64) {
        self.seen.lock().extend(records.drain(..).map(|record| record.at.0));
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }
}

fn tapped(events: &Events) -> Arc<Reader> {
    let reader = Arc::<Reader>::default();
    let weak: Weak<dyn Tap> = Arc::<Reader>::downgrade(&reader);
    events.attach_tap(weak);
    reader
}

#[test]
fn without_a_sink_events_are_read_only_while_the_tap_is_open() {
    let folder = tempfile::tempdir().expect("folder");
    let log = start(&config(folder.path()), None);
    let reader = tapped(&log.events);
    assert!(!log.service.has_sinks() && !log.events.is_on() && !log.events.is_tapped());
    log.events.emit(Timestamp(1), || unreachable!("nobody reads it"));
    assert!(log.events.set_tapped(true) && log.events.is_on() && log.events.is_tapped());
    for n in 2..5_000 {
        tell(&log.events, n);
    }
    wait_until("the tap has read all", || reader.seen.lock().len() == 4_998);
    assert!(reader.seen.lock().iter().copied().eq(2..5_000));
    log.events.set_tapped(false);
    log.events.emit(Timestamp(5_000), || unreachable!("nobody reads it"));
    // It opens again, with the rings of the first time.
    log.events.set_tapped(true);
    tell(&log.events, 5_001);
    wait_until("the tap reads again", || reader.seen.lock().last() == Some(&5_001));
    assert_eq!((reader.lost.load(Ordering::Relaxed), log.metrics.lost_by_rings()), (0, 0));
    let drained = log.service.drain();
    assert_eq!((drained.lost, drained.spooled), (0, 0));
}

#[test]
fn a_tap_beside_a_sink_takes_nothing_from_it() {
    let folder = tempfile::tempdir().expect("folder");
    let sinks = vec![Sink::File(File::new(folder.path().join("log")))];
    let log = start(&Config { sinks, ..config(&folder.path().join("spool")) }, None);
    let reader = tapped(&log.events);
    tell(&log.events, 1);
    log.events.set_tapped(true);
    tell(&log.events, 2);
    wait_until("the tap has read it", || reader.seen.lock().last() == Some(&2));
    log.events.set_tapped(false);
    assert!(log.events.is_on() && !log.events.is_tapped());
    tell(&log.events, 3);
    log.service.drain();
    let text = std::fs::read_to_string(folder.path().join("log/events.ndjson")).expect("a file");
    assert_eq!(numbers(&text), [1, 2, 3]);
}

#[test]
fn a_tap_learns_of_losses_which_no_sink_counts() {
    let folder = tempfile::tempdir().expect("folder");
    let log = start(&Config { ring_places: 64, ..config(folder.path()) }, None);
    let reader = tapped(&log.events);
    log.events.set_tapped(true);
    for n in 0..200_000 {
        log.events.emit(Timestamp(n), || written(n));
    }
    let all = || reader.seen.lock().len() as u64 + reader.lost.load(Ordering::Relaxed);
    wait_until("all events are read or lost", || all() == 200_000);
    assert!(reader.lost.load(Ordering::Relaxed) > 0, "64 places are filled faster than they are read");
    assert_eq!(log.metrics.lost_by_rings(), 0);
}

#[test]
fn a_handle_without_a_log_has_no_tap() {
    let events = Events::off();
    tapped(&events);
    assert!(!events.set_tapped(true) && !events.is_tapped() && !events.is_on());
}

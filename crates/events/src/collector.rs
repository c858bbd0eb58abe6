//! The thread that reads all rings, writes lines and closes batches.
//!
//! With sinks it runs at every flush interval, and earlier when a filling ring wakes it. A batch goes to the sinks when it is
//! full or the interval is over, so a killed process loses at most that much. With an open tap it runs at
//! [`TAP_INTERVAL`]; with neither it waits for a tap.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use noroshi_supervision::Heartbeat;
use noroshi_types::Timestamp;
use prometheus_client::metrics::counter::Counter;

use crate::batch::{Limits, Open};
use crate::emit::Shared;
use crate::event::{Event, Kind, Record};
use crate::feed::Feed;
use crate::line::Writer;
use crate::metrics::Metrics;
use crate::ring::Receiver;

pub(crate) struct Collector {
    shared: Arc<Shared>,
    receivers: Vec<Source>,
    sources: u32,
    writer: Writer,
    open: Open,
    feeds: Vec<Arc<Feed>>,
    flush_interval: Duration,
    /// Records for the tap.
    tapped: Vec<Record>,
    written: [Counter; Kind::ALL.len()],
    /// Counts that are not added to the shared counters yet.
    tally: [u64; Kind::ALL.len()],
    lost: Counter,
    now: fn() -> Timestamp,
}

/// A ring and the number of its thread.
struct Source {
    number: u32,
    ring: Receiver,
}

/// How long an event waits for the tap.
const TAP_INTERVAL: Duration = Duration::from_millis(50);
/// Records that the tap gets at once, and their bytes outside of the records.
const TAPPED_MAX: usize = 1_024;
const TAPPED_BYTES_MAX: usize = 1 << 20;

/// The source of the collector's own lines.
const OWN: u32 = 0;

impl Collector {
    pub(crate) fn new(
        shared: Arc<Shared>,
        writer: Writer,
        feeds: Vec<Arc<Feed>>,
        (limits, flush_interval): (Limits, Duration),
        metrics: &Metrics,
        now: fn() -> Timestamp,
    ) -> Self {
        Self {
            shared,
            receivers: Vec::new(),
            sources: OWN,
            writer,
            open: Open::new(limits, Instant::now()),
            feeds,
            flush_interval,
            tapped: Vec::new(),
            written: metrics.of_kinds(),
            tally: [0; Kind::ALL.len()],
            lost: metrics.lost_in_rings(),
            now,
        }
    }

    /// Runs until the log ends, and then reads the rings once more.
    pub(crate) fn run(mut self, first: Record, pulse: &Heartbeat) {
        self.write(OWN, &first);
        let mut flush_at = Instant::now() + self.flush_interval;
        loop {
            pulse.working();
            let ending = self.shared.ending.load(Ordering::Acquire);
            self.read();
            let now = Instant::now();
            if now >= flush_at || ending {
                self.flush(now);
                self.feeds.iter().for_each(|feed| feed.tick(now));
                flush_at = now + self.flush_interval;
            }
            self.show();
            if ending {
                return self.feeds.iter().for_each(|feed| feed.close());
            }
            pulse.waiting();
            self.wait(flush_at);
        }
    }

    fn wait(&self, flush_at: Instant) {
        let until_flush = || flush_at.saturating_duration_since(Instant::now());
        match (self.shared.has_sinks(), self.shared.tap().is_some()) {
            (true, false) => std::thread::park_timeout(until_flush()),
            (true, true) => std::thread::park_timeout(until_flush().min(TAP_INTERVAL)),
            (false, true) => std::thread::park_timeout(TAP_INTERVAL),
            (false, false) => std::thread::park(),
        }
    }

    /// Reads what is in the rings now; later events have to wait for the next pass.
    fn read(&mut self) {
        let tap = self.shared.tap();
        for ring in self.shared.new.lock().drain(..) {
            self.sources = self.sources.wrapping_add(1);
            self.receivers.push(Source { number: self.sources, ring });
        }
        let mut lost = match self.shared.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.shared.lost.swap(0, Ordering::Relaxed),
        };
        let mut tapped_bytes = 0;
        for index in 0..self.receivers.len() {
            // Limited, because other rings fill too.
            for _ in 0..self.receivers[index].ring.places() {
                let Source { number, ring } = &mut self.receivers[index];
                let (number, Some(record)) = (*number, ring.pop()) else { break };
                self.write(number, &record);
                if let Some(tap) = &tap {
                    tapped_bytes += record.extra_bytes();
                    self.tapped.push(record);
                    if self.tapped.len() >= TAPPED_MAX || tapped_bytes >= TAPPED_BYTES_MAX {
                        tap.read(&mut self.tapped, 0);
                        self.tapped.clear();
                        tapped_bytes = 0;
                    }
                }
            }
        }
        // The thread's last losses are read after its end was seen.
        self.receivers.retain(|source| {
            let over = source.ring.is_over();
            lost += source.ring.take_lost();
            !over
        });
        if let Some(tap) = tap.filter(|_| lost > 0 || !self.tapped.is_empty()) {
            tap.read(&mut self.tapped, lost);
            self.tapped.clear();
        }
        if lost > 0 && self.shared.has_sinks() {
            self.lost.inc_by(lost);
            self.write(OWN, &Record { at: (self.now)(), event: Event::Lost { count: lost } });
        }
    }

    fn write(&mut self, source: u32, record: &Record) {
        if !self.shared.has_sinks() {
            return;
        }
        let Self { writer, open, tally, .. } = self;
        open.write(source, |bytes| {
            let mut events = 0;
            writer.write(record, bytes, |kind| {
                tally[kind as usize] += 1;
                events += 1;
            });
            events
        });
        if self.open.is_full() {
            self.flush(Instant::now());
        }
    }

    fn flush(&mut self, now: Instant) {
        let Some(batch) = self.open.take(now) else { return };
        let Some((last, feeds)) = self.feeds.split_last() else { return };
        feeds.iter().for_each(|feed| feed.push(batch.clone()));
        last.push(batch);
    }

    fn show(&mut self) {
        for (counter, tally) in self.written.iter().zip(&mut self.tally) {
            if *tally > 0 {
                counter.inc_by(std::mem::take(tally));
            }
        }
    }
}

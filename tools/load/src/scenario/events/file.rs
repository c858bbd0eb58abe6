//! Events to files: from the first emitted event to the last one written, including rotation and compression.

use std::time::Instant;

use noroshi_events::config::{File, Sink};
use noroshi_events::{Config, Metrics, Service};

use super::{AT, Found, emit, failed, names};
use crate::Error;
use crate::args::Events;
use crate::server::temporary_folder;

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let (mut found, mut best, mut bytes) = (Found::new(), 0.0_f64, 0.0);
    for count in &args.counts {
        let folder = temporary_folder()?;
        let sink = Sink::File(File::new(folder.join("events")));
        let config = Config { sinks: vec![sink], ..Config::new("bench", folder.join("spool")) };
        let metrics = Metrics::new(&mut noroshi_telemetry::registry());
        let service = Service::start(&config, names(), None, &Default::default(), &metrics)
            .map_err(|error| failed(&error.to_string()))?;
        let events = service.events();
        let start = Instant::now();
        (0..*count).for_each(|number| emit(&events, number, AT));
        let config = service.drain();
        let seconds = start.elapsed().as_secs_f64();
        // The log writes its own first line.
        let written = metrics.sent("file").saturating_sub(1);
        if written != *count || config.lost > 0 {
            return Err(failed(&format!("only {written} of {count} events were written")));
        }
        let size = std::fs::metadata(folder.join("events/events.ndjson")).map(|file| file.len());
        if let (Ok(size), true) = (size, *count <= 1_000_000) {
            bytes = size as f64 / *count as f64;
        }
        best = best.max(*count as f64 / seconds);
        found.push((format!("{} events to a file", grouped(*count)), seconds));
        // A failure leaves the files to the system's temporary folder.
        let _ = std::fs::remove_dir_all(folder);
    }
    found.push(("events to a file, the most".to_owned(), best));
    found.push(("bytes of an event".to_owned(), bytes));
    Ok(found)
}

/// `5,000,000`
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

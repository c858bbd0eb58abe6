//! Events to files: from the first emitted event to the last one written, including rotation and compression.

use std::time::Instant;

use noroshi_events::config::{File, Sink};

use super::{AT, Found, emit, failed, log};
use crate::Error;
use crate::args::Events;
use crate::report::show_whole;
use crate::server::temporary_folder;

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let (mut found, mut best, mut bytes) = (Found::new(), 0.0_f64, 0.0);
    for count in &args.counts {
        let folder = temporary_folder()?;
        let (service, metrics) = log(&folder, Sink::File(File::new(folder.join("events"))), None)?;
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
        found.push((format!("{} events to a file", show_whole(*count as f64)), "s".to_owned(), seconds));
        // A failure leaves the files to the system's temporary folder.
        let _ = std::fs::remove_dir_all(folder);
    }
    found.extend(super::found("events/s", [("events to a file, the most", best)]));
    found.extend(super::found("B", [("bytes of an event", bytes)]));
    Ok(found)
}

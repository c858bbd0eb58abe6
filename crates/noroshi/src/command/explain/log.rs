//! The history of a notification on a device, from event files (docs/events.md): includes connections and each push. Needs no
//! running server.
//!
//! Reads files line by line, oldest first. The log identifies devices by the store's numbers; `registered` and `connected` map
//! numbers to devices.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::failure::Failure;
use crate::output;

/// Maximum lines of one history.
const LINES_MAX: usize = 10_000;

/// Hidden fields: known from the arguments, or equal in all lines.
const HIDDEN: [&str; 9] = ["v", "at", "run", "n", "event", "id", "devices", "device", "count"];

#[derive(Default)]
struct History {
    /// Numbers of the device; several if it was deleted and registered again.
    numbers: BTreeSet<u64>,
    lines: Vec<Value>,
}

pub(super) fn print(folder: &Path, id: &str, device: &str) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let mut history = History::default();
    for path in files(folder).map_err(|error| failed(folder, error))? {
        history.read(&path, id, device).map_err(|error| failed(&path, error))?;
    }
    let is_known = !history.numbers.is_empty();
    let lines = history.into_lines(id);
    if lines.is_empty() {
        return output::line("these files contain nothing about this notification and device");
    }
    let row = |line: &Value| {
        let cell = |name: &str| output::cell(line.get(name));
        vec![cell("at"), cell("node"), cell("event"), details(line)]
    };
    output::table(&["at", "node", "event", "details"], lines.iter().map(row).collect())?;
    match is_known {
        true => Ok(()),
        false => output::line(
            "The device neither registered nor connected while these files were written, so its number is \
             unknown: steps recorded by number are not shown.",
        ),
    }
}

/// Sorts by time: closed files "events-…" come before the current "events.ndjson".
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("events") && (name.ends_with(".ndjson") || name.ends_with(".ndjson.gz")) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn details(line: &Value) -> String {
    let fields = line.as_object().into_iter().flatten();
    let shown = fields.filter(|(name, _)| !HIDDEN.contains(&name.as_str()) && *name != "node");
    let text: Vec<_> = shown.map(|(name, value)| format!("{name} {}", output::cell(Some(value)))).collect();
    text.join(", ")
}

impl History {
    fn read(&mut self, path: &Path, id: &str, device: &str) -> io::Result<()> {
        let file = File::open(path)?;
        let lines: Box<dyn BufRead> = match path.extension().is_some_and(|extension| extension == "gz") {
            true => Box::new(BufReader::new(MultiGzDecoder::new(file))),
            false => Box::new(BufReader::new(file)),
        };
        for line in lines.lines() {
            let line = line?;
            // Most lines are irrelevant, so they are not parsed.
            let named = ["\"registered\"", "\"connected\"", "\"closed\""];
            let may_matter = line.contains(id) || named.iter().any(|event| line.contains(event));
            if !may_matter || self.lines.len() >= LINES_MAX {
                continue;
            }
            // A line that is being written may be incomplete.
            if let Ok(line) = serde_json::from_str(&line) {
                self.add(line, id, device);
            }
        }
        Ok(())
    }

    fn add(&mut self, line: Value, id: &str, device: &str) {
        let number = line["device"].as_u64();
        let has_number = line["event"] == "registered" || line["event"] == "connected";
        if has_number && line["device_id"] == device {
            self.numbers.extend(number);
        }
        let of_device = number.is_some_and(|number| self.numbers.contains(&number));
        if of_device || line["id"] == id {
            self.lines.push(line);
        }
    }

    /// What concerns this device; of its connections only the last before the notification and those after it. Without
    /// a list it is the notification's, or of devices that are unknown and so not this one.
    fn into_lines(self, id: &str) -> Vec<Value> {
        let Self { numbers, lines } = self;
        let concerns = |line: &Value| match line["devices"].as_array() {
            Some(devices) => {
                devices.iter().any(|device| device.as_u64().is_some_and(|device| numbers.contains(&device)))
            }
            None => true,
        };
        let mut lines: Vec<Value> = lines.into_iter().filter(concerns).collect();
        let at = |line: &Value| line["at"].as_str().unwrap_or_default().to_owned();
        lines.sort_by_key(at);
        let Some(first) = lines.iter().position(|line| line["id"] == id) else { return Vec::new() };
        let before = lines[..first].iter().rposition(|line| line["event"] == "connected");
        lines.split_off(before.unwrap_or(first))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_history_includes_the_previous_connection_and_only_this_device() {
        let (id, mut history) = ("01935b5a-0000-7a00-8000-000000000001", History::default());
        let connected = |at: &str, device: u64, name: &str| json!({"at": at, "event": "connected", "device": device, "device_id": name});
        let closed =
            |at: &str, device: u64| json!({"at": at, "event": "closed", "device": device, "reason": "drain"});
        let step = |at: &str, event: &str, devices: &[u64]| json!({"at": at, "event": event, "id": id, "devices": devices});
        for line in [
            connected("1", 7, "phone"),
            closed("2", 7),
            connected("3", 8, "other"),
            connected("4", 7, "phone"),
            json!({"at": "5", "event": "accepted", "id": id}),
            json!({"at": "5", "event": "dropped", "why": "unknown", "id": id, "count": 1, "devices": []}),
            step("6", "written", &[7, 8]),
            step("7", "acked", &[8]),
            closed("8", 8),
            closed("9", 7),
        ] {
            history.add(line, id, "phone");
        }
        assert_eq!(times(history, id), ["4", "5", "6", "9"]);
    }

    fn times(history: History, id: &str) -> Vec<String> {
        history.into_lines(id).iter().map(|line| line["at"].as_str().expect("at").to_owned()).collect()
    }

    #[test]
    fn a_device_that_never_connected_is_found_by_its_registration() {
        let (id, mut history) = ("01935b5a-0000-7a00-8000-000000000001", History::default());
        for line in [
            json!({"at": "1", "event": "registered", "device": 7, "device_id": "phone", "service": "apns"}),
            json!({"at": "2", "event": "registered", "device": 8, "device_id": "other"}),
            json!({"at": "3", "event": "accepted", "id": id}),
            json!({"at": "4", "event": "push_sent", "id": id, "count": 1, "devices": [7]}),
            json!({"at": "5", "event": "push_sent", "id": id, "count": 1, "devices": [8]}),
        ] {
            history.add(line, id, "phone");
        }
        assert_eq!(times(history, id), ["3", "4"]);
    }
}

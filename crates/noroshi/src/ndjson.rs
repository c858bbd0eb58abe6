//! Sends files with one JSON object per line in batches: reads lines, splits them into requests, and pairs each result with its
//! input line. Used by `send --file` and `import devices`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use http::Method;
use noroshi_types::limits;
use serde_json::Value;

use crate::client::Client;
use crate::failure::Failure;
use crate::output;

/// One line of the input, numbered from 1.
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
}

/// A line and its result.
pub(crate) struct Answer {
    pub(crate) line: Line,
    pub(crate) result: Value,
}

impl Answer {
    /// Why the line was rejected. None if it was accepted.
    pub(crate) fn error(&self) -> Option<String> {
        let error = self.result.get("error").unwrap_or(&self.result);
        let refused = self.result.get("error").is_some()
            || self.result.get("status").and_then(Value::as_u64).is_some_and(|status| status >= 400);
        let detail =
            ["detail", "message", "title", "code"].iter().find_map(|name| error.get(*name)?.as_str());
        refused.then(|| detail.or(error.as_str()).unwrap_or("refused").to_owned())
    }
}

/// Reads non-blank lines. `-`: standard input.
pub(crate) struct Lines {
    input: Box<dyn BufRead>,
    number: usize,
    name: String,
}

/// Maximum size of a batch request; the server's default limit is 16 MiB.
const BATCH_BYTES: usize = 8 << 20;

/// Longer lines are rejected. All objects of the API are much shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let input: Box<dyn BufRead> = match name.as_str() {
            "-" => Box::new(BufReader::new(std::io::stdin())),
            _ => {
                let file =
                    std::fs::File::open(path).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
                Box::new(BufReader::new(file))
            }
        };
        Ok(Self { input, number: 0, name })
    }

    /// Up to `max` lines and about `bytes_max` bytes. Empty at the end.
    pub(crate) fn batch(&mut self, max: usize, bytes_max: usize) -> Result<Vec<Line>, Failure> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < max && bytes < bytes_max {
            let Some(line) = self.next()? else { break };
            bytes += line.text.len();
            lines.push(line);
        }
        Ok(lines)
    }

    fn next(&mut self) -> Result<Option<Line>, Failure> {
        loop {
            let mut text = String::new();
            let failed = |error: &dyn std::fmt::Display| {
                Failure::failed(format!("{}:{}: {error}", self.name, self.number + 1))
            };
            let read = self
                .input
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_line(&mut text)
                .map_err(|error| failed(&error))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == LINE_BYTES_MAX && !text.ends_with('\n') {
                return Err(failed(&"the line is longer than 1 MiB"));
            }
            self.number += 1;
            let text = text.trim();
            if !text.is_empty() {
                return Ok(Some(Line { number: self.number, text: text.to_owned() }));
            }
        }
    }
}

/// Sends a file whose lines have results in the same order, each of which `handle` gets. Returns how many lines were
/// accepted and rejected; prints why to standard error.
pub(crate) async fn send(
    client: &Client,
    path: &str,
    file: &Path,
    handle: impl Fn(&Value) -> Result<(), Failure>,
) -> Result<(u64, u64), Failure> {
    let mut lines = Lines::open(file)?;
    let (mut accepted, mut refused) = (0, 0);
    loop {
        let batch = lines.batch(limits::BATCH_LINES_MAX, BATCH_BYTES)?;
        if batch.is_empty() {
            return Ok((accepted, refused));
        }
        for answer in exchange(client, path, batch).await? {
            handle(&answer.result)?;
            match answer.error() {
                None => accepted += 1,
                Some(error) => {
                    refused += 1;
                    eprintln!("line {}: {}", answer.line.number, output::clean(&error));
                }
            }
        }
    }
}

/// Sends lines and pairs them with the results, which are in the same order.
pub(crate) async fn exchange(client: &Client, path: &str, lines: Vec<Line>) -> Result<Vec<Answer>, Failure> {
    let body = lines.iter().fold(String::new(), |body, line| body + &line.text + "\n");
    let text = client.text(Method::POST, path, Some(("application/x-ndjson", body)), &[]).await?;
    let results: Result<Vec<Value>, _> =
        text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect();
    let results =
        results.map_err(|error| Failure::failed(format!("the server's response is not NDJSON: {error}")))?;
    if results.len() != lines.len() {
        let (sent, got) = (lines.len(), results.len());
        return Err(Failure::failed(format!("sent {sent} lines, but received {got} results")));
    }
    Ok(lines.into_iter().zip(results).map(|(line, result)| Answer { line, result }).collect())
}

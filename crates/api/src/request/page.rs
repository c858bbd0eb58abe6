//! Pages of lists, and the lines of batches.

use noroshi_types::limits;
use serde::Deserialize;

use crate::error::{Code, Problem};

/// Entries of a page, if the request names no number.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1_000;

pub fn page_limit(limit: Option<usize>) -> Result<usize, Problem> {
    page_limit_of(limit, PAGE_DEFAULT, PAGE_MAX)
}

/// The limit of a list with its own bounds.
pub(crate) fn page_limit_of(limit: Option<usize>, default: usize, max: usize) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(default);
    let is_valid = (1..=max).contains(&limit);
    is_valid
        .then_some(limit)
        .ok_or_else(|| Problem::parameter("limit", format!("a page has 1 to {max} entries")))
}

/// The parameters of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

impl Page {
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        page_limit(self.limit)
    }

    /// None: the first page.
    pub(crate) fn after(self) -> Option<String> {
        not_first(self.after)
    }
}

/// An empty `after` is the first page, which suits scripts.
pub(crate) fn not_first(after: Option<String>) -> Option<String> {
    after.filter(|after| !after.is_empty())
}

/// The position of the next page, if this one is full.
pub(crate) fn next<T>(found: &[T], limit: usize, position: impl Fn(&T) -> String) -> Option<String> {
    found.last().filter(|_| found.len() == limit).map(position)
}

/// `after` is not a position of this list.
pub(crate) fn not_a_position() -> Problem {
    Problem::parameter("after", "must be the `next` of an earlier page")
}

/// The lines of a batch. A line break at the very end does not start another line.
pub fn lines(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    if body.is_empty() {
        return Err(Problem::new(Code::InvalidJson, "the batch has no lines"));
    }
    let count = body.split(|byte| *byte == b'\n').count();
    if count > limits::BATCH_LINES_MAX {
        let detail = format!("a batch has at most {} lines, got {count}", limits::BATCH_LINES_MAX);
        return Err(Problem::new(Code::TooManyLines, detail));
    }
    Ok(body.split(|byte| *byte == b'\n').collect())
}

//! Parameters of a drain (`PUT /v1/drain`).

use std::time::Duration;

use serde::Deserialize;

use crate::error::Problem;
use crate::json::{self, Span};

/// As for `gateway.drain.rate`: more than the devices of a node.
const RATE_MAX: u64 = 10_000_000;
/// A device that waits longer counts as lost.
const SPREAD_MAX: Duration = Duration::from_secs(3_600);
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Absent values come from the configuration, except the deadline: absent means none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainRequest {
    pub rate_per_second: Option<u32>,
    pub spread: Option<Duration>,
    pub deadline: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainBody {
    rate: Option<u64>,
    spread: Option<Span>,
    deadline: Option<Span>,
}

/// Parses the parameters. An empty body has none.
pub fn drain(bytes: &[u8]) -> Result<DrainRequest, Problem> {
    if bytes.is_empty() {
        return Ok(DrainRequest::default());
    }
    let body: DrainBody = json::parse(bytes)?;
    Ok(DrainRequest {
        rate_per_second: body.rate.map(rate).transpose()?,
        spread: at_most("spread", SPREAD_MAX, "1h", body.spread)?,
        deadline: at_most("deadline", DEADLINE_MAX, "24h", body.deadline)?,
    })
}

fn rate(rate: u64) -> Result<u32, Problem> {
    let wrong =
        || Problem::field("rate", format!("must be 1 to {RATE_MAX} connections per second, got {rate}"));
    match rate {
        1..=RATE_MAX => u32::try_from(rate).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn at_most(
    field: &str,
    max: Duration,
    shown: &str,
    given: Option<Span>,
) -> Result<Option<Duration>, Problem> {
    match given {
        Some(Span(duration)) if duration > max => {
            Err(Problem::field(field, format!("must be at most \"{shown}\"")))
        }
        given => Ok(given.map(|Span(duration)| duration)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_parameters_are_parsed() {
        assert_eq!(drain(b""), Ok(DrainRequest::default()));
        assert_eq!(drain(b"{}"), Ok(DrainRequest::default()));
        let request = DrainRequest {
            rate_per_second: Some(500),
            spread: Some(Duration::from_millis(250)),
            deadline: Some(Duration::from_secs(600)),
        };
        assert_eq!(drain(br#"{"rate": 500, "spread": "250ms", "deadline": "10m"}"#), Ok(request));
        assert_eq!(drain(br#"{"deadline": 0}"#).map(|request| request.deadline), Ok(Some(Duration::ZERO)));
    }

    #[test]
    fn invalid_parameters_are_rejected_by_field() {
        for (body, field) in [
            (r#"{"rate": 0}"#, "rate"),
            (r#"{"rate": -1}"#, "rate"),
            (r#"{"rate": 1.5}"#, "rate"),
            (r#"{"rate": 10000001}"#, "rate"),
            (r#"{"rate": 18446744073709551615}"#, "rate"),
            (r#"{"rate": "fast"}"#, "rate"),
            (r#"{"spread": "2h"}"#, "spread"),
            (r#"{"spread": -1}"#, "spread"),
            (r#"{"deadline": "25h"}"#, "deadline"),
            (r#"{"deadline": "soon"}"#, "deadline"),
            (r#"{"rates": 1}"#, "rates"),
        ] {
            let problem = drain(body.as_bytes()).expect_err(body);
            assert_eq!(problem.field_path(), Some(field), "{body}");
        }
        assert!(drain(b"[]").is_err() && drain(b"{").is_err());
    }
}

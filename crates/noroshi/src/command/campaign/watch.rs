//! `noroshi campaign watch`: the progress of a campaign: on a terminal as a bar with rate, remaining time, reasons and latencies,
//! otherwise as periodic lines.

use std::process::ExitCode;
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::time::Instant;

use super::{PATH, print};
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::output::{self, entries, number, text};

pub(super) const EXIT_CODES: &str = "\
Watching ends with the campaign: exit code 0 if it completed, 1 if it was aborted. Devices that a push service \
rejected are reported, but only a failure with --strict. With --json, the campaign is printed once, when it ends.";

/// Poll interval.
const POLL: Duration = Duration::from_millis(500);
/// Interval of progress lines without a terminal.
const REMARK: Duration = Duration::from_secs(5);
/// The template of a bar without a total.
const COUNT: &str = "{spinner} {human_pos}  {msg}";
/// Number of reasons shown. `campaign show` prints all.
const REASONS_SHOWN: usize = 8;

#[derive(Debug, clap::Args)]
pub(super) struct Strictness {
    /// Exit with 1 if any device could not be reached
    #[arg(long)]
    pub(super) strict: bool,
}

/// Polls until the campaign ends, and prints its final state.
pub(super) async fn watch(
    client: &Client,
    id: &str,
    format: output::Format,
    strictness: &Strictness,
) -> Result<ExitCode, Failure> {
    let path = format!("{PATH}/{}", escape(id));
    let bar = format.progress(None, COUNT);
    let (mut said, mut state) = (None::<Instant>, String::new());
    let campaign = loop {
        let campaign = fetch(client, &path).await?;
        let now = text(&campaign, "state").to_owned();
        if matches!(now.as_str(), "done" | "aborted") {
            break campaign;
        }
        show(&bar, &campaign);
        let due = now != state || said.is_none_or(|said| said.elapsed() >= REMARK);
        if bar.is_hidden() && !format.json && due {
            said = Some(Instant::now());
            eprintln!("{}", sentence(&campaign));
        }
        state = now;
        tokio::time::sleep(POLL).await;
    };
    bar.finish_and_clear();
    print(&campaign, format)?;
    let failed =
        text(&campaign, "state") == "aborted" || strictness.strict && number(&campaign, "errors") > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Retries while a node restarts or is busy.
async fn fetch(client: &Client, path: &str) -> Result<Value, Failure> {
    const TRIES: u32 = 60;
    for tried in 0.. {
        match client.get(path).await {
            Err(Failure::Unreachable { .. } | Failure::Answered { status: 500.., .. }) if tried < TRIES => {
                tokio::time::sleep(POLL).await;
            }
            answer => return answer,
        }
    }
    Err(Failure::failed("the server did not respond"))
}

/// A bar if the total is known, otherwise a count.
fn show(bar: &ProgressBar, campaign: &Value) {
    let template = match campaign.get("total").and_then(Value::as_u64) {
        Some(total) => {
            bar.set_length(total);
            "{bar:40} {percent:>3}%  {human_pos}/{human_len}  {msg}"
        }
        None => COUNT,
    };
    // The templates are valid constants; the plain bar would do as well.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_position(number(campaign, "done"));
    bar.set_message(format!("{}{}", pace(campaign), reasons(campaign)));
    bar.tick();
}

/// `running, 4,000 per second, 2 minutes left, p50 310 ms, p99 1,480 ms`
fn pace(campaign: &Value) -> String {
    let mut parts = vec![output::clean(text(campaign, "state"))];
    let rate = campaign.get("rate_per_second").and_then(Value::as_f64).unwrap_or(0.0);
    if rate > 0.0 {
        // A rate is not negative and much lower than u64::MAX.
        parts.push(format!("{} per second", HumanCount(rate.round() as u64)));
    }
    if let Some(eta) = campaign.get("eta_s").and_then(Value::as_u64) {
        parts.push(format!("{} left", HumanDuration(Duration::from_secs(eta))));
    }
    for (name, field) in [("p50", "p50_ms"), ("p99", "p99_ms")] {
        let latency = campaign.get("latency").and_then(|latency| latency.get(field)).and_then(Value::as_u64);
        parts.extend(latency.map(|latency| format!("{name} {} ms", HumanCount(latency))));
    }
    parts.join(", ")
}

/// One line each, most frequent first.
fn reasons(campaign: &Value) -> String {
    let reasons = entries(campaign, "reasons");
    let line = |one: &Value| {
        let reason = one.get("reason").and_then(Value::as_str).map(output::clean).unwrap_or_default();
        let count = HumanCount(number(one, "count")).to_string();
        format!("\n  {count:>12}  {} {reason}", output::clean(text(one, "outcome"))).trim_end().to_owned()
    };
    let mut lines: String = reasons.iter().take(REASONS_SHOWN).map(line).collect();
    if reasons.len() > REASONS_SHOWN {
        lines += &format!("\n  … and {} more", reasons.len() - REASONS_SHOWN);
    }
    lines
}

/// `12,000 of 1,000,000 done: running, 4,000 per second; pushed 11,990, push_refused BadDeviceToken 10`
fn sentence(campaign: &Value) -> String {
    let done = HumanCount(number(campaign, "done"));
    let of = campaign.get("total").and_then(Value::as_u64).map(|total| format!(" of {}", HumanCount(total)));
    let reasons = entries(campaign, "reasons");
    let part = |one: &Value| {
        let reason =
            one.get("reason").and_then(Value::as_str).map(|reason| format!(" {}", output::clean(reason)));
        let outcome = output::clean(text(one, "outcome"));
        format!("{outcome}{} {}", reason.unwrap_or_default(), HumanCount(number(one, "count")))
    };
    let parts: Vec<String> = reasons.iter().take(REASONS_SHOWN).map(part).collect();
    let reasons = if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) };
    format!("{done}{} done: {}{reasons}", of.unwrap_or_default(), pace(campaign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn progress_is_formatted_as_one_line() {
        let campaign = json!({
            "state": "running", "done": 12_000, "total": 1_000_000, "rate_per_second": 3_999.6, "eta_s": 247,
            "latency": {"p50_ms": 310, "p99_ms": 1_480},
            "reasons": [{"outcome": "pushed", "reason": null, "count": 11_990},
                {"outcome": "push_refused", "reason": "BadDeviceToken", "count": 10}],
        });
        assert_eq!(
            sentence(&campaign),
            "12,000 of 1,000,000 done: running, 4,000 per second, 4 minutes left, p50 310 ms, p99 1,480 ms; \
             pushed 11,990, push_refused BadDeviceToken 10"
        );
        let young = json!({"state": "scheduled", "done": 0, "total": null, "rate_per_second": 0.0,
            "eta_s": null, "latency": {"p50_ms": null, "p99_ms": null}, "reasons": []});
        assert_eq!(sentence(&young), "0 done: scheduled");
    }

    #[test]
    fn reasons_are_listed_one_per_line_up_to_a_limit() {
        let many: Vec<Value> = (0..10)
            .map(|i| json!({"outcome": "push_refused", "reason": format!("R{i}"), "count": 10 - i}))
            .collect();
        let shown = reasons(&json!({"reasons": many}));
        assert_eq!(shown.lines().count(), 1 + REASONS_SHOWN + 1);
        assert!(shown.ends_with("… and 2 more"), "{shown}");
        assert_eq!(reasons(&json!({})), "");
    }
}

//! When a campaign sends, and how fast: its local time, quiet hours, the measured rate beside the wanted one, and what waits
//! for its time.

use serde_json::Value;

use crate::failure::Failure;
use crate::output;

/// The campaign with a row for each of these.
pub(super) fn with_rows(campaign: &Value) -> Value {
    let mut campaign = campaign.clone();
    for (name, value) in rows(&campaign) {
        campaign[name] = value.into();
    }
    campaign
}

/// Prints the batches that wait for their time as a table.
pub(super) fn print_steps(campaign: &Value) -> Result<(), Failure> {
    let steps = output::entries(campaign, "steps");
    if steps.is_empty() {
        return Ok(());
    }
    output::line("\nwaiting for their time:")?;
    let row = |step: &Value| vec![output::cell(step.get("due_at")), output::cell(step.get("batches"))];
    output::table(&["due_at", "batches"], steps.iter().map(row).collect())
}

fn rows(campaign: &Value) -> Vec<(&'static str, String)> {
    let schedule = &campaign["schedule"];
    let mut rows = Vec::new();
    if let Some(time) = schedule["local_time"].as_str() {
        rows.push(("local_time", format!("{} on each device's clock", output::clean(time))));
    }
    let hours = &schedule["quiet_hours"];
    if let (Some(from), Some(to)) = (hours["from"].as_str(), hours["to"].as_str()) {
        rows.push(("quiet_hours", format!("{} to {}", output::clean(from), output::clean(to))));
    }
    let measured = output::cell(campaign.get("rate_per_second"));
    rows.push((
        "rate_per_second",
        match schedule["rate_per_second"].as_u64() {
            Some(wanted) => format!("{measured} (at most {wanted})"),
            None => measured,
        },
    ));
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_measured_rate_is_beside_the_wanted_one() {
        let campaign = json!({"rate_per_second": 3_990.5, "schedule": {"local_time": "09:00",
            "quiet_hours": {"from": "22:00", "to": "07:00"}, "rate_per_second": 4_000, "batch_size": 500}});
        let expected = [
            ("local_time", "09:00 on each device's clock"),
            ("quiet_hours", "22:00 to 07:00"),
            ("rate_per_second", "3990.5 (at most 4000)"),
        ];
        assert_eq!(rows(&campaign), expected.map(|(name, value)| (name, value.to_owned())));
        let plain = json!({"rate_per_second": 0.0, "schedule": {"local_time": null, "quiet_hours": null,
            "rate_per_second": null, "batch_size": 500}});
        assert_eq!(rows(&plain), [("rate_per_second", "0.0".to_owned())]);
        assert_eq!(
            rows(&json!({"rate_per_second": 2.0})),
            [("rate_per_second", "2.0".to_owned())],
            "an older node"
        );
    }
}

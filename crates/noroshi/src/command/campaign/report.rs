//! Results of the variants of a campaign's experiment, as a table: the outcomes of each, and the difference from the control. Rates
//! are shares of the targeted devices with 95 % intervals, computed by the node.

use serde_json::Value;

use crate::failure::Failure;
use crate::output;

const COLUMNS: [&str; 6] = ["variant", "targeted", "delivered", "vs. control", "opened", "vs. control"];

/// Prints nothing for a campaign without variants.
pub(super) fn print(campaign: &Value) -> Result<(), Failure> {
    let Some(experiment) = campaign.get("experiment").filter(|experiment| experiment.is_object()) else {
        return Ok(());
    };
    let word = |name: &str| output::cell(experiment.get(name));
    output::line(format_args!(
        "\nexperiment {}, compared with {}; of those targeted, with 95 % intervals:",
        word("name"),
        word("control")
    ))?;
    let variants = output::entries(experiment, "variants");
    output::table(&COLUMNS, variants.iter().map(row).collect())
}

fn row(variant: &Value) -> Vec<String> {
    let targeted = output::cell(variant.get("targeted"));
    if variant["held_out"] == true {
        let nothing = || "-".to_owned();
        let held_out = "held out".to_owned();
        return vec![output::cell(variant.get("name")), targeted, held_out, nothing(), nothing(), nothing()];
    }
    let against = |what: &str| difference(&variant["against_control"][what]);
    vec![
        output::cell(variant.get("name")),
        targeted,
        share(&variant["delivered"]),
        against("delivered"),
        share(&variant["opened"]),
        against("opened"),
    ]
}

/// `56 (80.0 %, 69.2 to 87.7)`
fn share(share: &Value) -> String {
    let count = output::cell(share.get("count"));
    match (share["rate"].as_f64(), share["low"].as_f64(), share["high"].as_f64()) {
        (Some(rate), Some(low), Some(high)) => {
            format!("{count} ({:.1} %, {:.1} to {:.1})", rate * 100.0, low * 100.0, high * 100.0)
        }
        _ => count,
    }
}

/// `+20.0 (+5.2 to +33.4), p 0.0080` in percentage points; marks insignificant differences.
fn difference(difference: &Value) -> String {
    let part = |name: &str| difference[name].as_f64();
    let (Some(value), Some(low), Some(high), Some(p)) =
        (part("difference"), part("low"), part("high"), part("p_value"))
    else {
        return "-".to_owned();
    };
    let p = if p < 0.000_1 { "< 0.0001".to_owned() } else { format!("{p:.4}") };
    let of = format!("{:+.1} ({:+.1} to {:+.1}), p {p}", value * 100.0, low * 100.0, high * 100.0);
    match difference["distinguishable"] == true {
        true => of,
        false => format!("not significant: {of}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_variant_is_a_row() {
        let share = |count: u64| json!({"count": count, "rate": 0.8, "low": 0.692, "high": 0.8772});
        let differs = |yes: bool| json!({"difference": 0.2, "low": 0.0524, "high": 0.3339, "p_value": 0.008045, "distinguishable": yes});
        let variant = json!({"name": "green", "held_out": false, "targeted": 70, "delivered": share(56),
            "opened": share(56), "against_control": {"delivered": differs(false), "opened": differs(true)}});
        assert_eq!(
            row(&variant),
            [
                "green",
                "70",
                "56 (80.0 %, 69.2 to 87.7)",
                "not significant: +20.0 (+5.2 to +33.4), p 0.0080",
                "56 (80.0 %, 69.2 to 87.7)",
                "+20.0 (+5.2 to +33.4), p 0.0080",
            ]
        );
        let mut certain = differs(true);
        certain["p_value"] = json!(0.0);
        assert_eq!(difference(&certain), "+20.0 (+5.2 to +33.4), p < 0.0001");
        let control = json!({"name": "a", "held_out": false, "targeted": 0, "against_control": null,
            "delivered": {"count": 0, "rate": null}, "opened": {"count": 0, "rate": null}});
        assert_eq!(row(&control), ["a", "0", "0", "-", "0", "-"]);
        let none = json!({"name": "none", "held_out": true, "targeted": 9});
        assert_eq!(row(&none), ["none", "9", "held out", "-", "-", "-"]);
    }
}

//! Experiments (`PUT /v1/apps/{app}/experiments/{name}`), and reports of shown variants. The audience is parsed as for
//! campaigns; delivery's `Experiment` checks rules that span fields.

use noroshi_delivery::definition::experiment::DESCRIPTION_BYTES_MAX;
use noroshi_delivery::definition::{Experiment, ExperimentVariant};
use noroshi_types::{Condition, DeviceId, Label, UserId, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::campaign::audience::{FilterBody, filter};
use super::campaign::{StartAt, placed};
use super::notification::carried;
use crate::error::Problem;
use crate::json::{self, Bounded, Line, Text, TextMap};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    description: Option<Text<Line<DESCRIPTION_BYTES_MAX>>>,
    #[serde(borrow)]
    variants: Bounded<VariantBody<'a>, { limits::VARIANTS_MAX }>,
    starts_at: Option<Text<StartAt>>,
    ends_at: Option<Text<StartAt>>,
    audience: Option<AudienceBody>,
    overrides: Option<OverridesBody>,
    killed: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantBody<'a> {
    name: Text<Label>,
    weight: u32,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AudienceBody {
    condition: Option<Text<Condition>>,
    devices: Option<FilterBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverridesBody {
    users: Option<TextMap<UserId, Text<Label>, { limits::OVERRIDES_MAX }>>,
    devices: Option<TextMap<DeviceId, Text<Label>, { limits::OVERRIDES_MAX }>>,
}

/// Parses one experiment.
pub fn experiment(bytes: &[u8]) -> Result<Experiment, Problem> {
    let body: Body<'_> = json::parse(bytes)?;
    let mut variants = Vec::new();
    for (at, variant) in body.variants.all("variants")?.into_iter().enumerate() {
        let field = format!("variants[{at}].data");
        let data = variant.data.map(|raw| carried(raw, &field, limits::VARIANT_DATA_BYTES_MAX));
        let (name, weight) = (variant.name.0, variant.weight);
        variants.push(ExperimentVariant { name, weight, data: data.transpose()? });
    }
    let audience = body.audience.unwrap_or(AudienceBody { condition: None, devices: None });
    let overrides = body.overrides.unwrap_or(OverridesBody { users: None, devices: None });
    let experiment = Experiment {
        description: body.description.map(|text| text.0.0),
        variants,
        starts_at: body.starts_at.map(|at| at.0.0),
        ends_at: body.ends_at.map(|at| at.0.0),
        condition: audience.condition.map(|condition| condition.0),
        filter: audience.devices.map(filter).transpose()?.unwrap_or_default(),
        users: overrides.users.map(|users| named(users.0)).unwrap_or_default(),
        devices: overrides.devices.map(|devices| named(devices.0)).unwrap_or_default(),
        killed: body.killed.unwrap_or(false),
    };
    experiment.check().map_err(placed)
}

fn named<K: Ord>(names: std::collections::BTreeMap<K, Text<Label>>) -> std::collections::BTreeMap<K, Label> {
    names.into_iter().map(|(key, name)| (key, name.0)).collect()
}

/// `{"killed": true}`
pub fn killing(bytes: &[u8]) -> Result<bool, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        killed: bool,
    }
    Ok(json::parse::<Body>(bytes)?.killed)
}

/// `{"experiments": […]}`: the shown experiments, without duplicates.
pub fn exposures(bytes: &[u8]) -> Result<Vec<Label>, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        experiments: Bounded<Text<Label>, { limits::EXPOSURES_MAX }>,
    }
    let names = json::parse::<Body>(bytes)?.experiments.all("experiments")?;
    Ok(super::each_once(names.into_iter().map(|name| name.0).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn a_complete_experiment_is_parsed() {
        let body = br#"{"description": "colour", "variants": [{"name": "a", "weight": 1, "data": {"x": 1}},
            {"name": "b", "weight": 3}], "starts_at": "2026-01-15T09:30:00Z", "ends_at": "2026-02-15T09:30:00Z",
            "audience": {"condition": "'news' in topics", "devices": {"platforms": ["ios"]}},
            "overrides": {"users": {"u1": "b"}, "devices": {"d1": "a"}}, "killed": false}"#;
        let read = experiment(body).expect("a valid experiment");
        assert_eq!((read.variants.len(), read.variants[1].weight, read.killed), (2, 3, false));
        assert_eq!(read.variants[0].data.as_ref().map(noroshi_types::JsonText::as_str), Some(r#"{"x": 1}"#));
        assert_eq!(read.ends_at.map(|at| at.to_string()).as_deref(), Some("2026-02-15T09:30:00.000Z"));
        assert!(read.users.len() == 1 && read.devices.len() == 1 && read.filter.platforms == ["ios"]);
    }

    #[test]
    fn errors_name_the_field() {
        let check = |body: &str, code: Code, field: Option<&str>| {
            let refused = experiment(body.as_bytes()).expect_err(body);
            assert_eq!((refused.code(), refused.field_path()), (code, field), "{body}");
        };
        check("{}", Code::InvalidField, Some("variants"));
        check(r#"{"variants": []}"#, Code::InvalidField, Some("variants"));
        check(r#"{"variants": [{"name": "A", "weight": 1}]}"#, Code::InvalidField, Some("variants[0].name"));
        check(
            r#"{"variants": [{"name": "a", "weight": -1}]}"#,
            Code::InvalidField,
            Some("variants[0].weight"),
        );
        let one = r#""variants": [{"name": "a", "weight": 1}]"#;
        check(&format!("{{{one}, \"colour\": 1}}"), Code::UnknownField, Some("colour"));
        let nobody = format!(r#"{{{one}, "overrides": {{"users": {{"u": "b"}}}}}}"#);
        check(&nobody, Code::InvalidField, Some("overrides"));
        let empty = format!(r#"{{{one}, "audience": {{"devices": {{"platforms": []}}}}}}"#);
        check(&empty, Code::InvalidField, Some("audience.devices.platforms"));
        let large =
            format!(r#"{{"variants": [{{"name": "a", "weight": 1, "data": "{}"}}]}}"#, "x".repeat(4_096));
        check(&large, Code::DataTooLarge, Some("variants[0].data"));
        assert_eq!(exposures(br#"{"experiments": ["a", "b", "a"]}"#).map(|names| names.len()), Ok(2));
        assert!(killing(b"{}").is_err() && killing(br#"{"killed": true}"#) == Ok(true));
    }
}

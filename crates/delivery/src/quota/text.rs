//! Overrides as the store keeps them with the app: a JSON object of names and limits. `"unlimited"` removes a default
//! limit of the node.

use std::collections::BTreeMap;

use noroshi_types::Invalid;
use noroshi_types::quota::{Limit, Quota, Quotas};
use serde_json::Value;

const UNLIMITED: &str = "unlimited";

/// Parses what [`to_text`] wrote, or what an operator enters.
pub fn parse(text: &str) -> Result<Quotas, Invalid> {
    let fields: BTreeMap<String, Value> = serde_json::from_str(text)
        .map_err(|error| Invalid::new(format!("quotas are a JSON object of limits: {error}")))?;
    let mut quotas = Quotas::default();
    for (name, value) in fields {
        let quota = Quota::named(&name).ok_or_else(|| Invalid::new(format!("there is no quota {name:?}")))?;
        let limit = limit(quota, &value)?;
        quotas.set(quota, Some(limit));
    }
    Ok(quotas)
}

/// Parses one limit.
pub fn limit(quota: Quota, value: &Value) -> Result<Limit, Invalid> {
    match value {
        Value::String(text) if text == UNLIMITED => Ok(Limit::Unlimited),
        value => match value.as_u64() {
            Some(most) => Ok(Limit::Most(quota.check(most)?)),
            None => {
                let most = quota.limit_max();
                Err(Invalid::new(format!("a limit is a whole number from 0 to {most}, or \"{UNLIMITED}\"")))
            }
        },
    }
}

/// None if nothing is overridden.
pub fn to_text(quotas: &Quotas) -> Option<String> {
    if quotas.is_empty() {
        return None;
    }
    let field = |(quota, limit): (Quota, Limit)| {
        let value = match limit {
            Limit::Unlimited => UNLIMITED.into(),
            Limit::Most(most) => most.into(),
        };
        (quota.as_str().to_owned(), value)
    };
    Some(Value::Object(quotas.iter().map(field).collect()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_read_back() {
        let text = r#"{"connections":5,"devices":"unlimited","publishes_per_second":0}"#;
        let quotas = parse(text).expect("good");
        assert_eq!(quotas.get(Quota::Connections), Some(Limit::Most(5)));
        assert_eq!(quotas.get(Quota::Devices), Some(Limit::Unlimited));
        assert_eq!(to_text(&quotas).as_deref(), Some(text));
        assert_eq!(to_text(&parse("{}").expect("good")), None);
    }

    #[test]
    fn values_that_are_no_limits_are_refused() {
        for bad in [
            "",
            "[]",
            r#"{"conections":1}"#,
            r#"{"connections":-1}"#,
            r#"{"connections":1.5}"#,
            r#"{"connections":"many"}"#,
            r#"{"connections":null}"#,
            r#"{"connections":9007199254740992}"#,
            r#"{"publishes_per_second":1000000001}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

//! Quotas of an app: an object of names and limits.

use std::collections::BTreeMap;

use noroshi_types::quota::{Limit, Quota, Quotas};
use serde_json::Value;

use crate::error::{Code, Problem};
use crate::json;

/// Parses all overrides of an app.
pub fn quotas(bytes: &[u8]) -> Result<Quotas, Problem> {
    let mut quotas = Quotas::default();
    for (quota, limit) in fields(bytes)? {
        // Replaces all limits, so null means unlimited.
        let limit = limit.map_or_else(|| self::limit(quota, &Value::Null), Ok)?;
        quotas.set(quota, Some(limit));
    }
    Ok(quotas)
}

/// Parses a change of some limits. None restores the node's default.
pub fn quota_changes(bytes: &[u8]) -> Result<Vec<(Quota, Option<Limit>)>, Problem> {
    fields(bytes)
}

fn fields(bytes: &[u8]) -> Result<Vec<(Quota, Option<Limit>)>, Problem> {
    let fields: BTreeMap<String, Value> = json::parse(bytes)?;
    let field = |(name, value): (String, Value)| {
        let Some(quota) = Quota::named(&name) else {
            let names = Quota::ALL.map(Quota::as_str).join(", ");
            return Err(Problem::new(Code::UnknownField, format!("the quotas are {names}")).at(name));
        };
        let limit = match &value {
            Value::Null => None,
            value => Some(limit(quota, value)?),
        };
        Ok((quota, limit))
    };
    fields.into_iter().map(field).collect()
}

fn limit(quota: Quota, value: &Value) -> Result<Limit, Problem> {
    noroshi_delivery::quota::limit(quota, value).map_err(|invalid| Problem::field(quota.as_str(), invalid.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_unlimited() {
        let read = quotas(br#"{"devices": 5, "topics": "unlimited"}"#).expect("good");
        assert_eq!(read.get(Quota::Devices), Some(Limit::Most(5)));
        assert_eq!(read.get(Quota::Topics), Some(Limit::Unlimited));
        let changes = quota_changes(br#"{"devices": null}"#).expect("good");
        assert_eq!(changes, [(Quota::Devices, None)]);
    }

    #[test]
    fn invalid_limits_are_rejected_by_field() {
        let check = |body: &str, code: Code, field: &str| {
            let problem = quotas(body.as_bytes()).expect_err(body);
            assert_eq!((problem.code(), problem.field_path()), (code, Some(field)), "{body}");
        };
        check(r#"{"device": 5}"#, Code::UnknownField, "device");
        for bad in ["-1", "1.5", "\"5\"", "null", "true", "9007199254740992"] {
            check(&format!("{{\"devices\": {bad}}}"), Code::InvalidField, "devices");
        }
        check(r#"{"pushes_per_second": 1000000001}"#, Code::InvalidField, "pushes_per_second");
    }
}

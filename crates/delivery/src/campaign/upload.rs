//! The recipients of an uploaded audience: a user with variables, or with a message of its own.
//!
//! The API parses lines of `POST /v1/campaigns/{id}/recipients`; the store keeps each as JSON; `plan` renders it.

use std::collections::BTreeMap;

use noroshi_types::{Invalid, JsonText, UserId};
use serde::{Deserialize, Serialize};

use crate::campaign::spec::check_variables;
use crate::texts::json;

/// One line of `POST /v1/campaigns/{id}/recipients`.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub user: UserId,
    pub own: Own,
}

/// What only this user gets, serialized as the store keeps it. Empty: the campaign's message without changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Own {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", rename = "v")]
    pub variables: BTreeMap<String, String>,
    /// Sent without placeholders, instead of the texts of the campaign and its variants.
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none", rename = "n")]
    pub notification: Option<JsonText>,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none", rename = "d")]
    pub data: Option<JsonText>,
}

impl Own {
    /// Checks number and sizes of variables.
    pub fn check(self) -> Result<Self, Invalid> {
        check_variables(&self.variables)?;
        Ok(self)
    }

    pub fn to_json(&self) -> JsonText {
        JsonText::from_valid(serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned()))
    }

    /// Reads what [`Own::to_json`] wrote.
    pub fn from_json(json: &JsonText) -> Result<Self, Invalid> {
        serde_json::from_str(json.as_str())
            .map_err(|error| Invalid::new(format!("could not read a stored recipient: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let full = Own {
            variables: BTreeMap::from([("name".into(), "A\"na".into())]),
            notification: Some(JsonText::from_valid(r#"{"title": "x"}"#)),
            data: Some(JsonText::from_valid("null")),
        };
        for own in [full, Own::default()] {
            assert_eq!(Own::from_json(&own.to_json()), Ok(own));
        }
    }

    #[test]
    fn variables_are_bounded() {
        let own =
            |value: &str| Own { variables: BTreeMap::from([("a".into(), value.into())]), ..Own::default() };
        assert!(own("x").check().is_ok());
        assert!(own(&"x".repeat(1_025)).check().is_err());
    }
}

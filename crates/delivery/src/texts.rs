//! What a message says in one language: its `notification` and its `data`, as JSON that is stored as part of other JSON
//! and never parsed.
//!
//! Campaigns, the variants of experiments, and notices have such texts, one for each language. A part that is missing in
//! a language is taken from the whole message.

use std::collections::BTreeMap;

use noroshi_types::{Invalid, JsonText, limits};
use serde::{Deserialize, Serialize};

use crate::template::LOCALES_MAX;

/// Serialized as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Texts {
    /// Title, body and the like.
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    pub notification: Option<JsonText>,
    /// For the app's code.
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    pub data: Option<JsonText>,
}

impl Texts {
    /// Fills missing parts from `whole`.
    pub(crate) fn or(&self, whole: &Texts) -> Texts {
        let part =
            |own: &Option<JsonText>, whole: &Option<JsonText>| own.as_ref().or(whole.as_ref()).cloned();
        Texts {
            notification: part(&self.notification, &whole.notification),
            data: part(&self.data, &whole.data),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.notification.is_none() && self.data.is_none()
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &JsonText> {
        [&self.notification, &self.data].into_iter().flatten()
    }
}

/// Checks the number and the tags of languages.
pub(crate) fn check_locales(locales: &BTreeMap<String, Texts>) -> Result<(), Invalid> {
    if locales.len() > LOCALES_MAX {
        return Err(Invalid::new(format!("locales: at most {LOCALES_MAX}")));
    }
    match locales.keys().any(|tag| tag.is_empty() || tag.len() > limits::ATTRIBUTE_BYTES_MAX) {
        true => Err(Invalid::new("locales: a language tag such as \"ja\" or \"zh-Hant\"")),
        false => Ok(()),
    }
}

/// For `#[serde(with)]`: between [`JsonText`] and serde's `RawValue`.
pub(crate) mod json {
    use noroshi_types::JsonText;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::value::RawValue;

    pub(crate) fn serialize<S: Serializer>(text: &Option<JsonText>, to: S) -> Result<S::Ok, S::Error> {
        // A `JsonText` is always valid JSON.
        let raw = text.as_ref().and_then(|text| serde_json::from_str::<&RawValue>(text.as_str()).ok());
        raw.serialize(to)
    }

    /// Keeps an explicit `null`, which serde would read as an absent field.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(json: D) -> Result<Option<JsonText>, D::Error> {
        let raw = Box::<RawValue>::deserialize(json)?;
        Ok(Some(JsonText::from_valid(Box::<str>::from(raw).into_string())))
    }
}

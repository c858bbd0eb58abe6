//! JSON that is stored as part of other JSON and never parsed: between [`JsonText`] and serde's `RawValue`.
//!
//! Campaigns, experiments and notices store the texts of notifications this way.

use noroshi_types::JsonText;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// For `deserialize_with`: keeps an explicit `null`, which serde would read as an absent field.
pub(crate) fn present<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(json).map(Some)
}

pub(crate) fn raw(text: Option<&JsonText>) -> Option<Box<RawValue>> {
    // A `JsonText` is always valid JSON.
    RawValue::from_string(text?.as_str().to_owned()).ok()
}

pub(crate) fn text(raw: Option<Box<RawValue>>) -> Option<JsonText> {
    raw.map(|raw| JsonText::from_valid(Box::<str>::from(raw).into_string()))
}

//! What a campaign shows and carries in one language.

use noroshi_types::JsonText;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
}

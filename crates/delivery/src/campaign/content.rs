//! The content of a campaign in one language.
//!
//! Used for the campaign's own translations and for the messages of an experiment's variants. A part that is missing is
//! taken from the message that the content belongs to (`plan`).

use noroshi_types::JsonText;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
}

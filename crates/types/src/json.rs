//! A piece of JSON that is carried, not looked into.

use std::fmt;

use bytes::Bytes;

/// Valid JSON text, checked by whoever parsed the request it came in. It is copied once when it
/// is accepted and shared from then on: a fan-out to a million devices holds it once.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Bytes);

impl JsonText {
    /// `text` must be one valid JSON value: it is spliced into frames as it is.
    pub fn from_valid(text: impl Into<String>) -> Self {
        Self(Bytes::from(text.into()))
    }

    pub fn as_str(&self) -> &str {
        // Only built from a String and never cut.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

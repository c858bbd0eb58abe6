//! What a campaign has besides what is sent: who wrote and approved it, and which revision it is.

use noroshi_types::{JsonText, Timestamp};

/// What a new campaign has besides what is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDraft {
    /// For lists. Empty: the campaign has no name.
    pub name: String,
    pub start_at: Option<Timestamp>,
    /// The request as it was written. `None`: it cannot be changed later.
    pub definition: Option<JsonText>,
    /// Whether the request is complete and valid, so that the campaign can start.
    pub is_complete: bool,
    /// Who writes it: the address of a person, or `key:` and the name of an API key.
    pub by: String,
}

impl Default for NewDraft {
    fn default() -> Self {
        Self { name: String::new(), start_at: None, definition: None, is_complete: true, by: String::new() }
    }
}

/// What a campaign has besides what is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftState {
    /// From 1; each change of the request or of the recipients adds 1.
    pub revision: u64,
    pub is_complete: bool,
    /// Empty: an older program created it.
    pub created_by: String,
    pub edited_by: String,
    /// `None`: it was never changed.
    pub edited_at: Option<Timestamp>,
    /// Who approved this revision, and when.
    pub approved: Option<(String, Timestamp)>,
    /// Who created it or changed any of its revisions.
    pub authors: Vec<String>,
}

/// Who uploads recipients.
#[derive(Debug, Clone, Default)]
pub struct Uploader {
    pub by: String,
    /// A scheduled campaign gets no more recipients than this. `None`: any number.
    pub scheduled_max: Option<u64>,
}

//! The session core's answers to requests of a conversation.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{Message, NotificationId, Topic};

use super::archive::ArchivePage;
use super::error::{Refusal, StanzaError};

/// The answer to a [`Request`](super::Request).
#[derive(Debug)]
pub enum Answer {
    Done,
    /// Topics, each with whether the subscription is durable.
    Subscriptions(Vec<(Topic, bool)>),
    Items(Vec<Arc<Message>>),
    Published(NotificationId),
    /// XEP-0060 §4.1.
    Affiliation(&'static str),
    Archive(ArchivePage),
    /// The only child of the result.
    Content(Bytes),
    Refused(Refusal),
    /// An error condition and its XEP-0060 detail.
    Error(StanzaError, &'static str),
}

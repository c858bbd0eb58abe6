//! Why a request is rejected, as a stanza error condition (RFC 6120 §8.3.3).

use super::error::StanzaError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The device is not permitted.
    Forbidden,
    NotFound,
    NotSubscribed,
    TooManySubscriptions,
    TooBig,
    /// It already exists.
    Conflict,
    /// No recipient is available.
    Unavailable,
    Overloaded,
    Internal,
}

impl Refusal {
    /// The error condition and its XEP-0060 detail.
    pub(super) fn condition(self) -> (StanzaError, &'static str) {
        match self {
            Refusal::Forbidden => (StanzaError::Forbidden, ""),
            Refusal::NotFound => (StanzaError::ItemNotFound, ""),
            Refusal::NotSubscribed => (StanzaError::UnexpectedRequest, "not-subscribed"),
            Refusal::TooManySubscriptions => (StanzaError::PolicyViolation, "too-many-subscriptions"),
            Refusal::TooBig => (StanzaError::NotAcceptable, "payload-too-big"),
            Refusal::Conflict => (StanzaError::Conflict, ""),
            Refusal::Unavailable => (StanzaError::ServiceUnavailable, ""),
            Refusal::Overloaded => (StanzaError::ResourceConstraint, ""),
            Refusal::Internal => (StanzaError::InternalServerError, ""),
        }
    }
}

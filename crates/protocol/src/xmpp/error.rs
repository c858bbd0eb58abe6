//! The conditions of stream errors (RFC 6120 §4.9.3) and stanza errors (§8.3.3), each with its name on the
//! wire, if the service uses it; a stanza error's type is the one that RFC 6120 recommends.

use noroshi_types::names;

names! {
    /// RFC 6120 §4.9.3.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum StreamError {
        BadFormat => "bad-format",
        Conflict => "conflict",
        ConnectionTimeout => "connection-timeout",
        HostUnknown => "host-unknown",
        InternalServerError => "internal-server-error",
        InvalidFrom => "invalid-from",
        InvalidNamespace => "invalid-namespace",
        NotAuthorized => "not-authorized",
        NotWellFormed => "not-well-formed",
        PolicyViolation => "policy-violation",
        Reset => "reset",
        ResourceConstraint => "resource-constraint",
        RestrictedXml => "restricted-xml",
        SeeOtherHost => "see-other-host",
        SystemShutdown => "system-shutdown",
        UndefinedCondition => "undefined-condition",
        UnsupportedEncoding => "unsupported-encoding",
        UnsupportedStanzaType => "unsupported-stanza-type",
        UnsupportedVersion => "unsupported-version",
    }
}

names! {
    /// RFC 6120 §8.3.3.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum StanzaError {
        BadRequest => "bad-request",
        Conflict => "conflict",
        FeatureNotImplemented => "feature-not-implemented",
        Forbidden => "forbidden",
        InternalServerError => "internal-server-error",
        ItemNotFound => "item-not-found",
        JidMalformed => "jid-malformed",
        NotAcceptable => "not-acceptable",
        NotAllowed => "not-allowed",
        NotAuthorized => "not-authorized",
        PolicyViolation => "policy-violation",
        RemoteServerNotFound => "remote-server-not-found",
        ResourceConstraint => "resource-constraint",
        ServiceUnavailable => "service-unavailable",
        UnexpectedRequest => "unexpected-request",
    }
}

impl StanzaError {
    /// The human-readable text of the error (RFC 6120 §8.3.2).
    pub fn explain(self) -> &'static str {
        match self {
            StanzaError::BadRequest => "the request is incomplete or malformed",
            StanzaError::Conflict => "the name is already in use",
            StanzaError::FeatureNotImplemented => "this service does not support the feature",
            StanzaError::Forbidden => "this account is not permitted to do this",
            StanzaError::InternalServerError => "internal error",
            StanzaError::ItemNotFound => "no item with this name or id exists",
            StanzaError::JidMalformed => "the address is malformed",
            StanzaError::NotAcceptable => {
                "the request is not acceptable: a field is missing or a value is too large"
            }
            StanzaError::NotAllowed => "this is not allowed here",
            StanzaError::NotAuthorized => "the account is not authorized for this",
            StanzaError::PolicyViolation => "the request exceeds a limit of the service",
            StanzaError::RemoteServerNotFound => "this service does not connect to other servers",
            StanzaError::ResourceConstraint => "the service is out of resources; try again later",
            StanzaError::ServiceUnavailable => "nothing at this address handles such a stanza",
            StanzaError::UnexpectedRequest => "the request is not valid at this time",
        }
    }

    /// The error type, which tells the client how to react (RFC 6120 §8.3.2).
    pub fn kind(self) -> &'static str {
        match self {
            StanzaError::BadRequest
            | StanzaError::JidMalformed
            | StanzaError::NotAcceptable
            | StanzaError::PolicyViolation => "modify",
            StanzaError::Forbidden
            | StanzaError::NotAuthorized => "auth",
            StanzaError::ResourceConstraint => "wait",
            StanzaError::Conflict
            | StanzaError::FeatureNotImplemented
            | StanzaError::InternalServerError
            | StanzaError::ItemNotFound
            | StanzaError::NotAllowed
            | StanzaError::RemoteServerNotFound
            | StanzaError::ServiceUnavailable
            // Only used with XEP-0060 §6.2.3.2, `not-subscribed`.
            | StanzaError::UnexpectedRequest => "cancel",
        }
    }
}

/// A stanza error and its XEP-0060 detail.
pub type Refused = (StanzaError, &'static str);

/// Why the session core rejects a request.
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
    pub(super) fn condition(self) -> Refused {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Logged-in accounts also see these texts, and a node may reject only some accounts.
    #[test]
    fn text_reveals_no_more_than_its_condition() {
        for error in StanzaError::ALL {
            let text = error.explain();
            assert!(!text.contains("log in") && !text.contains("nobody may"), "{text}");
        }
    }

    #[test]
    fn conditions_are_unique() {
        let names: BTreeSet<_> = StreamError::ALL.iter().map(|error| error.as_str()).collect();
        assert_eq!(names.len(), StreamError::ALL.len());
        let names: BTreeSet<_> = StanzaError::ALL.iter().map(|error| error.as_str()).collect();
        assert_eq!(names.len(), StanzaError::ALL.len());
    }
}

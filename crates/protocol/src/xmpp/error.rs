//! The conditions of stream errors (RFC 6120 §4.9.3) and stanza errors (§8.3.3), each with its name on the
//! wire; a stanza error's type is the one that RFC 6120 recommends.

macro_rules! conditions {
    ($(#[$doc:meta])* $name:ident: $($variant:ident $wire:literal)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The element's name.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $wire),* }
            }
        }
    };
}

conditions!(
    /// RFC 6120 §4.9.3.
    StreamError:
    BadFormat "bad-format"
    BadNamespacePrefix "bad-namespace-prefix"
    Conflict "conflict"
    ConnectionTimeout "connection-timeout"
    HostGone "host-gone"
    HostUnknown "host-unknown"
    ImproperAddressing "improper-addressing"
    InternalServerError "internal-server-error"
    InvalidFrom "invalid-from"
    InvalidNamespace "invalid-namespace"
    InvalidXml "invalid-xml"
    NotAuthorized "not-authorized"
    NotWellFormed "not-well-formed"
    PolicyViolation "policy-violation"
    RemoteConnectionFailed "remote-connection-failed"
    Reset "reset"
    ResourceConstraint "resource-constraint"
    RestrictedXml "restricted-xml"
    SeeOtherHost "see-other-host"
    SystemShutdown "system-shutdown"
    UndefinedCondition "undefined-condition"
    UnsupportedEncoding "unsupported-encoding"
    UnsupportedFeature "unsupported-feature"
    UnsupportedStanzaType "unsupported-stanza-type"
    UnsupportedVersion "unsupported-version"
);

conditions!(
    /// RFC 6120 §8.3.3.
    StanzaError:
    BadRequest "bad-request"
    Conflict "conflict"
    FeatureNotImplemented "feature-not-implemented"
    Forbidden "forbidden"
    Gone "gone"
    InternalServerError "internal-server-error"
    ItemNotFound "item-not-found"
    JidMalformed "jid-malformed"
    NotAcceptable "not-acceptable"
    NotAllowed "not-allowed"
    NotAuthorized "not-authorized"
    PolicyViolation "policy-violation"
    RecipientUnavailable "recipient-unavailable"
    Redirect "redirect"
    RegistrationRequired "registration-required"
    RemoteServerNotFound "remote-server-not-found"
    RemoteServerTimeout "remote-server-timeout"
    ResourceConstraint "resource-constraint"
    ServiceUnavailable "service-unavailable"
    SubscriptionRequired "subscription-required"
    UndefinedCondition "undefined-condition"
    UnexpectedRequest "unexpected-request"
);

impl StanzaError {
    /// The human-readable text of the error (RFC 6120 §8.3.2).
    pub fn explain(self) -> &'static str {
        match self {
            StanzaError::BadRequest => "the request is incomplete or malformed",
            StanzaError::Conflict => "the name is already in use",
            StanzaError::FeatureNotImplemented => "this service does not support the feature",
            StanzaError::Forbidden => "this account is not permitted to do this",
            StanzaError::Gone => "the address no longer exists",
            StanzaError::InternalServerError => "internal error",
            StanzaError::ItemNotFound => "no item with this name or id exists",
            StanzaError::JidMalformed => "the address is malformed",
            StanzaError::NotAcceptable => {
                "the request is not acceptable: a field is missing or a value is too large"
            }
            StanzaError::NotAllowed => "this is not allowed here",
            StanzaError::NotAuthorized => "the account is not authorized for this",
            StanzaError::PolicyViolation => "the request exceeds a limit of the service",
            StanzaError::RecipientUnavailable => "the recipient is unavailable",
            StanzaError::Redirect => "the recipient has another address",
            StanzaError::RegistrationRequired => "this requires a registered account",
            StanzaError::RemoteServerNotFound => "this service does not connect to other servers",
            StanzaError::RemoteServerTimeout => "the remote server did not answer in time",
            StanzaError::ResourceConstraint => "the service is out of resources; try again later",
            StanzaError::ServiceUnavailable => "nothing at this address handles such a stanza",
            StanzaError::SubscriptionRequired => "this requires a subscription",
            StanzaError::UndefinedCondition => "the request failed",
            StanzaError::UnexpectedRequest => "the request is not valid at this time",
        }
    }

    /// The error type, which tells the client how to react (RFC 6120 §8.3.2).
    pub fn kind(self) -> &'static str {
        match self {
            StanzaError::BadRequest
            | StanzaError::JidMalformed
            | StanzaError::NotAcceptable
            | StanzaError::PolicyViolation
            | StanzaError::Redirect => "modify",
            StanzaError::Forbidden
            | StanzaError::NotAuthorized
            | StanzaError::RegistrationRequired
            | StanzaError::SubscriptionRequired => "auth",
            StanzaError::RecipientUnavailable
            | StanzaError::RemoteServerTimeout
            | StanzaError::ResourceConstraint => "wait",
            StanzaError::Conflict
            | StanzaError::FeatureNotImplemented
            | StanzaError::Gone
            | StanzaError::InternalServerError
            | StanzaError::ItemNotFound
            | StanzaError::NotAllowed
            | StanzaError::RemoteServerNotFound
            | StanzaError::ServiceUnavailable
            | StanzaError::UndefinedCondition
            // Only used with XEP-0060 §6.2.3.2, `not-subscribed`.
            | StanzaError::UnexpectedRequest => "cancel",
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
        assert_eq!(names.len(), 25, "RFC 6120 §4.9.3.1 to §4.9.3.25");
        let names: BTreeSet<_> = StanzaError::ALL.iter().map(|error| error.as_str()).collect();
        assert_eq!(names.len(), 22, "RFC 6120 §8.3.3.1 to §8.3.3.22");
    }
}

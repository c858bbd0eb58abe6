//! The conditions of stream errors (RFC 6120 §4.9.3) and stanza errors (§8.3.3), each with its name on the
//! wire; a stanza error's type is the one its section names.

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
    /// What it means here, for people: the text of the error (RFC 6120 §8.3.2).
    pub fn explain(self) -> &'static str {
        match self {
            StanzaError::BadRequest => "something is missing or of the wrong form in the request",
            StanzaError::Conflict => "there is one of that name already",
            StanzaError::FeatureNotImplemented => "this service does not do that",
            StanzaError::Forbidden => "this account may not do that",
            StanzaError::Gone => "nobody has this address any more",
            StanzaError::InternalServerError => "the service failed",
            StanzaError::ItemNotFound => "there is nothing of that name or id",
            StanzaError::JidMalformed => "this is not an address",
            StanzaError::NotAcceptable => {
                "the service does not take this: a field is missing, or it is too much"
            }
            StanzaError::NotAllowed => "this is not allowed here",
            StanzaError::NotAuthorized => "this needs an authorization that the account does not have",
            StanzaError::PolicyViolation => "this is over a limit of the service",
            StanzaError::RecipientUnavailable => "the recipient is not here now",
            StanzaError::Redirect => "the recipient has another address",
            StanzaError::RegistrationRequired => "an account is needed for this",
            StanzaError::RemoteServerNotFound => "this service knows no other servers than itself",
            StanzaError::RemoteServerTimeout => "the other server did not answer in time",
            StanzaError::ResourceConstraint => "the service has no room for this now; try again later",
            StanzaError::ServiceUnavailable => "nothing at this address takes such a stanza",
            StanzaError::SubscriptionRequired => "a subscription is needed for this",
            StanzaError::UndefinedCondition => "the request failed",
            StanzaError::UnexpectedRequest => "this cannot be asked now",
        }
    }

    /// What the client may do about it (RFC 6120 §8.3.2).
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
            // XEP-0060 §6.2.3.2, `not-subscribed`: the only use here.
            | StanzaError::UnexpectedRequest => "cancel",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Accounts that are logged in get these texts too, and a node may be closed to some accounts only.
    #[test]
    fn a_text_says_no_more_than_its_condition() {
        for error in StanzaError::ALL {
            let text = error.explain();
            assert!(!text.contains("log in") && !text.contains("nobody may"), "{text}");
        }
    }

    #[test]
    fn every_condition_is_there_once() {
        let names: BTreeSet<_> = StreamError::ALL.iter().map(|error| error.as_str()).collect();
        assert_eq!(names.len(), 25, "RFC 6120 §4.9.3.1 to §4.9.3.25");
        let names: BTreeSet<_> = StanzaError::ALL.iter().map(|error| error.as_str()).collect();
        assert_eq!(names.len(), 22, "RFC 6120 §8.3.3.1 to §8.3.3.22");
    }
}

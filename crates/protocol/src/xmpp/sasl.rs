//! The parts of SASL that its two profiles share (RFC 6120 §6, XEP-0388): mechanisms, PLAIN (RFC 4616),
//! base64 and failure conditions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use noroshi_types::CloseReason;

use super::scram::{Hash, ScramError};
use crate::native::Token;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    Scram(Hash),
}

impl Mechanism {
    /// Strongest first, as clients choose the first one they support.
    pub const ALL: [Mechanism; 3] =
        [Mechanism::Scram(Hash::Sha256), Mechanism::Scram(Hash::Sha1), Mechanism::Plain];

    pub fn as_str(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(Hash::Sha1) => "SCRAM-SHA-1",
            Mechanism::Scram(Hash::Sha256) => "SCRAM-SHA-256",
        }
    }
}

noroshi_types::names! {
    /// Why a log-in is rejected (RFC 6120 §6.5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Failure {
        Aborted => "aborted",
        AccountDisabled => "account-disabled",
        CredentialsExpired => "credentials-expired",
        EncryptionRequired => "encryption-required",
        IncorrectEncoding => "incorrect-encoding",
        InvalidAuthzid => "invalid-authzid",
        InvalidMechanism => "invalid-mechanism",
        MalformedRequest => "malformed-request",
        NotAuthorized => "not-authorized",
        TemporaryAuthFailure => "temporary-auth-failure",
    }
}

impl Failure {
    /// The text for people.
    pub fn text(self) -> &'static str {
        match self {
            Failure::Aborted => "the client aborted the log-in",
            Failure::AccountDisabled => "the device was deleted or its tokens were revoked",
            Failure::CredentialsExpired => "the token has expired; connect with a new one",
            Failure::EncryptionRequired => "this mechanism requires TLS: send `starttls` first",
            Failure::IncorrectEncoding => "the message is not valid base64",
            Failure::InvalidAuthzid => "authorization as another identity is not supported",
            Failure::InvalidMechanism => "the mechanism was not offered",
            Failure::MalformedRequest => "the message does not conform to the mechanism",
            Failure::NotAuthorized => "the token is invalid or belongs to another device",
            Failure::TemporaryAuthFailure => "log-ins are temporarily unavailable; try again later",
        }
    }

    /// The failure for a log-in that was rejected for `reason`.
    pub fn of(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Expired => Failure::CredentialsExpired,
            CloseReason::Revoked => Failure::AccountDisabled,
            CloseReason::Unauthorized => Failure::NotAuthorized,
            _ => Failure::TemporaryAuthFailure,
        }
    }
}

impl From<ScramError> for Failure {
    fn from(error: ScramError) -> Self {
        match error {
            ScramError::Malformed(_) => Failure::MalformedRequest,
            ScramError::ChannelBinding | ScramError::Proof => Failure::NotAuthorized,
        }
    }
}

/// RFC 6120 §6.4.2: no white space; a single `=` is an empty message.
pub(super) fn decode(text: &str) -> Result<String, Failure> {
    if text == "=" {
        return Ok(String::new());
    }
    let bytes = STANDARD.decode(text).map_err(|_| Failure::IncorrectEncoding)?;
    String::from_utf8(bytes).map_err(|_| Failure::MalformedRequest)
}

pub(super) fn encode(message: &str) -> String {
    STANDARD.encode(message)
}

/// The three parts of a PLAIN message.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain {
    pub authorize_as: Option<Box<str>>,
    pub user: Box<str>,
    pub password: Token,
}

impl Plain {
    /// RFC 4616 §2.
    pub fn parse(message: &str) -> Result<Self, Failure> {
        let mut parts = message.split('\0');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(authorize_as), Some(user), Some(password), None)
                if !user.is_empty() && !password.is_empty() =>
            {
                let authorize_as = Some(authorize_as).filter(|name| !name.is_empty()).map(Into::into);
                Ok(Self { authorize_as, user: user.into(), password: Token::new(password) })
            }
            _ => Err(Failure::MalformedRequest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_has_three_parts() {
        let plain = Plain::parse("\0tim\0tanstaaftanstaaf").unwrap(); // RFC 4616 §4
        assert_eq!((&*plain.user, plain.password.as_str()), ("tim", "tanstaaftanstaaf"));
        assert_eq!(plain.authorize_as, None);
        assert_eq!(Plain::parse("Ursel\0Kurt\0xipj3plmq").unwrap().authorize_as.as_deref(), Some("Ursel"));
        for bad in ["", "a", "a\0b", "\0\0b", "\0a\0", "\0a\0b\0c"] {
            assert_eq!(Plain::parse(bad), Err(Failure::MalformedRequest), "{bad:?}");
        }
    }

    #[test]
    fn base64_is_strict() {
        assert_eq!(decode("="), Ok(String::new()));
        assert_eq!(decode("AGEAYg=="), Ok("\0a\0b".to_owned()));
        for bad in ["AGEAYg", "AGE AYg==", "AGEAYg==\n", "\u{e9}"] {
            assert_eq!(decode(bad), Err(Failure::IncorrectEncoding), "{bad}");
        }
        assert_eq!(decode("/w=="), Err(Failure::MalformedRequest));
    }
}

//! Why a credential is rejected. `api` and `gateway` map each reason to a status or a close reason.

use noroshi_types::Timestamp;

/// Why a credential is rejected. The text is public and never contains the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the credential is missing")]
    Missing,
    #[error("the credential is unknown")]
    Unknown,
    #[error("the API key expired at {0}; create a new one")]
    KeyExpired(Timestamp),
    #[error("this is a device token or JWT; an API key is needed here")]
    NotAKey,
    #[error("this is an API key; a device token or app JWT is needed here")]
    NotAToken,
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    #[error("the token's signature does not verify")]
    Signature,
    #[error(
        "the token names no app, and this server has several that sign tokens: put the app's name or its declared \
         audience into the claim aud, or name the app with ?app=NAME or the header Noroshi-App"
    )]
    Unnamed,
    #[error(
        "several apps match the claims aud and iss of the token: name one with ?app=NAME or the header Noroshi-App"
    )]
    Ambiguous,
    #[error("the claim iss is not the issuer that the app declares")]
    Issuer,
    #[error(
        "the token is for another audience: the claim aud must contain the audience that the app declares, or the \
         app's name if it declares none"
    )]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    /// The token was not verified and may be valid.
    #[error("too many log-ins failed; try again in {retry_after_s} s")]
    TooManyFailures { retry_after_s: u32 },
    /// The token was not verified and may be valid.
    #[error("too many tokens wait to be verified; try again")]
    Busy,
}

impl Refused {
    /// Its name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::KeyExpired(_) => "key_expired",
            Self::NotAKey => "not_a_key",
            Self::NotAToken => "not_a_token",
            Self::Malformed(_) => "malformed",
            Self::Signature => "signature",
            Self::Unnamed => "unnamed",
            Self::Ambiguous => "ambiguous",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::TooManyFailures { .. } => "too_many_failures",
            Self::Busy => "busy",
        }
    }
}

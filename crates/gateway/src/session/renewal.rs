//! A new token for a session: its claims and its expiry replace those of the token before.
//!
//! Several renewals of one connection may be under way, and the pool may answer them in any order. They apply in the order
//! in which the client sent them: one that was sent before the token that applies changes nothing any more.

use noroshi_auth::Refused;

/// Why a session keeps the token that it has. The text is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotRenewed {
    #[error("the new token has expired")]
    Expired,
    #[error("{0}")]
    Refused(Refused),
    #[error("the new token is not for this device")]
    OtherDevice,
    #[error("the new token was revoked")]
    Revoked,
    #[error("the new token is for another user: connect with it")]
    OtherUser,
}

impl NotRenewed {
    /// Stable.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Refused(Refused::TooManyFailures { .. }) => "rate_limited",
            Self::Refused(Refused::Busy) => "overloaded",
            Self::Refused(_) | Self::OtherDevice | Self::Revoked | Self::OtherUser => "unauthorized",
        }
    }
}

/// Renewals of one connection that wait for an answer. Dropped with the last of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Renewals {
    /// The number of the newest one.
    last: u64,
    /// The number of the newest one that applied; 0 for none.
    pub(crate) applied: u64,
    pub(crate) under_way: usize,
}

impl Renewals {
    /// Numbers a renewal.
    pub(crate) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way += 1;
        self.last
    }
}

//! Where tokens come from.

use std::error::Error as StdError;
use std::fmt;

use crate::error::BoxError;

/// Why a token is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TokenReason {
    /// For the first connection or request.
    #[default]
    First,
    /// The token expires soon. Return another one.
    Expiring,
    /// The service rejected the token. Return another one.
    Rejected,
}

impl TokenReason {
    /// `first`, `expiring` or `rejected`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Expiring => "expiring",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for TokenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request for a token.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRequest {
    /// Do not return a cached token if it is [`Expiring`](TokenReason::Expiring) or [`Rejected`](TokenReason::Rejected).
    pub reason: TokenReason,
    /// The token that expires or was rejected.
    pub previous: Option<String>,
}

impl TokenRequest {
    pub(crate) fn new(reason: TokenReason, previous: Option<String>) -> Self {
        Self { reason, previous }
    }
}

/// Without the token, which must not appear in logs.
impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRequest").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// Why there is no token. Every error converts to [`Failed`](Self::Failed), so `?` works.
#[derive(Debug)]
pub enum TokenError {
    /// Nobody is signed in. The client stays closed.
    SignedOut,
    /// The client asks again after a while.
    Failed(BoxError),
}

impl TokenError {
    /// A failure with a text.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into().into())
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for TokenError {
    fn from(error: E) -> Self {
        Self::Failed(Box::new(error))
    }
}

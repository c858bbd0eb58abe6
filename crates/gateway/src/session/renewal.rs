//! A new token for a session: its claims and its expiry replace those of the token before.
//!
//! Several renewals of one connection may be in progress, and the pool may answer them in any order. They apply in the
//! order in which the client sent them: a renewal that was sent before the token in force changes nothing any more.

use std::collections::HashMap;

use noroshi_auth::{Identity, Refused};
use noroshi_types::Timestamp;

use crate::session::registry::{Registry, Session};

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
    #[error("the new token is for another user: reconnect with it")]
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

/// Renewals in progress, by slot.
#[derive(Default)]
pub(crate) struct Renewals(HashMap<u32, OfConnection>);

/// Dropped with the last of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfConnection {
    /// The number of the newest one.
    last: u64,
    /// The number of the newest one that applied; 0 for none.
    applied: u64,
    under_way: usize,
}

impl Renewals {
    /// Numbers a renewal.
    pub(crate) fn begin(&mut self, slot: u32) -> u64 {
        let renewals = self.0.entry(slot).or_default();
        renewals.last += 1;
        renewals.under_way += 1;
        renewals.last
    }

    /// Whether a renewal may apply: none that was sent later has.
    pub(crate) fn apply(&mut self, slot: u32, number: u64) -> bool {
        let Some(renewals) = self.0.get_mut(&slot) else { return true };
        let applies = number >= renewals.applied;
        if applies {
            renewals.applied = number;
        }
        applies
    }

    pub(crate) fn end(&mut self, slot: u32) {
        // Its session may have ended, and the renewals with it.
        let Some(renewals) = self.0.get_mut(&slot) else { return };
        renewals.under_way -= 1;
        if renewals.under_way == 0 {
            self.0.remove(&slot);
        }
    }

    /// The session ends, and its renewals with it.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.0.remove(&slot);
    }
}

/// Whether a verified token may replace the one of a session.
pub(crate) fn check(
    session: &Session,
    identity: &Identity,
    registry: &Registry,
    now: Timestamp,
) -> Result<(), NotRenewed> {
    if identity.app != session.app || identity.device != session.device {
        return Err(NotRenewed::OtherDevice);
    }
    if identity.token_version.is_some_and(|version| version < session.token_version) {
        return Err(NotRenewed::Revoked);
    }
    // A later revocation ends the session.
    if identity.issued.is_revoked(session.revoked_at(), now) {
        return Err(NotRenewed::Revoked);
    }
    // The session receives the notifications of the user it began with.
    let user = identity.user.as_ref().map(|user| registry.user_key(session.app, user));
    match user.is_some_and(|user| user != session.user_key) {
        true => Err(NotRenewed::OtherUser),
        false => Ok(()),
    }
}

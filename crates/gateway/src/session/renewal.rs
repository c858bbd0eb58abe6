//! A new token for a session: its claims and its expiry replace those of the token before.
//!
//! Several renewals of one connection may be under way, and the pool may answer them in any order. They apply in the order
//! in which the client sent them: one that was sent before the token that applies changes nothing any more.

use noroshi_auth::{Credential, Identity, Refused};
use noroshi_types::AppName;

use crate::shard::Shard;

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
    applied: u64,
    under_way: usize,
}

impl Renewals {
    /// Numbers a renewal.
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way += 1;
        self.last
    }
}

impl Shard {
    /// A new token for the session that is. `then` is told what came of it, in a later turn if the token has to be
    /// verified with a public key; the session goes on meanwhile.
    pub(crate) fn renew(
        &mut self,
        slot: u32,
        token: &str,
        then: impl FnOnce(&mut Shard, u32, Result<(), NotRenewed>) + Send + 'static,
    ) {
        let session = self.connection(slot).and_then(|connection| connection.session.clone());
        let Some(session) = session else { return then(self, slot, Ok(())) };
        let name = self.shared.auth.app_name(session.app);
        let credential =
            Credential { token, app: name.as_ref().map(AppName::as_str), client: self.client(slot) };
        let number = self.renewals.entry(slot).or_default().begin();
        self.verify(slot, credential, move |shard, slot, answer| {
            let renewed = match answer {
                Ok(identity) => shard.take_renewed(slot, number, identity),
                Err(Refused::Expired) => Err(NotRenewed::Expired),
                Err(refused) => Err(NotRenewed::Refused(refused)),
            };
            shard.end_renewal(slot);
            // Topic rules may allow less by the new claims.
            let has_other_claims = renewed == Ok(true);
            then(shard, slot, renewed.map(drop));
            if has_other_claims {
                shard.recheck_now(slot);
            }
        });
    }

    fn end_renewal(&mut self, slot: u32) {
        // Its session may have ended, and the renewals with it.
        let Some(renewals) = self.renewals.get_mut(&slot) else { return };
        renewals.under_way -= 1;
        if renewals.under_way == 0 {
            self.renewals.remove(&slot);
        }
    }

    /// Returns whether the session has other claims now.
    fn take_renewed(&mut self, slot: u32, number: u64, identity: Identity) -> Result<bool, NotRenewed> {
        let session = self.connection(slot).and_then(|connection| connection.session.clone());
        let Some(session) = session else { return Ok(false) };
        if identity.app != session.app || identity.device != session.device {
            return Err(NotRenewed::OtherDevice);
        }
        if identity.token_version.is_some_and(|version| version < session.token_version) {
            return Err(NotRenewed::Revoked);
        }
        // A later revocation ends the session.
        if identity.issued.is_revoked(session.revoked_at(), self.now.wall) {
            return Err(NotRenewed::Revoked);
        }
        let is_of_jwt = identity.user.is_some();
        // The session hears the notifications of the user it began with.
        let user = identity.user.map(|user| self.shared.registry.user_key(session.app, &user));
        if user.is_some_and(|user| user != session.user_key) {
            return Err(NotRenewed::OtherUser);
        }
        if let Some(renewals) = self.renewals.get_mut(&slot) {
            if number < renewals.applied {
                return Ok(false);
            }
            renewals.applied = number;
        }
        let has_other_claims = self.renew_claims(&session, is_of_jwt, identity.claims);
        if let Some(connection) = self.connection(slot) {
            connection.expires_at = identity.expires_at;
        }
        self.arm(slot);
        Ok(has_other_claims)
    }
}

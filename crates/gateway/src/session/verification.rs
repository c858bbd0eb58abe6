//! Finds out whose token a log-in or a renewal brings, for every protocol.
//!
//! The caller passes a closure that goes on with the answer. It runs at once where the check takes microseconds. A token
//! that needs a public key goes to the pool of `auth`; its answer comes by the mailbox, and the closure runs in that later
//! turn. The shard drops the answer if the connection has ended.
//!
//! While the pool verifies the token of a log-in, the connection is in [`Phase::LoggingIn`], so the shard keeps what the
//! client sends early. An XMPP connection stays in its phase: its conversation keeps early stanzas itself and continues
//! the negotiation after the answer.
//!
//! A shard has at most [`VERIFYING_MAX`] verifications under way. It refuses further ones and advises the client to retry.

use noroshi_auth::{Checked, ClientNetwork, Costly, Credential, Identity, Refused};
use noroshi_types::{CloseReason, Quota};

use crate::fanout::mailbox::Reply;
use crate::session::login::LOG_IN_TIMEOUT;
use crate::shard::Shard;
use crate::shard::connection::{Phase, Protocol};

/// Verifications that one shard has out: the pool's whole queue and answers that the shard has not handled yet. The pool
/// shares its queue among apps; a smaller bound here would let one app take the room of the others.
pub(crate) const VERIFYING_MAX: usize = noroshi_auth::VERIFICATIONS_MAX + 1_024;

type Answer = Result<Identity, Refused>;

/// Goes on with a log-in or a renewal.
pub(crate) type Then = Box<dyn FnOnce(&mut Shard, u32, Answer) + Send>;

/// What ends the connection of a log-in that is refused.
pub(crate) fn close_reason(refused: &Refused) -> CloseReason {
    match refused {
        Refused::Expired => CloseReason::Expired,
        Refused::TooManyFailures { .. } => CloseReason::RateLimited,
        Refused::Busy => CloseReason::Overloaded,
        _ => CloseReason::Unauthorized,
    }
}

impl Shard {
    /// Whose limits the connection's failures count for.
    pub(crate) fn client(&mut self, slot: u32) -> Option<ClientNetwork> {
        let network = self.client_network(slot);
        if network == ClientNetwork::NONE {
            // A session that polls has no socket of its own.
            return self.opener(slot);
        }
        if self.shared.config.proxies.networks.is_empty() {
            return Some(network);
        }
        // A trusted proxy that named no client stands for many.
        let peer = self.peer(slot)?.ip();
        let proxies = &self.shared.config.proxies;
        (network != ClientNetwork::of(peer) || !proxies.trusts(peer)).then_some(network)
    }

    /// Finds out whose token a log-in brought. A refusal is counted and told.
    pub(crate) fn identify(
        &mut self,
        slot: u32,
        token: Option<&str>,
        app: Option<&str>,
        then: impl FnOnce(&mut Shard, u32, Answer) + Send + 'static,
    ) {
        let client = self.client(slot);
        let told = move |shard: &mut Shard, slot: u32, answer: Answer| {
            if let Err(refused) = &answer {
                shard.tell_refused(slot, refused);
                shard.note_retry(slot, refused);
            }
            then(shard, slot, answer);
        };
        // What the log-in itself says goes first; else the request that opened the connection may have named the app.
        let opening = self.connection(slot).and_then(|connection| connection.opening.as_ref());
        let of_request = opening.and_then(|opening| opening.app.clone());
        let app = app.or(of_request.as_deref());
        let Some(token) = token else { return told(self, slot, Err(Refused::Missing)) };
        match self.shared.auth.check(Credential { token, app, client }, self.now.wall) {
            Checked::Known(answer) => told(self, slot, answer),
            // The app would refuse the log-in after the verification too.
            Checked::Costly(costly) => {
                match self.delivery.quotas().check_rate(costly.app(), Quota::ConnectsPerSecond) {
                    Ok(()) => self.submit(slot, costly, told),
                    Err(over) => self.refuse_over_quota(slot, &over),
                }
            }
        }
    }

    /// Verifies a token, and goes on with `then`.
    pub(crate) fn verify(
        &mut self,
        slot: u32,
        credential: Credential<'_>,
        then: impl FnOnce(&mut Shard, u32, Answer) + Send + 'static,
    ) {
        match self.shared.auth.check(credential, self.now.wall) {
            Checked::Known(answer) => then(self, slot, answer),
            Checked::Costly(costly) => self.submit(slot, costly, then),
        }
    }

    /// Gives a token to the pool.
    fn submit(
        &mut self,
        slot: u32,
        costly: Box<Costly>,
        then: impl FnOnce(&mut Shard, u32, Answer) + Send + 'static,
    ) {
        if self.verifying == VERIFYING_MAX {
            return then(self, slot, Err(Refused::Busy));
        }
        let deadline = self.now.tick_after(LOG_IN_TIMEOUT);
        let Some(connection) = self.connection(slot) else { return };
        if connection.session.is_none() && connection.protocol != Protocol::Xmpp {
            connection.phase = Phase::LoggingIn;
            connection.deadline_tick = deadline;
        }
        let to = (slot, connection.generation);
        self.verifying += 1;
        let (shared, index) = (self.shared.clone(), usize::from(self.index));
        self.shared.auth.submit(costly, move |answer| {
            #[cfg(debug_assertions)]
            noroshi_supervision::fault::strike("verified");
            shared.mailboxes[index].reply(Reply::Verified { to, answer, then: Box::new(then) });
        });
    }

    /// The pool's answer.
    pub(crate) fn handle_verified(&mut self, (slot, generation): (u32, u64), answer: Answer, then: Then) {
        self.verifying -= 1;
        if self.at(slot, generation).is_some_and(|connection| connection.is_alive()) {
            self.guard(Some(slot), |shard| {
                then(shard, slot, answer);
                shard.arm(slot);
            });
        }
    }

    /// The client is told when to come back.
    fn note_retry(&mut self, slot: u32, refused: &Refused) {
        if let (Refused::TooManyFailures { retry_after_s }, Some(connection)) =
            (refused, self.connection(slot))
        {
            connection.opening().retry_after_s = *retry_after_s;
        }
    }
}

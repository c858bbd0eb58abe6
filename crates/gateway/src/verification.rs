//! Whose token it is, for every protocol: at once where that takes microseconds, else by the pool of `auth`.
//!
//! What is to be done with the answer is a closure. It runs at once, or in a later turn when the pool's answer came by
//! the mailbox; a connection that ended meanwhile is told nothing. Until then a log-in counts as under way
//! ([`Phase::LoggingIn`]), so what the client sends early is held as it is while the store is asked. The conversation of
//! XMPP holds it itself and goes on with its negotiation afterwards, so its phase stays.
//!
//! [`VERIFYING_MAX`] bounds what one shard has out; more is refused with advice to retry.

use noroshi_auth::{Checked, ClientNetwork, Credential, Identity, Refused};
use noroshi_types::CloseReason;

use crate::connection::{Phase, Protocol};
use crate::login::LOG_IN_TIMEOUT;
use crate::mailbox::Reply;
use crate::shard::Shard;

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
    /// Whose limits the connection's failures count for. None where it has no socket of its own.
    pub(crate) fn client(&mut self, slot: u32) -> Option<ClientNetwork> {
        let network = self.client_network(slot);
        let proxies = &self.shared.config.proxies;
        if network == ClientNetwork::NONE || proxies.networks.is_empty() {
            return (network != ClientNetwork::NONE).then_some(network);
        }
        // A trusted proxy that named no client stands for many.
        let stream = self.connections.get_mut(slot as usize)?.transport.stream()?;
        let peer = stream.peer_addr().ok()?.ip();
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
        self.identify_client(slot, client, token, app, then);
    }

    /// [`Shard::identify`] where the client is known from elsewhere.
    pub(crate) fn identify_client(
        &mut self,
        slot: u32,
        client: Option<ClientNetwork>,
        token: Option<&str>,
        app: Option<&str>,
        then: impl FnOnce(&mut Shard, u32, Answer) + Send + 'static,
    ) {
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
        match token {
            Some(token) => self.verify(slot, Credential { token, app, client }, told),
            None => told(self, slot, Err(Refused::Missing)),
        }
    }

    /// Verifies a token, and goes on with `then`.
    pub(crate) fn verify(
        &mut self,
        slot: u32,
        credential: Credential<'_>,
        then: impl FnOnce(&mut Shard, u32, Answer) + Send + 'static,
    ) {
        let costly = match self.shared.auth.check(credential, self.now.wall) {
            Checked::Known(answer) => return then(self, slot, answer),
            Checked::Costly(_) if self.verifying == VERIFYING_MAX => {
                return then(self, slot, Err(Refused::Busy));
            }
            Checked::Costly(costly) => costly,
        };
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

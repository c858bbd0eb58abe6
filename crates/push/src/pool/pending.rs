//! A push inside a pool. It is answered exactly once: code that takes it from a queue or a connection must answer it or
//! put it back. One that is dropped (by a panic, or with its runtime) answers `Later`.

use std::time::Duration;

use noroshi_types::{Lane, Timestamp};

use crate::metrics::Counters;
use crate::push::Reason;
use crate::{Answer, Push};

/// The longest of the services' own: this file does not know the service.
const RETRY_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Pending {
    /// None once answered.
    push: Option<Push>,
    expires_at: Timestamp,
    /// How often it was resent because the peer had not processed it.
    pub(crate) resends: u8,
    /// Whether the authorization was renewed for it.
    pub(crate) renewed: bool,
}

impl Pending {
    pub(crate) fn new(push: Push, now: Timestamp) -> Self {
        // A push whose time had ended before it came is tried once: a TTL of 0 means this (RFC 8030 §5.2).
        let expires_at = match push.content.fields().expires_at {
            passed if passed <= now => Timestamp(u64::MAX),
            expires_at => expires_at,
        };
        Self { push: Some(push), expires_at, resends: 0, renewed: false }
    }

    pub(crate) fn push(&self) -> Option<&Push> {
        self.push.as_ref()
    }

    pub(crate) fn lane(&self) -> Lane {
        self.push.as_ref().map_or(Lane::Campaign, |push| push.lane)
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }

    pub(crate) fn answer(mut self, answer: Answer, counters: &Counters) {
        counters.answer(&answer);
        if let Some(push) = self.push.take() {
            push.reply.to.answered(push.reply.index, answer);
        }
    }

    pub(crate) fn later(self, reason: Reason, after: Duration, counters: &Counters) {
        self.answer(Answer::Later { reason, after }, counters);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(push) = self.push.take() {
            let answer = Answer::Later { reason: "abandoned", after: RETRY_AFTER };
            push.reply.to.answered(push.reply.index, answer);
        }
    }
}

//! Sessions: the connected devices, the topics each receives, how a log-in becomes a session, and the messages it
//! catches up with.
//!
//! May use: [`crate::wire`], [`crate::rate`], [`crate::io`]. Knows no protocol and writes to no socket: what a session
//! receives is offered to it by [`crate::fanout`].
//!
//! The node owns the [`registry`] and the [`stamp`]s; a shard owns one [`Sessions`]; each connection owns its session,
//! its [`catch_up`] and the preferences that it is [`following`].

use std::collections::HashMap;

pub(crate) mod attachment;
pub(crate) mod catch_up;
pub(crate) mod following;
pub(crate) mod gate;
pub(crate) mod login;
pub(crate) mod outcome;
pub(crate) mod parking;
pub(crate) mod permission;
pub(crate) mod phase;
pub(crate) mod reads;
pub(crate) mod recheck;
pub(crate) mod registry;
pub(crate) mod rejections;
pub(crate) mod renewal;
pub(crate) mod request;
pub(crate) mod stamp;
pub(crate) mod topic_index;
pub(crate) mod topic_rules;
pub(crate) mod turns;
pub(crate) mod verification;
pub(crate) mod wildcard;

use crate::io::timer::Now;
use gate::Gates;
use login::{LogInQueue, Succession};
use outcome::Outcomes;
use reads::Reads;
use recheck::Recheck;
use rejections::Rejections;
use renewal::Renewals;
use topic_index::TopicIndex;
use wildcard::Wildcards;

/// The sessions of one shard, without what its connections own.
#[derive(Default)]
pub(crate) struct Sessions {
    pub(crate) topics: TopicIndex,
    pub(crate) wildcards: Wildcards,
    /// Verifications in progress, at most [`verification::VERIFYING_MAX`].
    pub(crate) verifying: usize,
    pub(crate) log_ins: LogInQueue,
    /// Sessions that wait for their predecessors to end, by slot.
    pub(crate) successions: HashMap<u32, Succession>,
    pub(crate) renewals: Renewals,
    pub(crate) reads: Reads,
    pub(crate) gates: Gates,
    /// Present while changed topic rules are applied.
    pub(crate) recheck: Option<Recheck>,
    pub(crate) outcomes: Outcomes,
    pub(crate) rejections: Rejections,
}

impl Sessions {
    /// Whether the next turn has something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.recheck.as_ref().is_some_and(Recheck::has_work)
    }

    /// How long the loop may sleep.
    pub(crate) fn patience_ms(&self, now: Now) -> u64 {
        let recheck_ms = self.recheck.as_ref().map_or(u64::MAX, |recheck| recheck.patience_ms(now.ms32()));
        recheck_ms.min(self.log_ins.patience_ms(now.ms).unwrap_or(u64::MAX))
    }

    /// What waits for the session of a slot ends with it.
    pub(crate) fn end(&mut self, slot: u32) {
        self.gates.end(slot);
        self.renewals.remove(slot);
    }
}

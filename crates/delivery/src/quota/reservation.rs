//! Reserved room of an app: it counts as used until it is settled or released.
//!
//! A reservation is granted as a whole or refused. Callers settle it after the commit; dropping it releases the room.

use std::sync::Arc;

use noroshi_types::Quota;

use super::app::AppQuotas;
use super::counts::{RETRY_AFTER, Refused};
use crate::error::OverQuota;

/// Room for rows that are being written. Dropped, it is released.
#[must_use]
pub struct Reservation {
    of: Arc<AppQuotas>,
    reserved: Vec<(Quota, u64)>,
}

impl Reservation {
    /// Reserves all of `wanted`, or nothing. Counts a refusal.
    pub(super) fn hold(app_quotas: &Arc<AppQuotas>, wanted: &[(Quota, u64)]) -> Result<Self, OverQuota> {
        let refuse = |Refused { quota, limit }| app_quotas.refuse(quota, limit, RETRY_AFTER);
        Self::try_hold(app_quotas, wanted).map_err(refuse)
    }

    /// As [`Reservation::hold`], without counting a refusal.
    pub(super) fn try_hold(app_quotas: &Arc<AppQuotas>, wanted: &[(Quota, u64)]) -> Result<Self, Refused> {
        let limited = wanted.iter().filter(|(quota, _)| app_quotas.limit_of(*quota).is_some());
        let reserved: Vec<_> = limited.copied().collect();
        app_quotas.counts.reserve(&reserved, |quota| app_quotas.limit_of(quota))?;
        Ok(Self { of: app_quotas.clone(), reserved })
    }

    /// The rows were committed.
    pub fn settle(mut self) {
        let reserved = std::mem::take(&mut self.reserved);
        self.of.counts.settle(&reserved, true);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.reserved.is_empty() {
            self.of.counts.settle(&self.reserved, false);
        }
    }
}

/// New topics that a request may create. Dropped, they are unknown again: a request that created one of them meanwhile
/// was not charged, which the next count corrects.
struct Claim {
    of: Arc<AppQuotas>,
    topics: Vec<u64>,
}

impl Claim {
    /// The topics were created.
    fn settle(mut self) {
        self.topics.clear();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.topics.is_empty() {
            self.of.topics.forget(&self.topics);
        }
    }
}

/// Room for one request. Dropped, it is released.
#[must_use]
#[derive(Default)]
pub struct Held {
    reserved: Vec<Reservation>,
    topics: Option<Claim>,
}

impl Held {
    /// The rows were committed.
    pub fn settle(self) {
        self.reserved.into_iter().for_each(Reservation::settle);
        if let Some(topics) = self.topics {
            topics.settle();
        }
    }

    pub(super) fn add(&mut self, reserved: Reservation) {
        self.reserved.push(reserved);
    }

    /// Adds room for those of the topics that are new. The store does not know any of them.
    pub(super) fn add_topics<'a>(
        &mut self,
        app_quotas: &Arc<AppQuotas>,
        unknown: impl Iterator<Item = &'a noroshi_types::Topic>,
    ) -> Result<(), OverQuota> {
        let reserve = |new: u64| Reservation::hold(app_quotas, &[(Quota::Topics, new)]);
        let (reserved, claimed) = app_quotas.topics.claim(unknown, reserve)?;
        self.reserved.push(reserved);
        self.topics = Some(Claim { of: app_quotas.clone(), topics: claimed });
        Ok(())
    }
}

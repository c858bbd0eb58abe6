//! The push work that a cancelled notification or an aborted campaign loses, and the outcomes of it.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceNum, NotificationId, Outcome, Timestamp};

use super::campaign::{CampaignNum, CampaignRow, Count, VariantNotifications};
use super::device_list;
use super::outcome::Part;
use super::push::{Done, sorted};
use super::record::Record;
use crate::ids::{Ids, Num};
use crate::{Cancelled, Error, RemovedMessages, VariantNum, Work};

/// What [`crate::Notifications::cancel`] removed from the queue.
#[derive(Default)]
pub(crate) struct CancelledWork {
    /// Recipients of the batches that no sender had taken; sorted once [`Self::finish`] was called.
    pub unsent: Vec<DeviceNum>,
    /// There was work: batches, leased or not, or a walk.
    pub any: bool,
    /// How many of the unsent each campaign counts.
    pub campaigns: BTreeMap<CampaignNum, u64>,
}

impl CancelledWork {
    /// Adds a removed row: its device list and its campaign.
    pub(crate) fn add(&mut self, recipients: &[u8], campaign: CampaignNum) {
        let before = self.unsent.len();
        self.unsent.extend(device_list::decode(recipients));
        if campaign != 0 {
            *self.campaigns.entry(campaign).or_default() += (self.unsent.len() - before) as u64;
        }
    }

    pub(crate) fn finish(mut self) -> Self {
        self.unsent = sorted(self.unsent);
        self
    }

    pub(crate) fn counts(&self, num: Num) -> impl Iterator<Item = Count> {
        let outcome = Outcome::Cancelled;
        let count =
            move |(&campaign, &count)| Count { campaign, num: Some(num), outcome, reason: None, count };
        self.campaigns.iter().map(count)
    }

    /// The result, and the parts to record. `removed` are the devices (sorted) whose inboxes had the notification.
    pub(crate) fn result(
        self,
        (app, num, id): (AppId, Num, NotificationId),
        removed: Vec<DeviceNum>,
        done: Done,
        now: Timestamp,
    ) -> (Cancelled, [Part; 2]) {
        let Self { mut unsent, .. } = self;
        let not_pushed = unsent.len() as u64;
        // A device that is in both lists is recorded once.
        unsent.retain(|device| removed.binary_search(device).is_err());
        let mut departed = RemovedMessages::default();
        for devices in [&removed, &unsent] {
            departed.add(app, Some(Work::Notification(id)), Outcome::Cancelled, now, devices);
        }
        let result = Cancelled { removed: removed.len() as u64, not_pushed, departed, done };
        (result, [removed, unsent].map(|devices| Part::of(num, Outcome::Cancelled, now, devices)))
    }
}

/// The outcome of a batch that the campaign's abort removed, from the columns `num, variant, recipients`.
pub(crate) fn removed_batch(
    row: &(impl Record + ?Sized),
    (app, campaign): (AppId, &CampaignRow),
    variants: &VariantNotifications,
    (ids, now): (&Ids, Timestamp),
    departed: &mut RemovedMessages,
) -> Result<(Part, Count), Error> {
    let (of, variant): (Num, _) = (row.int(0)?, VariantNum::from_code(row.code(1)?));
    let devices: Vec<DeviceNum> = device_list::decode(row.bytes(2)?).collect();
    let of_variant = variant.and_then(|variant| variants.get(&(campaign.num, variant)).copied());
    let num = Some(of).filter(|of| *of > 0).or(of_variant);
    let (outcome, count) = (Outcome::Cancelled, devices.len() as u64);
    departed.add(app, Work::of(ids, of, Some(campaign.id)), outcome, now, &devices);
    let count = Count { campaign: campaign.num, num, outcome, reason: None, count };
    Ok((Part::of(num.unwrap_or(campaign.notification), outcome, now, devices), count))
}

//! Whether a publish, or one more of something, has room. What is held counts from here on; whoever wrote it settles it,
//! and dropped it is given back ([`Held`]).
//!
//! To publish in order, await each decision before the next ([`crate::Delivery::begin_publish`]). Inboxes are decided on by the store, behind its queue ([`Gate`]).

use std::sync::Arc;

use noroshi_store::Gate;
use noroshi_types::{AppId, Quota, Request, Target, Topic, When};
use parking_lot::Mutex;

use super::of_app::Rate;
use super::stored::RETRY_AFTER;
use super::{Held, OfApp, OverQuota, Reservation, refresh};
use crate::delivery::{Delivery, Error};

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A request of a provider, or a device.
    Client,
    /// A front, which took a token of the app's rate when it accepted the message.
    Front,
    /// A batch of a campaign: its rate is the campaign's, and it must not overflow inboxes.
    Campaign,
    /// The node itself, which has to go through.
    Node,
}

/// Room for inbox rows, which is taken when the store knows how many there are.
struct Inboxes {
    of_app: Arc<OfApp>,
    row_bytes: u64,
    answer: Mutex<Option<Result<Reservation, OverQuota>>>,
}

impl Inboxes {
    fn passes(&self, rows: u64) -> bool {
        let mut answer = self.answer.lock();
        // A transaction that is tried again asks again.
        *answer = None;
        let wanted = [(Quota::InboxRows, rows), (Quota::InboxBytes, rows.saturating_mul(self.row_bytes))];
        let reserved = self.of_app.reserve(&wanted);
        let passes = reserved.is_ok();
        *answer = Some(reserved);
        passes
    }
}

/// Room for a publish.
#[derive(Default)]
pub(crate) struct Room {
    held: Held,
    /// A token was taken of it.
    rate: Option<(Arc<OfApp>, Rate)>,
    inboxes: Option<Arc<Inboxes>>,
}

impl Room {
    /// What the store asks before it writes to inboxes.
    pub(crate) fn gate(&self) -> Option<Gate> {
        let inboxes = self.inboxes.clone()?;
        Some(Gate::new(move |rows| inboxes.passes(rows)))
    }

    pub(crate) fn settle(self) {
        self.held.settle();
        if let Some(Ok(reserved)) = self.inboxes.and_then(|inboxes| inboxes.answer.lock().take()) {
            reserved.settle();
        }
    }

    /// An earlier publish with the same idempotency key was answered: this one used nothing.
    pub(crate) fn give_back(self) {
        if let Some((of_app, rate)) = self.rate {
            of_app.give_back(rate);
        }
    }

    /// Why the gate was shut.
    pub(crate) fn refused(self) -> Option<OverQuota> {
        self.inboxes?.answer.lock().take()?.err()
    }
}

impl Delivery {
    /// The app, if anything limits it, with everything counted that its limits need.
    pub(super) async fn counted(&self, app: AppId) -> Result<Option<Arc<OfApp>>, Error> {
        let Some(of_app) = self.quotas.limited(app) else { return Ok(None) };
        if !of_app.counts.is_counted() {
            refresh::count(self, &of_app).await?;
        }
        Ok(Some(of_app))
    }

    /// Whether a front may hand on messages of the app. It waits for the first count for a short time only, because the
    /// front's next round waits for the answers of all apps.
    pub async fn admit_relay(self: &Arc<Self>, app: AppId) -> Result<(), Error> {
        if let Some(of_app) = self.quotas.limited(app)
            && !self.counted_soon(&of_app).await
            && let Some(quota) = of_app.counts.uncounted()
        {
            let limit = of_app.limit_of(quota).unwrap_or(u64::MAX);
            return Err(OverQuota { quota, limit, after: RETRY_AFTER }.into());
        }
        Ok(())
    }

    pub(crate) async fn admit_publish(
        &self,
        app: AppId,
        request: &Request,
        origin: Origin,
    ) -> Result<Room, Error> {
        if origin == Origin::Node {
            return Ok(Room::default());
        }
        let Some(of_app) = self.counted(app).await? else { return Ok(Room::default()) };
        let mut room = Room::default();
        let rate = match origin {
            Origin::Client => Some(Rate::Publishes),
            Origin::Front => Some(Rate::Relayed),
            Origin::Campaign | Origin::Node => None,
        };
        if let Some(rate) = rate {
            // Deliveries are charged when they were made: who owes some publishes nothing new.
            of_app.check_debt(Quota::DeliveriesPerSecond)?;
            of_app.take_of(rate, 1)?;
            room.rate = Some((of_app.clone(), rate));
            if let Target::Topic(topic) = &request.target {
                let unknown = self.unknown_topics(&of_app, std::iter::once(topic)).await?;
                room.held.add_topics(&of_app, unknown.iter())?;
            }
            if let Some(reserved) = self.hold_retained(&of_app, request).await? {
                room.held.add(reserved);
            }
        }
        let is_named = matches!(request.target, Target::Users(_) | Target::Devices(_) | Target::Condition(_));
        let limits_inboxes =
            [Quota::InboxRows, Quota::InboxBytes].iter().any(|quota| of_app.limit_of(*quota).is_some());
        if is_named && request.when == When::Stored && limits_inboxes {
            let (row_bytes, answer) = (content_bytes(request), Mutex::default());
            room.inboxes = Some(Arc::new(Inboxes { of_app, row_bytes, answer }));
        }
        Ok(room)
    }

    /// A message that takes the place of one at least as large needs no room.
    async fn hold_retained(
        &self,
        of_app: &Arc<OfApp>,
        request: &Request,
    ) -> Result<Option<Reservation>, Error> {
        let quota = Quota::RetainedBytes;
        let everyone = Topic::everyone();
        let topic = match &request.target {
            Target::Topic(topic) => topic,
            Target::Everyone => &everyone,
            _ => return Ok(None),
        };
        if !request.retain || of_app.limit_of(quota).is_none() {
            return Ok(None);
        }
        let bytes = content_bytes(request);
        let wanted = [(quota, bytes)];
        if let Ok(reserved) = of_app.try_reserve(&wanted) {
            return Ok(Some(reserved));
        }
        let present = self.store.retained(of_app.app(), topic, self.clock.now()).await?;
        let parts = |message: &noroshi_types::Message| {
            [&message.notification, &message.data]
                .into_iter()
                .flatten()
                .map(|text| text.as_str().len() as u64)
                .sum::<u64>()
        };
        match present.is_some_and(|present| parts(&present) >= bytes) {
            true => Ok(None),
            false => Ok(Some(of_app.reserve(&wanted)?)),
        }
    }

    /// One more of something.
    pub async fn admit_one(&self, app: AppId, quota: Quota) -> Result<Held, Error> {
        let mut held = Held::default();
        if let Some(of_app) = self.counted(app).await? {
            held.add(of_app.reserve(&[(quota, 1)])?);
        }
        Ok(held)
    }
}

/// As the store counts it.
fn content_bytes(request: &Request) -> u64 {
    [&request.notification, &request.data].into_iter().flatten().map(|text| text.as_str().len() as u64).sum()
}

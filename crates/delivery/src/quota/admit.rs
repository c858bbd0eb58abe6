//! Decisions that need the store: whether a publish, a registration, a subscription, a log-in or one more of something
//! has room. What is [`Held`] counts from here on; whoever wrote it settles it, and dropped it is given back.

use std::collections::BTreeSet;
use std::sync::Arc;

use noroshi_store::{Gate, Registration};
use noroshi_types::{AppId, DeviceId, Quota, Request, Target, Topic, When};
use parking_lot::Mutex;

use super::stored::RETRY_AFTER;
use super::{OfApp, OverQuota, Reservation, refresh};
use crate::delivery::{Delivery, Error};
use crate::entering::Entering;

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A request of a provider, or a device.
    Client,
    /// A batch of a campaign: its rate is the campaign's, and it must not overflow inboxes.
    Campaign,
    /// The node itself, which has to go through.
    Node,
}

/// Room that counts as used.
#[must_use]
#[derive(Default)]
pub struct Held {
    reserved: Vec<Reservation>,
    /// Known to the store once this is settled.
    topics: Option<(Arc<OfApp>, Vec<Topic>)>,
}

impl Held {
    /// It was written.
    pub fn settle(self) {
        self.reserved.into_iter().for_each(Reservation::settle);
        if let Some((of_app, topics)) = self.topics {
            of_app.know_topics(&topics);
        }
    }
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

/// A publish that may go on.
#[derive(Default)]
pub(crate) struct Admitted {
    held: Held,
    inboxes: Option<Arc<Inboxes>>,
}

impl Admitted {
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

    /// Why the gate was shut.
    pub(crate) fn refused(self) -> Option<OverQuota> {
        self.inboxes?.answer.lock().take()?.err()
    }
}

impl Delivery {
    /// The app, if anything limits it, with everything counted that its limits need.
    async fn counted(&self, app: AppId) -> Result<Option<Arc<OfApp>>, Error> {
        let Some(of_app) = self.quotas.limited(app) else { return Ok(None) };
        if !of_app.counts.is_counted() {
            refresh::count(self, &of_app).await?;
        }
        Ok(Some(of_app))
    }

    pub(crate) async fn admit_publish(
        &self,
        app: AppId,
        request: &Request,
        origin: Origin,
    ) -> Result<Admitted, Error> {
        if origin == Origin::Node {
            return Ok(Admitted::default());
        }
        let Some(of_app) = self.counted(app).await? else { return Ok(Admitted::default()) };
        let mut admitted = Admitted::default();
        if origin == Origin::Client {
            // Deliveries are charged when they were made: who owes some publishes nothing new.
            of_app.check_debt(Quota::DeliveriesPerSecond)?;
            of_app.take(Quota::PublishesPerSecond, 1)?;
            if let Target::Topic(topic) = &request.target {
                admitted.held = self.hold_topics(&of_app, std::slice::from_ref(topic)).await?;
            }
            admitted.held.reserved.extend(self.hold_retained(&of_app, request).await?);
        }
        let is_named = matches!(request.target, Target::Users(_) | Target::Devices(_) | Target::Condition(_));
        let limits_inboxes =
            [Quota::InboxRows, Quota::InboxBytes].iter().any(|quota| of_app.limit_of(*quota).is_some());
        if is_named && request.when == When::Stored && limits_inboxes {
            let (row_bytes, answer) = (content_bytes(request), Mutex::default());
            admitted.inboxes = Some(Arc::new(Inboxes { of_app, row_bytes, answer }));
        }
        Ok(admitted)
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

    async fn hold_topics(&self, of_app: &Arc<OfApp>, topics: &[Topic]) -> Result<Held, Error> {
        if of_app.limit_of(Quota::Topics).is_none() {
            return Ok(Held::default());
        }
        let perhaps = of_app.unknown_topics(topics);
        if perhaps.is_empty() {
            return Ok(Held::default());
        }
        let unknown = self.store.unknown_topics(of_app.app(), &perhaps).await?;
        let reserved = of_app.reserve(&[(Quota::Topics, unknown.len() as u64)])?;
        Ok(Held { reserved: vec![reserved], topics: Some((of_app.clone(), perhaps)) })
    }

    /// Durable subscriptions of a device: how many it may have, and topics that are new to the store.
    pub async fn admit_subscriptions(
        &self,
        app: AppId,
        device: &DeviceId,
        topics: &[Topic],
    ) -> Result<Held, Error> {
        match self.counted(app).await? {
            Some(of_app) => self.hold_subscriptions(&of_app, Some(device), topics).await,
            None => Ok(Held::default()),
        }
    }

    async fn hold_subscriptions(
        &self,
        of_app: &Arc<OfApp>,
        device: Option<&DeviceId>,
        topics: &[Topic],
    ) -> Result<Held, Error> {
        self.check_subscriptions(of_app, device, topics.iter()).await?;
        self.hold_topics(of_app, topics).await
    }

    /// What a device has it keeps, also where the limit was lowered.
    async fn check_subscriptions(
        &self,
        of_app: &Arc<OfApp>,
        device: Option<&DeviceId>,
        topics: impl Iterator<Item = &Topic>,
    ) -> Result<(), Error> {
        let Some(limit) = of_app.limit_of(Quota::SubscriptionsPerDevice) else { return Ok(()) };
        let wanted: BTreeSet<&Topic> = topics.filter(|topic| !topic.is_everyone()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let present = match device {
            Some(device) => self.store.device(of_app.app(), device).await?,
            None => None,
        };
        let present = present.map(|device| device.topics).unwrap_or_default();
        let new = wanted.iter().filter(|topic| !present.contains(topic)).count();
        match new > 0 && (present.len() + new) as u64 > limit {
            true => Err(of_app.refuse(Quota::SubscriptionsPerDevice, limit, RETRY_AFTER).into()),
            false => Ok(()),
        }
    }

    /// Registrations in their order, each for itself.
    pub async fn admit_registrations(
        &self,
        app: AppId,
        registrations: &[Registration],
    ) -> Result<Vec<Result<Held, Error>>, Error> {
        let Some(of_app) = self.counted(app).await? else {
            return Ok(registrations.iter().map(|_| Ok(Held::default())).collect());
        };
        let named: Vec<DeviceId> = registrations.iter().filter_map(|one| one.device.clone()).collect();
        let mut unknown: BTreeSet<DeviceId> = match of_app.limit_of(Quota::Devices) {
            Some(_) => self.store.unknown_devices(app, &named).await?.into_iter().collect(),
            None => BTreeSet::new(),
        };
        let mut answers = Vec::with_capacity(registrations.len());
        for Registration { device, topics, .. } in registrations {
            let is_new = device.as_ref().is_none_or(|device| unknown.contains(device));
            let held = self.hold_registration(&of_app, device.as_ref(), topics, is_new).await;
            if let (Some(device), Ok(_)) = (device, &held) {
                unknown.remove(device);
            }
            answers.push(held);
        }
        Ok(answers)
    }

    async fn hold_registration(
        &self,
        of_app: &Arc<OfApp>,
        device: Option<&DeviceId>,
        topics: &[Topic],
        is_new: bool,
    ) -> Result<Held, Error> {
        let mut held = self.hold_subscriptions(of_app, device, topics).await?;
        held.reserved.push(of_app.reserve(&[(Quota::Devices, u64::from(is_new))])?);
        Ok(held)
    }

    /// Log-ins in their order: devices that an app's JWT makes, and what it subscribes them to.
    pub(crate) async fn admit_log_ins(&self, entering: &[Entering]) -> Vec<Result<Held, Error>> {
        let mut answers = Vec::with_capacity(entering.len());
        for Entering { login, .. } in entering {
            answers.push(self.admit_log_in(login).await);
        }
        answers
    }

    async fn admit_log_in(&self, login: &noroshi_store::Login) -> Result<Held, Error> {
        if self.quotas.limited(login.app).is_none() {
            return Ok(Held::default());
        }
        let Some(of_app) = self.counted(login.app).await? else { return Ok(Held::default()) };
        let topics = login.topics.iter().chain(&login.session_topics);
        self.check_subscriptions(&of_app, Some(&login.device), topics).await?;
        if !login.create {
            return Ok(Held::default());
        }
        let device = std::slice::from_ref(&login.device);
        let is_new = of_app.limit_of(Quota::Devices).is_some()
            && !self.store.unknown_devices(login.app, device).await?.is_empty();
        let mut held = self.hold_topics(&of_app, &login.topics).await?;
        held.reserved.push(of_app.reserve(&[(Quota::Devices, u64::from(is_new))])?);
        Ok(held)
    }

    /// One more of something.
    pub async fn admit_one(&self, app: AppId, quota: Quota) -> Result<Held, Error> {
        match self.counted(app).await? {
            Some(of_app) => Ok(Held { reserved: vec![of_app.reserve(&[(quota, 1)])?], topics: None }),
            None => Ok(Held::default()),
        }
    }
}

/// As the store counts it.
fn content_bytes(request: &Request) -> u64 {
    [&request.notification, &request.data].into_iter().flatten().map(|text| text.as_str().len() as u64).sum()
}

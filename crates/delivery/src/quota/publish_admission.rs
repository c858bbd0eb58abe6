//! Whether a publish, or one more row of something, has room.
//!
//! Admitted room counts as used at once. The caller settles it after the write; dropped, it is released ([`Held`]). To
//! publish in order, await each decision before the next ([`crate::publish::Series`]). The store decides on
//! room in inboxes, when it processes its queue ([`Gate`]).

use std::sync::{Arc, OnceLock};

use noroshi_store::{Gate, OfCampaign};
use noroshi_types::{AppId, JsonText, Quota, Request, Target, Topic, When};
use parking_lot::Mutex;

use super::app::{AppQuotas, Rate};
use super::reservation::{Held, Reservation};
use super::usage::Usage;
use crate::error::{Error, OverQuota};

/// Who publishes.
#[derive(Clone)]
pub enum Origin {
    /// A request of a provider or a device.
    Client,
    /// A device or a queue, without a request that could be traced: a trace may begin here.
    Untraced,
    /// A front, which took a token of the app's rate when it accepted the message.
    Front(InOrder),
    /// A batch of a campaign, which has its own rate. It must not overflow inboxes. Outcomes also count for the
    /// campaign, and push work takes the campaign's lane.
    Campaign(OfCampaign),
    /// The node itself, which is never refused. A trace may begin here.
    Node,
    /// The node itself, with a copy of an earlier message: no trace begins here.
    Copy,
}

/// Messages of one app that a front forwards together, in order. If inboxes have no room for one of them, the following
/// ones are refused as well, even if there is room by then: otherwise they would overtake it before it is sent again.
#[derive(Clone, Default)]
pub struct InOrder(Arc<Predecessors>);

/// The effects of the earlier messages of the batch.
#[derive(Default)]
struct Predecessors {
    /// The app whose limits apply to an earlier message in the store's queue.
    limited: OnceLock<Arc<AppQuotas>>,
    /// Why an earlier message was refused.
    refused: OnceLock<OverQuota>,
}

/// Room for inbox rows, reserved when the store knows their number.
struct Inboxes {
    app_quotas: Arc<AppQuotas>,
    row_bytes: u64,
    order: Option<InOrder>,
    answer: Mutex<Option<Result<Reservation, OverQuota>>>,
}

impl Inboxes {
    /// `None`: the request writes to no inbox, or inboxes are not limited.
    fn of(request: &Request, origin: Origin, app_quotas: Option<Arc<AppQuotas>>) -> Option<Self> {
        let is_named = matches!(request.target, Target::Users(_) | Target::Devices(_) | Target::Condition(_));
        if !is_named || request.when != When::Stored {
            return None;
        }
        let quotas = [Quota::InboxRows, Quota::InboxBytes];
        let limited =
            app_quotas.filter(|app_quotas| quotas.iter().any(|quota| app_quotas.limit_of(*quota).is_some()));
        let (app_quotas, order) = match origin {
            Origin::Front(order) => {
                // Also if the limits were removed in the meantime.
                let limited = limited.or_else(|| order.0.limited.get().cloned())?;
                (order.0.limited.get_or_init(|| limited).clone(), Some(order))
            }
            _ => (limited?, None),
        };
        Some(Self {
            app_quotas,
            row_bytes: bytes_of(&request.notification, &request.data),
            order,
            answer: Mutex::default(),
        })
    }

    /// The store asks in the order of its queue.
    fn passes(&self, rows: u64) -> bool {
        let mut answer = self.answer.lock();
        // A repeated transaction asks again.
        *answer = None;
        let reserved = self.reserve(rows);
        let passes = reserved.is_ok();
        *answer = Some(reserved);
        passes
    }

    fn reserve(&self, rows: u64) -> Result<Reservation, OverQuota> {
        let refused = self.order.as_ref().map(|order| &order.0.refused);
        if let Some(over) = refused.and_then(|refused| refused.get()) {
            return Err(*over);
        }
        let wanted = [(Quota::InboxRows, rows), (Quota::InboxBytes, rows.saturating_mul(self.row_bytes))];
        let reserved = Reservation::hold(&self.app_quotas, &wanted);
        if let (Some(refused), Err(over)) = (refused, &reserved) {
            refused.get_or_init(|| *over);
        }
        reserved
    }
}

/// Room for a publish.
#[derive(Default)]
pub(crate) struct Room {
    held: Held,
    /// The bucket from which a token was taken.
    rate: Option<(Arc<AppQuotas>, Rate)>,
    inboxes: Option<Arc<Inboxes>>,
}

impl Room {
    /// The gate that the store asks before it writes to inboxes.
    pub(crate) fn gate(&self) -> Option<Gate> {
        let inboxes = self.inboxes.clone()?;
        Some(Gate::new(move |rows| inboxes.passes(rows)))
    }

    /// The publish was committed.
    pub(crate) fn settle(self) {
        self.held.settle();
        if let Some(Ok(reserved)) = self.inboxes.and_then(|inboxes| inboxes.answer.lock().take()) {
            reserved.settle();
        }
    }

    /// The publish was a replay of an earlier one, and used nothing.
    pub(crate) fn give_back(self) {
        if let Some((app_quotas, rate)) = self.rate {
            app_quotas.give_back(rate);
        }
    }

    /// Why the gate refused.
    pub(crate) fn refused(self) -> Option<OverQuota> {
        self.inboxes?.answer.lock().take()?.err()
    }
}

/// Admits publishes, and single rows such as campaigns.
impl Usage {
    pub(crate) async fn admit_publish(
        &self,
        app: AppId,
        request: &Request,
        origin: Origin,
    ) -> Result<Room, Error> {
        if matches!(origin, Origin::Node | Origin::Copy) {
            return Ok(Room::default());
        }
        let app_quotas = self.counted(app).await?;
        let mut room = match &app_quotas {
            Some(app_quotas) => self.admit_except_inboxes(app_quotas, request, &origin).await?,
            None => Room::default(),
        };
        room.inboxes = Inboxes::of(request, origin, app_quotas).map(Arc::new);
        Ok(room)
    }

    /// Whether the app may publish at this rate, without using anything up.
    pub(crate) async fn check_publish(&self, app: AppId, origin: &Origin) -> Result<(), Error> {
        if !matches!(origin, Origin::Client | Origin::Untraced) {
            return Ok(());
        }
        if let Some(app_quotas) = self.counted(app).await? {
            app_quotas.check_debt(Quota::DeliveriesPerSecond)?;
            app_quotas.check_rate(Quota::PublishesPerSecond)?;
        }
        Ok(())
    }

    /// Decides on everything but inboxes.
    async fn admit_except_inboxes(
        &self,
        app_quotas: &Arc<AppQuotas>,
        request: &Request,
        origin: &Origin,
    ) -> Result<Room, Error> {
        let mut room = Room::default();
        let rate = match origin {
            Origin::Client | Origin::Untraced => Rate::Publishes,
            Origin::Front(_) => Rate::Relayed,
            Origin::Campaign(_) | Origin::Node | Origin::Copy => return Ok(room),
        };
        // Deliveries are charged afterwards: an app in debt publishes nothing new.
        app_quotas.check_debt(Quota::DeliveriesPerSecond)?;
        app_quotas.take_of(rate, 1)?;
        room.rate = Some((app_quotas.clone(), rate));
        if let Target::Topic(topic) = &request.target {
            let unknown = self.unknown_topics(app_quotas, std::iter::once(topic)).await?;
            room.held.add_topics(app_quotas, unknown.iter())?;
        }
        if let Some(reserved) = self.hold_retained(app_quotas, request).await? {
            room.held.add(reserved);
        }
        Ok(room)
    }

    /// A message that replaces one of at least its size needs no room.
    async fn hold_retained(
        &self,
        app_quotas: &Arc<AppQuotas>,
        request: &Request,
    ) -> Result<Option<Reservation>, Error> {
        let quota = Quota::RetainedBytes;
        let everyone = Topic::everyone();
        let topic = match &request.target {
            Target::Topic(topic) => topic,
            Target::Everyone => &everyone,
            _ => return Ok(None),
        };
        if !request.retain || app_quotas.limit_of(quota).is_none() {
            return Ok(None);
        }
        let bytes = bytes_of(&request.notification, &request.data);
        let wanted = [(quota, bytes)];
        if let Ok(reserved) = Reservation::try_hold(app_quotas, &wanted) {
            return Ok(Some(reserved));
        }
        let present = self.context.store.retained(app_quotas.app(), topic, self.context.now()).await?;
        match present.is_some_and(|present| bytes_of(&present.notification, &present.data) >= bytes) {
            true => Ok(None),
            false => Ok(Some(Reservation::hold(app_quotas, &wanted)?)),
        }
    }

    /// One more row that counts under `quota`.
    pub async fn admit_one(&self, app: AppId, quota: Quota) -> Result<Held, Error> {
        let mut held = Held::default();
        if let Some(app_quotas) = self.counted(app).await? {
            held.add(Reservation::hold(&app_quotas, &[(quota, 1)])?);
        }
        Ok(held)
    }
}

/// The size of the content, as the store counts it.
fn bytes_of(notification: &Option<JsonText>, data: &Option<JsonText>) -> u64 {
    [notification, data].into_iter().flatten().map(|text| text.as_str().len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use noroshi_types::quota::{Limits, Quotas as Overrides};
    use noroshi_types::{AppName, Push, Ttl, Urgency, UserId};

    use super::*;
    use crate::quota::Metrics;

    fn request() -> Request {
        Request {
            target: Target::Users(vec![UserId::parse("u1").expect("a user")]),
            when: When::Stored,
            ttl: Ttl::new(std::time::Duration::from_secs(60)).expect("a ttl"),
            urgency: Urgency::Normal,
            waits_for_use: false,
            category: None,
            collapse_key: None,
            retain: false,
            notification: None,
            data: None,
            push: Push::default(),
            item: None,
            trace: None,
        }
    }

    fn app() -> Arc<AppQuotas> {
        Arc::new(AppQuotas::new(AppId(1), AppName::parse("a").expect("a name"), Metrics::default()))
    }

    fn limit(app_quotas: &AppQuotas, rows: Option<u64>) {
        let mut limits = Limits::default();
        limits.set(Quota::InboxRows, rows);
        app_quotas.limit(limits, Overrides::default());
        app_quotas.counts.end(&app_quotas.counts.begin(), &[(Quota::InboxRows, 0)]);
    }

    #[test]
    fn no_message_overtakes_a_refused_one() {
        let app_quotas = app();
        limit(&app_quotas, Some(1));
        let order = InOrder::default();
        let inboxes = |app_quotas| Inboxes::of(&request(), Origin::Front(order.clone()), app_quotas);
        let [first, second, third] = [0; 3].map(|_| inboxes(Some(app_quotas.clone())).expect("a limit"));
        assert!(first.passes(1) && !second.passes(1));
        limit(&app_quotas, None);
        let fourth = inboxes(None).expect("an earlier one is limited");
        assert!(!third.passes(1) && !fourth.passes(1), "there is room, but the second message comes again");
        let over = fourth.answer.lock().take().expect("asked").err().expect("refused");
        assert_eq!((over.quota, over.limit), (Quota::InboxRows, 1), "as the second was");

        let of_client = |app_quotas| Inboxes::of(&request(), Origin::Client, app_quotas);
        assert!(
            of_client(Some(app_quotas.clone())).is_none() && of_client(None).is_none(),
            "nothing is limited"
        );
        drop(first);
        limit(&app_quotas, Some(1));
        assert!(
            of_client(Some(app_quotas)).expect("a limit").passes(1),
            "messages of clients are independent"
        );
        assert!(Inboxes::of(&request(), Origin::Front(InOrder::default()), None).is_none());
    }
}

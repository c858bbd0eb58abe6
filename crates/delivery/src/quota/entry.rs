//! Whether devices have room: registrations, log-ins, and what they subscribe to. A batch costs a fixed number of reads,
//! whatever its length. Log-ins of several apps come together: each app is looked at for itself, so that one whose counts
//! take long, or cannot be read, refuses its own new devices alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use noroshi_store::{Login, Registration, Subscribing};
use noroshi_types::{AppId, DeviceId, Quota, Topic};

use super::stored::RETRY_AFTER;
use super::{Held, OfApp, OverQuota, refresh};
use crate::delivery::{Delivery, Error};
use crate::entering::Entering;

/// How long a batch of log-ins waits for the first count of an app. Its new devices are told to come back then.
const COUNT_PATIENCE: Duration = Duration::from_millis(250);

/// What a device is about to use.
struct Wish<'a> {
    /// None: a device that is new for sure.
    device: Option<&'a DeviceId>,
    /// It may not exist yet, and is made then.
    creates: bool,
    /// All topics it is about to subscribe to.
    topics: Vec<&'a Topic>,
    /// Those whose subscriptions are kept: the store makes these topics.
    kept: &'a [Topic],
}

impl<'a> Wish<'a> {
    fn of_registration(registration: &'a Registration) -> Self {
        let Registration { device, topics, .. } = registration;
        Self { device: device.as_ref(), creates: true, topics: topics.iter().collect(), kept: topics }
    }

    fn of_login(login: &'a Login) -> Self {
        let topics = login.topics.iter().chain(&login.session_topics).collect();
        let kept = if login.create { &login.topics[..] } else { &[] };
        Self { device: Some(&login.device), creates: login.create, topics, kept }
    }
}

/// What the store says of a batch of wishes.
struct Found {
    /// Devices that do not exist yet.
    strangers: BTreeSet<DeviceId>,
    /// Of each wish.
    subscribing: Vec<Subscribing>,
    /// Topics that do not exist yet.
    unknown: BTreeSet<Topic>,
}

impl Found {
    /// Whether the wish makes a device or a topic.
    fn makes(&self, wish: &Wish<'_>) -> bool {
        self.is_new(wish) || wish.kept.iter().any(|topic| self.unknown.contains(topic))
    }

    fn is_new(&self, wish: &Wish<'_>) -> bool {
        wish.creates && wish.device.is_none_or(|device| self.strangers.contains(device))
    }

    fn hold(&mut self, of_app: &Arc<OfApp>, place: usize, wish: &Wish<'_>) -> Result<Held, OverQuota> {
        let held = hold_one(of_app, wish, self.subscribing[place], &self.unknown, self.is_new(wish))?;
        if let Some(device) = wish.device {
            self.strangers.remove(device);
        }
        Ok(held)
    }
}

impl Delivery {
    /// Durable subscriptions of a device: how many it may have, and topics that are new to the store.
    pub async fn admit_subscriptions(
        &self,
        app: AppId,
        device: &DeviceId,
        topics: &[Topic],
    ) -> Result<Held, Error> {
        let Some(of_app) = self.counted(app).await? else { return Ok(Held::default()) };
        let wish =
            Wish { device: Some(device), creates: false, topics: topics.iter().collect(), kept: topics };
        let held = self.hold(&of_app, &[wish]).await?.pop();
        Ok(held.transpose()?.unwrap_or_default())
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
        let wishes: Vec<Wish<'_>> = registrations.iter().map(Wish::of_registration).collect();
        let held = self.hold(&of_app, &wishes).await?;
        Ok(held.into_iter().map(|held| held.map_err(Error::from)).collect())
    }

    /// Log-ins in their order: devices that an app's JWT makes, and what it subscribes them to.
    pub(crate) async fn admit_log_ins(self: &Arc<Self>, entering: &[Entering]) -> Vec<Result<Held, Error>> {
        let mut answers: Vec<Result<Held, Error>> = entering.iter().map(|_| Ok(Held::default())).collect();
        let mut by_app: BTreeMap<AppId, Vec<usize>> = BTreeMap::new();
        for (place, one) in entering.iter().enumerate() {
            by_app.entry(one.login.app).or_default().push(place);
        }
        let of_apps =
            by_app.into_iter().filter_map(|(app, places)| Some((self.quotas.limited(app)?, places)));
        let held = of_apps.map(async |(of_app, places)| {
            let logins: Vec<&Login> = places.iter().map(|place| &entering[*place].login).collect();
            (places, self.hold_log_ins(&of_app, &logins).await)
        });
        for (places, held) in join_all(held).await {
            places.into_iter().zip(held).for_each(|(place, held)| answers[place] = held);
        }
        answers
    }

    /// Of one app.
    async fn hold_log_ins(
        self: &Arc<Self>,
        of_app: &Arc<OfApp>,
        logins: &[&Login],
    ) -> Vec<Result<Held, Error>> {
        let wishes: Vec<Wish<'_>> = logins.iter().map(|login| Wish::of_login(login)).collect();
        let mut found = match self.find_present(of_app, &wishes).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(app = %of_app.name(), %error, "the quotas of log-ins could not be read");
                return logins.iter().map(|_| Err(Error::Overloaded)).collect();
            }
        };
        // Only new devices and new topics need counts.
        let is_counted = !wishes.iter().any(|wish| found.makes(wish)) || self.counted_soon(of_app).await;
        let mut answers = Vec::with_capacity(wishes.len());
        for (place, wish) in wishes.iter().enumerate() {
            answers.push(match is_counted || !found.makes(wish) {
                true => found.hold(of_app, place, wish).map_err(Error::from),
                false => Err(Error::Overloaded),
            });
        }
        answers
    }

    /// Whether the app was counted, now or after a short wait. The count goes on if it takes longer.
    pub(super) async fn counted_soon(self: &Arc<Self>, of_app: &Arc<OfApp>) -> bool {
        if of_app.counts.is_counted() {
            return true;
        }
        let counts = &of_app.counts;
        let is_idle = counts.counting.try_lock().is_ok();
        let _ = tokio::time::timeout(COUNT_PATIENCE, async {
            match is_idle {
                true => {
                    let (delivery, of) = (self.clone(), of_app.clone());
                    drop(self.runtime.spawn(async move { refresh::count(&delivery, &of).await }).await);
                }
                // Waits for the count that runs.
                false => drop(counts.counting.lock().await),
            }
        })
        .await;
        counts.is_counted()
    }

    /// Holds room for each in order, or tells why it has none.
    async fn hold(
        &self,
        of_app: &Arc<OfApp>,
        wishes: &[Wish<'_>],
    ) -> Result<Vec<Result<Held, OverQuota>>, Error> {
        let mut found = self.find_present(of_app, wishes).await?;
        Ok(wishes.iter().enumerate().map(|(place, wish)| found.hold(of_app, place, wish)).collect())
    }

    async fn find_present(&self, of_app: &OfApp, wishes: &[Wish<'_>]) -> Result<Found, Error> {
        Ok(Found {
            strangers: self.strangers(of_app, wishes).await?,
            subscribing: self.subscribing(of_app, wishes).await?,
            unknown: self.unknown_topics(of_app, wishes.iter().flat_map(|wish| wish.kept)).await?,
        })
    }

    /// Devices that would be made.
    async fn strangers(&self, of_app: &OfApp, wishes: &[Wish<'_>]) -> Result<BTreeSet<DeviceId>, Error> {
        let made = wishes.iter().filter(|wish| wish.creates);
        let named: Vec<DeviceId> = made.filter_map(|wish| wish.device.cloned()).collect();
        if named.is_empty() || of_app.limit_of(Quota::Devices).is_none() {
            return Ok(BTreeSet::new());
        }
        Ok(self.store.unknown_devices(of_app.app(), &named).await?.into_iter().collect())
    }

    /// Subscriptions of each, where they are limited.
    async fn subscribing(&self, of_app: &OfApp, wishes: &[Wish<'_>]) -> Result<Vec<Subscribing>, Error> {
        let mut subscribing = vec![Subscribing::default(); wishes.len()];
        if of_app.limit_of(Quota::SubscriptionsPerDevice).is_none() {
            return Ok(subscribing);
        }
        let (mut places, mut wanted) = (Vec::new(), Vec::new());
        for (place, wish) in wishes.iter().enumerate() {
            let topics = wish.topics.iter().copied().filter(|topic| !topic.is_everyone());
            let topics: BTreeSet<Topic> = topics.cloned().collect();
            subscribing[place].new = topics.len() as u64;
            if let Some(device) = wish.device.filter(|_| !topics.is_empty()) {
                places.push(place);
                wanted.push((device.clone(), topics));
            }
        }
        if !wanted.is_empty() {
            let found = self.store.subscribing(of_app.app(), &wanted).await?;
            places.into_iter().zip(found).for_each(|(place, found)| subscribing[place] = found);
        }
        Ok(subscribing)
    }

    /// Of these topics those that are new to the store, where they are limited.
    pub(super) async fn unknown_topics<'a>(
        &self,
        of_app: &OfApp,
        topics: impl Iterator<Item = &'a Topic>,
    ) -> Result<BTreeSet<Topic>, Error> {
        if of_app.limit_of(Quota::Topics).is_none() {
            return Ok(BTreeSet::new());
        }
        let perhaps = of_app.topics.unknown(topics);
        if perhaps.is_empty() {
            return Ok(BTreeSet::new());
        }
        let unknown: BTreeSet<Topic> =
            self.store.unknown_topics(of_app.app(), &perhaps).await?.into_iter().collect();
        of_app.topics.learn(perhaps.iter().filter(|topic| !unknown.contains(*topic)));
        Ok(unknown)
    }
}

fn hold_one(
    of_app: &Arc<OfApp>,
    wish: &Wish<'_>,
    Subscribing { present, new }: Subscribing,
    unknown: &BTreeSet<Topic>,
    is_new: bool,
) -> Result<Held, OverQuota> {
    // What a device has it keeps, also where the limit was lowered.
    if let Some(limit) = of_app.limit_of(Quota::SubscriptionsPerDevice)
        && new > 0
        && present.saturating_add(new) > limit
    {
        return Err(of_app.refuse(Quota::SubscriptionsPerDevice, limit, RETRY_AFTER));
    }
    let mut held = Held::default();
    held.add_topics(of_app, wish.kept.iter().filter(|topic| unknown.contains(*topic)))?;
    if is_new {
        held.add(of_app.reserve(&[(Quota::Devices, 1)])?);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use noroshi_store::{Apps, Issued, Sqlite, sqlite::Options};
    use noroshi_types::quota::{Limit, Quotas as Overrides};
    use noroshi_types::{AppName, Timestamp};

    use super::*;
    use crate::Clock;
    use crate::quota::Configured;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn log_in(app: AppId, device: &str, create: bool) -> Entering {
        let login = Login {
            app,
            device: DeviceId::parse(device).expect("an id"),
            user: None,
            create,
            token_version: None,
            issued: Issued::Elsewhere,
            topics: Vec::new(),
            session_topics: Vec::new(),
            resume: None,
            now: NOW,
        };
        Entering { login, generation: 1 }
    }

    /// Apps that may have one device each, on a store of their own.
    async fn limited<const N: usize>(names: [&str; N]) -> (tempfile::TempDir, Arc<Delivery>, [AppId; N]) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = noroshi_telemetry::registry();
        let store =
            Arc::new(Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store"));
        let mut apps = Vec::new();
        for name in names {
            let name = AppName::parse(name).expect("a name");
            apps.push(store.create_app(name, Default::default(), NOW).await.expect("an app"));
        }
        let metrics = crate::metrics::Metrics::new(&mut registry);
        let delivery = Delivery::new(store, Clock::fixed(NOW), metrics, tokio::runtime::Handle::current());
        let mut overrides = Overrides::default();
        overrides.set(Quota::Devices, Some(Limit::Most(1)));
        let configured =
            |app: &noroshi_store::App| Configured { app: app.id, name: app.name.clone(), overrides };
        delivery.quotas.configure(apps.iter().map(configured));
        let ids = std::array::from_fn(|index| apps[index].id);
        (folder, delivery, ids)
    }

    #[tokio::test]
    async fn log_ins_wait_for_no_other_apps_count() {
        let (_folder, delivery, [huge, small]) = limited(["huge", "small"]).await;
        let of_app = delivery.quotas.limited(huge).expect("limited");
        let known = DeviceId::parse("jwt").expect("an id");
        let known = Registration { device: Some(known), ..Registration::default() };
        let registered = delivery.store.register(huge, vec![known], NOW).await.expect("a commit");
        assert!(registered[0].is_ok());
        // As a count that does not end.
        let counting = of_app.counts.counting.lock().await;
        let entering = [
            log_in(huge, "new", true),
            log_in(huge, "known", false),
            log_in(huge, "jwt", true),
            log_in(small, "one", true),
            log_in(small, "two", true),
        ];
        let admitted = delivery.admit_log_ins(&entering).await;
        let [new, known, jwt, one, two] = &admitted[..] else { panic!("an answer each") };
        assert!(matches!(new, Err(Error::Overloaded)), "it comes again when the app was counted");
        assert!(known.is_ok(), "what makes nothing needs no count");
        assert!(jwt.is_ok(), "a device that exists needs no count");
        assert!(one.is_ok());
        assert!(matches!(two, Err(Error::OverQuota(over)) if over.quota == Quota::Devices));
        let refused = delivery.admit_relay(huge).await;
        assert!(matches!(refused, Err(Error::OverQuota(over)) if over.quota == Quota::Devices));
        drop(counting);
        let admitted = delivery.admit_log_ins(&entering[..1]).await;
        assert!(
            matches!(admitted[0], Err(Error::OverQuota(_))),
            "counted by now: it has the one it may have"
        );
        delivery.admit_relay(huge).await.expect("counted");
    }

    #[tokio::test]
    async fn after_a_count_that_failed_all_fail_fast() {
        let (_folder, delivery, [app]) = limited(["app"]).await;
        let of_app = delivery.quotas.limited(app).expect("limited");
        of_app.counts.fail(Duration::from_secs(3_600));
        assert!(matches!(delivery.counted(app).await, Err(Error::Overloaded)));
        assert!(matches!(delivery.admit_relay(app).await, Err(Error::OverQuota(_))));
        let admitted = delivery.admit_log_ins(&[log_in(app, "new", true)]).await;
        assert!(matches!(admitted[0], Err(Error::Overloaded)));
    }

    #[tokio::test]
    async fn a_batch_of_log_ins_adds_no_count_to_one_that_runs() {
        let (_folder, delivery, [app]) = limited(["app"]).await;
        let of_app = delivery.quotas.limited(app).expect("limited");
        let _counting = of_app.counts.counting.lock().await;
        let holders = Arc::strong_count(&of_app);
        assert!(!delivery.counted_soon(&of_app).await);
        assert_eq!(Arc::strong_count(&of_app), holders, "no task waits for its turn");
    }
}

//! Whether devices have room: registrations, logins, and their subscriptions.
//!
//! A batch costs a fixed number of reads, whatever its length. A batch of logins may contain several apps. Each app is
//! decided on its own, so that an app whose count takes long or fails refuses only its own new devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use noroshi_store::{Login, Registration, Subscribing};
use noroshi_types::{AppId, DeviceId, Quota, Topic};

use super::app::AppQuotas;
use super::counts::RETRY_AFTER;
use super::reservation::{Held, Reservation};
use super::usage::Usage;
use crate::error::{Error, OverQuota};

/// The resources that one device needs.
struct Need<'a> {
    /// `None`: a device that is certainly new.
    device: Option<&'a DeviceId>,
    /// The device is created if it does not exist.
    creates: bool,
    /// All topics of its new subscriptions.
    topics: Vec<&'a Topic>,
    /// Topics of durable subscriptions, which the store creates.
    kept: &'a [Topic],
}

impl<'a> Need<'a> {
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

/// The store's view of a batch.
struct Found {
    /// Devices that do not exist yet.
    new_devices: BTreeSet<DeviceId>,
    /// For each need of the batch.
    subscribing: Vec<Subscribing>,
    /// Topics that do not exist yet.
    unknown: BTreeSet<Topic>,
}

impl Found {
    /// Whether a device or a topic would be created.
    fn creates(&self, need: &Need<'_>) -> bool {
        self.is_new(need) || need.kept.iter().any(|topic| self.unknown.contains(topic))
    }

    fn is_new(&self, need: &Need<'_>) -> bool {
        need.creates && need.device.is_none_or(|device| self.new_devices.contains(device))
    }

    fn hold(
        &mut self,
        app_quotas: &Arc<AppQuotas>,
        place: usize,
        need: &Need<'_>,
    ) -> Result<Held, OverQuota> {
        let held = hold_one(app_quotas, need, self.subscribing[place], &self.unknown, self.is_new(need))?;
        if let Some(device) = need.device {
            self.new_devices.remove(device);
        }
        Ok(held)
    }
}

/// Admits registrations, logins and subscriptions.
impl Usage {
    /// Durable subscriptions of a device: their number, and topics that are new to the store.
    pub async fn admit_subscriptions(
        &self,
        app: AppId,
        device: &DeviceId,
        topics: &[Topic],
    ) -> Result<Held, Error> {
        let Some(app_quotas) = self.counted(app).await? else { return Ok(Held::default()) };
        let need =
            Need { device: Some(device), creates: false, topics: topics.iter().collect(), kept: topics };
        let held = self.hold(&app_quotas, &[need]).await?.pop();
        Ok(held.transpose()?.unwrap_or_default())
    }

    /// Registrations, in order, each decided on its own.
    pub async fn admit_registrations(
        &self,
        app: AppId,
        registrations: &[Registration],
    ) -> Result<Vec<Result<Held, Error>>, Error> {
        let Some(app_quotas) = self.counted(app).await? else {
            return Ok(registrations.iter().map(|_| Ok(Held::default())).collect());
        };
        let needs: Vec<Need<'_>> = registrations.iter().map(Need::of_registration).collect();
        let held = self.hold(&app_quotas, &needs).await?;
        Ok(held.into_iter().map(|held| held.map_err(Error::from)).collect())
    }

    /// Logins, in order: devices that an app JWT creates, and their subscriptions.
    pub(crate) async fn admit_logins(self: &Arc<Self>, logins: &[&Login]) -> Vec<Result<Held, Error>> {
        let mut answers: Vec<Result<Held, Error>> = logins.iter().map(|_| Ok(Held::default())).collect();
        let mut by_app: BTreeMap<AppId, Vec<usize>> = BTreeMap::new();
        for (place, login) in logins.iter().enumerate() {
            by_app.entry(login.app).or_default().push(place);
        }
        let limited_apps = by_app.into_iter().filter_map(|(app, places)| Some((self.limited(app)?, places)));
        let held = limited_apps.map(async |(app_quotas, places)| {
            let logins: Vec<&Login> = places.iter().map(|place| logins[*place]).collect();
            (places, self.hold_logins(&app_quotas, &logins).await)
        });
        for (places, held) in join_all(held).await {
            places.into_iter().zip(held).for_each(|(place, held)| answers[place] = held);
        }
        answers
    }

    /// Logins of one app.
    async fn hold_logins(
        self: &Arc<Self>,
        app_quotas: &Arc<AppQuotas>,
        logins: &[&Login],
    ) -> Vec<Result<Held, Error>> {
        let needs: Vec<Need<'_>> = logins.iter().map(|login| Need::of_login(login)).collect();
        let mut found = match self.find_present(app_quotas, &needs).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(app = %app_quotas.name(), %error, "could not read what logins need for quotas");
                return logins.iter().map(|_| Err(Error::Overloaded)).collect();
            }
        };
        // Only new devices and new topics need counts.
        let is_counted = !needs.iter().any(|need| found.creates(need)) || self.counted_soon(app_quotas).await;
        let mut answers = Vec::with_capacity(needs.len());
        for (place, need) in needs.iter().enumerate() {
            answers.push(match is_counted || !found.creates(need) {
                true => found.hold(app_quotas, place, need).map_err(Error::from),
                false => Err(Error::Overloaded),
            });
        }
        answers
    }

    /// Reserves room for each need, in order, or returns why there is none.
    async fn hold(
        &self,
        app_quotas: &Arc<AppQuotas>,
        needs: &[Need<'_>],
    ) -> Result<Vec<Result<Held, OverQuota>>, Error> {
        let mut found = self.find_present(app_quotas, needs).await?;
        Ok(needs.iter().enumerate().map(|(place, need)| found.hold(app_quotas, place, need)).collect())
    }

    async fn find_present(&self, app_quotas: &AppQuotas, needs: &[Need<'_>]) -> Result<Found, Error> {
        Ok(Found {
            new_devices: self.new_devices(app_quotas, needs).await?,
            subscribing: self.subscribing(app_quotas, needs).await?,
            unknown: self.unknown_topics(app_quotas, needs.iter().flat_map(|need| need.kept)).await?,
        })
    }

    /// Devices that would be created.
    async fn new_devices(
        &self,
        app_quotas: &AppQuotas,
        needs: &[Need<'_>],
    ) -> Result<BTreeSet<DeviceId>, Error> {
        let made = needs.iter().filter(|need| need.creates);
        let named: Vec<DeviceId> = made.filter_map(|need| need.device.cloned()).collect();
        if named.is_empty() || app_quotas.limit_of(Quota::Devices).is_none() {
            return Ok(BTreeSet::new());
        }
        Ok(self.context.store.unknown_devices(app_quotas.app(), &named).await?.into_iter().collect())
    }

    /// The subscriptions of each device, if their number is limited.
    async fn subscribing(
        &self,
        app_quotas: &AppQuotas,
        needs: &[Need<'_>],
    ) -> Result<Vec<Subscribing>, Error> {
        let mut subscribing = vec![Subscribing::default(); needs.len()];
        if app_quotas.limit_of(Quota::SubscriptionsPerDevice).is_none() {
            return Ok(subscribing);
        }
        let (mut places, mut wanted) = (Vec::new(), Vec::new());
        for (place, need) in needs.iter().enumerate() {
            let topics = need.topics.iter().copied().filter(|topic| !topic.is_everyone());
            let topics: BTreeSet<Topic> = topics.cloned().collect();
            subscribing[place].new = topics.len() as u64;
            if let Some(device) = need.device.filter(|_| !topics.is_empty()) {
                places.push(place);
                wanted.push((device.clone(), topics));
            }
        }
        if !wanted.is_empty() {
            let found = self.context.store.subscribing(app_quotas.app(), &wanted).await?;
            places.into_iter().zip(found).for_each(|(place, found)| subscribing[place] = found);
        }
        Ok(subscribing)
    }
}

fn hold_one(
    app_quotas: &Arc<AppQuotas>,
    need: &Need<'_>,
    Subscribing { present, new }: Subscribing,
    unknown: &BTreeSet<Topic>,
    is_new: bool,
) -> Result<Held, OverQuota> {
    // A device keeps its subscriptions after the limit was lowered.
    if let Some(limit) = app_quotas.limit_of(Quota::SubscriptionsPerDevice)
        && new > 0
        && present.saturating_add(new) > limit
    {
        return Err(app_quotas.refuse(Quota::SubscriptionsPerDevice, limit, RETRY_AFTER));
    }
    let mut held = Held::default();
    held.add_topics(app_quotas, need.kept.iter().filter(|topic| unknown.contains(*topic)))?;
    if is_new {
        held.add(Reservation::hold(app_quotas, &[(Quota::Devices, 1)])?);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use noroshi_store::{Apps, Issued, Sqlite, Store, sqlite::Options};
    use noroshi_types::quota::{Limit, Quotas as Overrides};
    use noroshi_types::{AppName, Timestamp};

    use super::*;
    use crate::clock::Clock;
    use crate::context::Context;
    use crate::quota::{Configured, Metrics, Quotas};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn login(app: AppId, device: &str, create: bool) -> Login {
        Login {
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
        }
    }

    /// Apps that may have one device each, on a store of their own.
    struct Bench<const N: usize> {
        apps: [AppId; N],
        store: Arc<dyn Store>,
        quotas: Arc<Quotas>,
        usage: Arc<Usage>,
        _folder: tempfile::TempDir,
    }

    async fn limited<const N: usize>(names: [&str; N]) -> Bench<N> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = noroshi_telemetry::registry();
        let store = Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store");
        let mut apps = Vec::new();
        for name in names {
            let name = AppName::parse(name).expect("a name");
            apps.push(store.create_app(name, Default::default(), NOW).await.expect("an app"));
        }
        let store: Arc<dyn Store> = Arc::new(store);
        let clock = Clock::fixed(NOW);
        let runtime = tokio::runtime::Handle::current();
        let context = Arc::new(Context::new(store.clone(), clock, Default::default(), runtime));
        let quotas = Arc::new(Quotas::new(Metrics::default()));
        let usage = Arc::new(Usage { context, quotas: quotas.clone() });
        let mut overrides = Overrides::default();
        overrides.set(Quota::Devices, Some(Limit::Most(1)));
        let configured =
            |app: &noroshi_store::App| Configured { app: app.id, name: app.name.clone(), overrides };
        quotas.configure(apps.iter().map(configured));
        let apps = std::array::from_fn(|index| apps[index].id);
        Bench { apps, store, quotas, usage, _folder: folder }
    }

    impl<const N: usize> Bench<N> {
        async fn admit(&self, logins: &[Login]) -> Vec<Result<Held, Error>> {
            self.usage.admit_logins(&logins.iter().collect::<Vec<_>>()).await
        }
    }

    #[tokio::test]
    async fn logins_wait_for_no_other_apps_count() {
        let bench = limited(["huge", "small"]).await;
        let [huge, small] = bench.apps;
        let app_quotas = bench.quotas.limited(huge).expect("limited");
        let known = DeviceId::parse("jwt").expect("an id");
        let known = Registration { device: Some(known), ..Registration::default() };
        let registered = bench.store.register(huge, vec![known], NOW).await.expect("a commit");
        assert!(registered[0].is_ok());
        // Represents a count that does not end.
        let counting = app_quotas.counts.counting.lock().await;
        let logins = [
            login(huge, "new", true),
            login(huge, "known", false),
            login(huge, "jwt", true),
            login(small, "one", true),
            login(small, "two", true),
        ];
        let admitted = bench.admit(&logins).await;
        let [new, known, jwt, one, two] = &admitted[..] else { panic!("an answer each") };
        assert!(matches!(new, Err(Error::Overloaded)), "it retries after the app was counted");
        assert!(known.is_ok(), "a login that creates nothing needs no count");
        assert!(jwt.is_ok(), "a device that exists needs no count");
        assert!(one.is_ok());
        assert!(matches!(two, Err(Error::OverQuota(over)) if over.quota == Quota::Devices));
        let refused = bench.usage.admit_relay(huge).await;
        assert!(matches!(refused, Err(Error::OverQuota(over)) if over.quota == Quota::Devices));
        drop(counting);
        let admitted = bench.admit(&logins[..1]).await;
        assert!(matches!(admitted[0], Err(Error::OverQuota(_))), "counted: the app has its one device");
        bench.usage.admit_relay(huge).await.expect("counted");
    }

    #[tokio::test]
    async fn after_a_failed_count_all_requests_fail_fast() {
        let bench = limited(["app"]).await;
        let [app] = bench.apps;
        let app_quotas = bench.quotas.limited(app).expect("limited");
        app_quotas.counts.fail(Duration::from_secs(3_600));
        assert!(matches!(bench.usage.counted(app).await, Err(Error::Overloaded)));
        assert!(matches!(bench.usage.admit_relay(app).await, Err(Error::OverQuota(_))));
        let admitted = bench.admit(&[login(app, "new", true)]).await;
        assert!(matches!(admitted[0], Err(Error::Overloaded)));
    }

    #[tokio::test]
    async fn a_batch_of_logins_starts_no_second_count() {
        let bench = limited(["app"]).await;
        let [app] = bench.apps;
        let app_quotas = bench.quotas.limited(app).expect("limited");
        let _counting = app_quotas.counts.counting.lock().await;
        let holders = Arc::strong_count(&app_quotas);
        assert!(!bench.usage.counted_soon(&app_quotas).await);
        assert_eq!(Arc::strong_count(&app_quotas), holders, "no task waits for its turn");
    }
}

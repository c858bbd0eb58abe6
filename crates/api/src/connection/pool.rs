//! Limits the open HTTP connections of one listener, in total and per client.
//!
//! A full pool evicts the connection that has waited longest for its peer. Connections without a credential are evicted
//! first, then devices, then providers; within each, connections without a request first, then idle ones, then those in
//! the middle of a request. A connection whose request is being processed, and a provider's in the middle of a request,
//! is never evicted. If no connection can be evicted, the new one is rejected.
//!
//! A connection has no credential until its first request brings one. On the public addresses, that request has arrived
//! when the connection enters, so a provider cannot be evicted in between. On the admin address it has not.
//!
//! Each concurrent stream of an HTTP/2 connection after the first has its own place, so one connection cannot hold more
//! than several could. While the gateway counts a connection, its place is lent ([`Place::lend`]). A reclaimed connection
//! may find the pool full of work: the pool then exceeds its limit until a connection becomes evictable.
//!
//! The lock guards indices and counts; no `.await` happens under it. A request takes it a few times.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use noroshi_auth::ClientNetwork;
use noroshi_types::names;
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, SetOnce};

mod metrics;

pub use metrics::PoolMetrics;
use metrics::{ClosedLabels, EvictedLabels, ListenerLabels, RefusedLabels, TOO_MANY_STREAMS};

/// Evicted connections that have not closed yet. At this number the pool rejects new connections, so descriptors in use
/// stay below `connections_max` plus this. Streams have no descriptors and do not count.
pub const EVICTED_MAX: usize = 32;

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    pub connections_max: usize,
    /// For one client network, without providers. 0: no limit.
    pub per_client_max: usize,
}

names! {
    /// Why the pool rejected a connection.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Rejection {
        /// Every connection of the pool is in use.
        PoolFull => "full",
        /// Every connection allowed to this client is in use.
        ClientFull => "client",
    }
}

names! {
    /// The best credential of a connection so far, in the order of eviction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Trust {
        None => "none",
        /// A valid credential of a device.
        Device => "device",
        /// A valid API key, or the operator's token.
        Provider => "provider",
    }
}

/// What a connection is doing, in the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// No request has arrived yet.
    Silent,
    /// Between two requests.
    Idle,
    /// In the middle of a request: waits until the peer sends or reads bytes, or the response is delayed on purpose
    /// ([`crate::observe`]).
    AwaitsPeer,
    Working,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    listener: &'static str,
    limits: PoolLimits,
    metrics: PoolMetrics,
    open: Gauge,
    places: Mutex<Places>,
    /// Notified when an evicted connection has closed. One listener waits on it.
    closed: Notify,
}

/// The connection with the least order is evicted first.
type Order = (Trust, Activity, u64);

struct Entry {
    trust: Trust,
    activity: Activity,
    /// When `activity` began, by [`Places::clock`].
    since: u64,
    /// None: the connection does not count towards a client's limit.
    client: Option<ClientNetwork>,
    holder: Holder,
    evict: Evict,
}

/// Set when the holder of a place must release it. The connection's task and the current request both wait on it.
type Evict = Arc<SetOnce<()>>;

impl Entry {
    fn order(&self) -> Option<Order> {
        let stays = self.activity == Activity::Working
            || (self.trust == Trust::Provider && self.activity != Activity::Idle);
        (!stays).then_some((self.trust, self.activity, self.since))
    }
}

#[derive(Default)]
struct ClientPlaces {
    count: usize,
    evictable: BTreeMap<Order, u64>,
}

#[derive(Default)]
struct Places {
    open: HashMap<u64, Entry>,
    /// Counted by the gateway until reclaimed.
    lent: HashMap<u64, Entry>,
    evictable: BTreeMap<Order, u64>,
    clients: HashMap<ClientNetwork, ClientPlaces>,
    /// Evicted, but not closed yet.
    leaving: usize,
    /// Incremented with every change, so that orders are unique.
    clock: u64,
}

impl Pool {
    /// `listener` is the label of its metrics: `public` or `admin`.
    pub fn new(listener: &'static str, limits: PoolLimits, metrics: PoolMetrics) -> Self {
        let open = metrics.open.get_or_create_owned(&ListenerLabels { listener });
        Self(Arc::new(Inner {
            listener,
            limits,
            metrics,
            open,
            places: Mutex::default(),
            closed: Notify::new(),
        }))
    }

    /// A place for a connection whose first request has arrived. `client`: whose limit it counts towards; none for a
    /// trusted proxy, which carries requests of many clients.
    pub fn enter(&self, client: Option<ClientNetwork>) -> Result<Place, Rejection> {
        self.enter_at(Activity::Working, client)
    }

    /// A place for a connection that has sent nothing yet.
    pub fn enter_silent(&self, client: Option<ClientNetwork>) -> Result<Place, Rejection> {
        self.enter_at(Activity::Silent, client)
    }

    /// Waits while [`EVICTED_MAX`] evicted connections have not closed yet. A listener that accepts nothing meanwhile
    /// rejects no connection because of them; they close as soon as their tasks run. Cancel-safe.
    pub async fn ready(&self) {
        loop {
            let closed = self.0.closed.notified();
            if self.0.places.lock().leaving < EVICTED_MAX {
                return;
            }
            closed.await;
        }
    }

    fn enter_at(&self, activity: Activity, client: Option<ClientNetwork>) -> Result<Place, Rejection> {
        let place = self.0.enter_counted(activity, client, Holder::Connection)?;
        self.0.open.inc();
        Ok(place)
    }
}

impl Inner {
    fn enter_counted(
        self: &Arc<Self>,
        activity: Activity,
        client: Option<ClientNetwork>,
        holder: Holder,
    ) -> Result<Place, Rejection> {
        let entered = self.enter(activity, client.filter(|_| self.limits.per_client_max > 0), holder);
        if let Err(rejection) = &entered {
            self.count_refused(rejection.as_str());
        }
        entered.map(|(id, evict)| Place { pool: self.clone(), id, evict, holder })
    }

    /// Evicts what a new connection needs to stay within the limits.
    fn make_room(&self, places: &mut Places, client: Option<ClientNetwork>) -> Result<(), Rejection> {
        if let Some(client_places) = client.and_then(|client| places.clients.get(&client))
            && client_places.count >= self.limits.per_client_max
        {
            let oldest = client_places.evictable.values().next().copied().ok_or(Rejection::ClientFull)?;
            self.evict(places, oldest);
        }
        if places.open.len() >= self.limits.connections_max {
            let oldest = places.evictable.values().next().copied().ok_or(Rejection::PoolFull)?;
            self.evict(places, oldest);
        }
        Ok(())
    }

    fn enter(
        &self,
        activity: Activity,
        client: Option<ClientNetwork>,
        holder: Holder,
    ) -> Result<(u64, Evict), Rejection> {
        let places = &mut *self.places.lock();
        if places.leaving >= EVICTED_MAX {
            return Err(Rejection::PoolFull);
        }
        self.make_room(places, client)?;
        places.clock += 1;
        let (id, evict) = (places.clock, Evict::default());
        let entry = Entry { trust: Trust::None, activity, since: id, client, holder, evict: evict.clone() };
        places.insert(id, entry);
        Ok((id, evict))
    }

    fn count(&self, open: &Family<ListenerLabels, Gauge>) -> OpenGuard {
        let gauge = open.get_or_create_owned(&ListenerLabels { listener: self.listener });
        gauge.inc();
        OpenGuard(gauge)
    }

    fn count_refused(&self, reason: &'static str) {
        let labels = RefusedLabels { listener: self.listener, reason };
        self.metrics.refused.get_or_create(&labels).inc();
    }

    fn change(&self, places: &mut Places, id: u64, change: impl FnOnce(&mut Entry)) {
        places.change(id, change);
        self.evict_if_over(places, id);
    }

    /// Evicts the entry if it is evictable and the pool exceeds a limit.
    fn evict_if_over(&self, places: &mut Places, id: u64) {
        let Some(entry) = places.open.get(&id).filter(|entry| entry.order().is_some()) else { return };
        let client_places = entry.client.and_then(|client| places.clients.get(&client));
        let is_over = places.open.len() > self.limits.connections_max
            || client_places.is_some_and(|client_places| client_places.count > self.limits.per_client_max);
        if is_over {
            self.evict(places, id);
        }
    }

    fn evict(&self, places: &mut Places, id: u64) {
        let Some(entry) = places.take(id) else { return };
        places.leaving += usize::from(entry.holder == Holder::Connection);
        let _ = entry.evict.set(()); // open entries are not set yet
        let labels = EvictedLabels { listener: self.listener, credential: entry.trust.as_str() };
        self.metrics.evicted.get_or_create(&labels).inc();
    }
}

impl Places {
    fn insert(&mut self, id: u64, entry: Entry) {
        if let Some(client) = entry.client {
            self.clients.entry(client).or_default().count += 1;
        }
        self.index(id, &entry);
        self.open.insert(id, entry);
    }

    fn take(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        self.unindex(&entry);
        if let Some(client) = entry.client {
            self.uncount(client);
        }
        Some(entry)
    }

    fn uncount(&mut self, client: ClientNetwork) {
        if let Some(client_places) = self.clients.get_mut(&client) {
            client_places.count -= 1;
            if client_places.count == 0 {
                self.clients.remove(&client);
            }
        }
    }

    fn unindex(&mut self, entry: &Entry) {
        let Some(order) = entry.order() else { return };
        self.evictable.remove(&order);
        if let Some(client_places) = entry.client.and_then(|client| self.clients.get_mut(&client)) {
            client_places.evictable.remove(&order);
        }
    }

    fn index(&mut self, id: u64, entry: &Entry) {
        let Some(order) = entry.order() else { return };
        self.evictable.insert(order, id);
        if let Some(client_places) = entry.client.and_then(|client| self.clients.get_mut(&client)) {
            client_places.evictable.insert(order, id);
        }
    }

    /// Does nothing if the entry was already evicted.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(lent) = self.lent.get_mut(&id) {
            return change(lent);
        }
        let Some(mut entry) = self.open.remove(&id) else { return };
        self.unindex(&entry);
        let counted = entry.client;
        change(&mut entry);
        if let Some(client) = counted.filter(|_| entry.client.is_none()) {
            self.uncount(client);
        }
        self.index(id, &entry);
        self.open.insert(id, entry);
    }
}

/// What holds a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Connection,
    /// A stream of an HTTP/2 connection.
    Stream,
}

/// The place of a connection or a stream. Dropping it releases the place.
pub struct Place {
    pool: Arc<Inner>,
    id: u64,
    evict: Evict,
    holder: Holder,
}

names! {
    /// Why an HTTP/2 connection ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Http2Close {
        Client => "client",
        Idle => "idle",
        Drain => "drain",
        Evicted => "evicted",
        Unresponsive => "unresponsive",
        Flood => "flood",
        Error => "error",
    }
}

/// Counts an open HTTP/2 connection or stream until dropped.
pub(crate) struct OpenGuard(Gauge);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Place {
    /// A place for another stream of this connection.
    pub(crate) fn for_stream(&self) -> Result<Place, Rejection> {
        let client = {
            let places = self.pool.places.lock();
            places.open.get(&self.id).or_else(|| places.lent.get(&self.id)).and_then(|entry| entry.client)
        };
        self.pool.enter_counted(Activity::Working, client, Holder::Stream)
    }

    /// Until [`Place::reclaim`], the gateway counts the connection.
    pub(crate) fn lend(&self) {
        let places = &mut *self.pool.places.lock();
        if let Some(entry) = places.take(self.id) {
            places.lent.insert(self.id, entry);
        }
    }

    /// The pool counts the connection again. If no other connection can be evicted for it, it must close: now, or as
    /// soon as no request of it is in progress.
    pub(crate) fn reclaim(&self) {
        let places = &mut *self.pool.places.lock();
        let Some(entry) = places.lent.remove(&self.id) else { return };
        let _ = self.pool.make_room(places, entry.client);
        places.insert(self.id, entry);
        self.pool.evict_if_over(places, self.id);
    }

    pub(crate) fn count_http2(&self) -> OpenGuard {
        self.pool.count(&self.pool.metrics.http2)
    }

    pub(crate) fn count_stream(&self) -> OpenGuard {
        self.pool.count(&self.pool.metrics.http2_streams)
    }

    /// A stream was reset because too many are in progress.
    pub(crate) fn count_refused_stream(&self) {
        self.pool.count_refused(TOO_MANY_STREAMS);
    }

    pub(crate) fn count_closed(&self, ended: Http2Close) {
        let labels = ClosedLabels { listener: self.pool.listener, reason: ended.as_str() };
        self.pool.metrics.http2_closed.get_or_create(&labels).inc();
    }

    /// Resolves when the connection must close or the stream must end. Cancel-safe.
    pub(crate) async fn evicted(&self) {
        self.evict.wait().await;
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        let places = &mut *self.pool.places.lock();
        places.clock += 1;
        let now = places.clock;
        self.pool.change(places, self.id, |entry| (entry.activity, entry.since) = (activity, now));
    }

    /// Keeps the best credential.
    pub(crate) fn record_trust(&self, trust: Trust) {
        let places = &mut *self.pool.places.lock();
        self.pool.change(places, self.id, |entry| {
            entry.trust = entry.trust.max(trust);
            if entry.trust == Trust::Provider {
                entry.client = None;
            }
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.pool.places.lock();
        let was_evicted = places.take(self.id).is_none() && places.lent.remove(&self.id).is_none();
        if self.holder == Holder::Stream {
            return;
        }
        if was_evicted {
            places.leaving -= 1;
        }
        drop(places);
        if was_evicted {
            self.pool.closed.notify_one();
        }
        self.pool.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(connections_max: usize, per_client_max: usize) -> Pool {
        Pool::new("public", PoolLimits { connections_max, per_client_max }, PoolMetrics::unregistered())
    }

    fn client(n: u8) -> Option<ClientNetwork> {
        Some(ClientNetwork::of(std::net::IpAddr::from([192, 0, 2, n])))
    }

    fn enter(pool: &Pool, from: u8, activity: Activity, trust: Trust) -> Place {
        let Ok(place) = pool.enter(client(from)) else { panic!("rejected") };
        place.record_trust(trust);
        place.set_activity(activity);
        place
    }

    fn is_evicted(place: &Place) -> bool {
        !place.pool.places.lock().open.contains_key(&place.id)
    }

    #[test]
    fn connections_without_credential_are_evicted_first_and_the_longest_idle_of_them() {
        use Activity::{AwaitsPeer, Idle, Working};
        use Trust::{Device, None as Unknown, Provider};
        let pool = pool(7, 0);
        let order = [
            enter(&pool, 1, Idle, Provider),
            enter(&pool, 1, Idle, Device),
            enter(&pool, 1, AwaitsPeer, Unknown),
            enter(&pool, 1, Idle, Unknown),
            enter(&pool, 1, Idle, Unknown),
        ];
        let kept = [enter(&pool, 1, Working, Unknown), enter(&pool, 1, AwaitsPeer, Provider)];
        order[3].set_activity(Working);
        order[3].set_activity(Idle); // it was used, so the other one has been idle for longer
        let mut newcomers = Vec::new();
        for expected in [4, 3, 2, 1, 0] {
            let Ok(newcomer) = pool.enter(client(2)) else { panic!("rejected") };
            newcomers.push(newcomer);
            let evicted: Vec<_> = order.iter().map(is_evicted).collect();
            assert!(evicted[expected], "{expected}: {evicted:?}");
            assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), newcomers.len());
        }
        assert!(!kept.iter().any(is_evicted));
        assert_eq!(pool.enter(client(2)).err(), Some(Rejection::PoolFull), "all are working");
        drop(order);
        assert_eq!(pool.0.places.lock().leaving, 0);
        drop((kept, newcomers));
        let places = pool.0.places.lock();
        assert!(places.open.is_empty() && places.evictable.is_empty() && places.clients.is_empty());
    }

    #[test]
    fn connections_without_a_request_are_evicted_before_idle_ones() {
        let pool = pool(3, 0);
        let used = enter(&pool, 1, Activity::Idle, Trust::None);
        let Ok(silent) = pool.enter_silent(None) else { panic!("rejected") };
        let Ok(asking) = pool.enter_silent(None) else { panic!("rejected") };
        asking.set_activity(Activity::Working);
        let newcomer = pool.enter_silent(None);
        assert!(newcomer.is_ok() && is_evicted(&silent) && !is_evicted(&used) && !is_evicted(&asking));
    }

    #[tokio::test]
    async fn a_listener_waits_while_evicted_connections_close() {
        let pool = pool(1, 0);
        let mut evicted: Vec<_> = (0..=EVICTED_MAX).filter_map(|_| pool.enter_silent(None).ok()).collect();
        assert_eq!(evicted.len(), EVICTED_MAX + 1);
        assert_eq!(pool.enter_silent(None).err(), Some(Rejection::PoolFull));
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { pool.ready().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(evicted.remove(0));
        waiting.await.expect("it continues");
        assert!(pool.enter_silent(None).is_ok());
    }

    /// Otherwise one client could have all others rejected by evicting its own streams.
    #[test]
    fn evicted_streams_that_have_not_ended_cause_no_rejection() {
        let pool = pool(100, 2);
        let Ok(connection) = pool.enter(client(1)) else { panic!("rejected") };
        let streams: Vec<_> = (0..=EVICTED_MAX)
            .filter_map(|_| {
                let stream = connection.for_stream().ok()?;
                stream.set_activity(Activity::AwaitsPeer);
                Some(stream)
            })
            .collect();
        assert!(streams[..EVICTED_MAX].iter().all(is_evicted) && streams.len() == EVICTED_MAX + 1);
        assert!(pool.enter(client(2)).is_ok());
        drop((streams, connection));
        assert_eq!(pool.0.places.lock().leaving, 0);
    }

    #[test]
    fn a_client_evicts_its_own_connections_and_providers_do_not_count() {
        let pool = pool(100, 2);
        let first = enter(&pool, 1, Activity::Idle, Trust::Device);
        let second = enter(&pool, 1, Activity::Working, Trust::None);
        let other = enter(&pool, 2, Activity::Idle, Trust::None);
        let third = enter(&pool, 1, Activity::Working, Trust::None);
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&other));
        assert_eq!(pool.enter(client(1)).err(), Some(Rejection::ClientFull));
        third.record_trust(Trust::Provider);
        let fourth = enter(&pool, 1, Activity::Working, Trust::None);
        assert_eq!(pool.enter(client(1)).err(), Some(Rejection::ClientFull));
        assert!(pool.enter(None).is_ok(), "a trusted proxy");
        drop((first, second, third, fourth, other));
        let places = pool.0.places.lock();
        assert!(places.open.is_empty() && places.evictable.is_empty() && places.clients.is_empty());
    }

    #[test]
    fn evicted_connections_that_do_not_close_are_bounded() {
        let pool = pool(1, 0);
        let stuck: Vec<_> = (0..=EVICTED_MAX)
            .map(|_| {
                let place = enter(&pool, 1, Activity::Idle, Trust::None);
                place.set_activity(Activity::Idle);
                place
            })
            .collect();
        assert_eq!(pool.enter(None).err(), Some(Rejection::PoolFull));
        drop(stuck);
        assert!(pool.enter(None).is_ok());
    }
}

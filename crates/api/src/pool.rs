//! The open HTTP connections of one listener: bounded in number, for all clients together and for each.
//!
//! A full pool makes room for a newcomer: it evicts the connection that waits for its peer and has waited
//! longest. Strangers go before devices, devices before providers; of each, silent connections go before idle ones,
//! and these before those in the middle of a request. A connection whose request is in work, and a provider's in the
//! middle of a request, is never evicted. Only if nobody can be evicted, the newcomer is refused.
//!
//! A newcomer is a stranger until its first request brought a credential. On the public addresses its first request is
//! there when it enters, so a provider cannot be evicted between. On the admin address nothing has to be there yet.
//!
//! Each stream of an HTTP/2 connection beside the first one in work has a place of its own, so that a client holds with one
//! connection no more than with many. While the gateway counts a connection it has lent its place
//! ([`Place::lend`]). A connection that comes back may find the pool full of work: the pool then holds more than it
//! may, until the next of them can be evicted.
//!
//! The lock guards indices and counts; nothing waits under it. It is taken a few times a request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use noroshi_auth::ClientNetwork;
use noroshi_telemetry::Registry;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, SetOnce};

/// Evicted connections whose tasks have not closed them yet. Newcomers are refused above it, so that
/// descriptors in use stay below `connections_max` plus this. Streams have no descriptors and do not count.
pub const EVICTED_MAX: usize = 32;

/// How many connections a pool holds.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    pub connections_max: usize,
    /// Of one client network, providers apart; 0: no limit.
    pub per_client_max: usize,
}

/// Why a connection was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Every connection of the pool is in use.
    Pool,
    /// Every connection that this client may have is in use.
    Client,
}

/// The best credential that a connection has shown. In the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    None,
    /// A valid one of a device.
    Device,
    /// A valid API key, or the operator's token.
    Provider,
}

/// What a connection does. In the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// No request has come yet.
    Silent,
    /// Between two requests.
    Idle,
    /// In the middle of a request: the peer owes bytes, or does not take those it is sent, or the response is delayed
    /// on purpose ([`crate::observe`]).
    AwaitsPeer,
    Working,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictedLabels {
    listener: &'static str,
    /// `none`, `device` or `provider`
    credential: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    listener: &'static str,
    /// `full`, `client` or `streams`
    reason: &'static str,
}

/// Of all pools of a node.
#[derive(Debug, Clone)]
pub struct PoolMetrics {
    open: Family<ListenerLabels, Gauge>,
    evicted: Family<EvictedLabels, Counter>,
    refused: Family<RefusedLabels, Counter>,
    http2: Family<ListenerLabels, Gauge>,
    http2_streams: Family<ListenerLabels, Gauge>,
    http2_closed: Family<ClosedLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    listener: &'static str,
    reason: &'static str,
}

impl PoolMetrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        let help = "Open HTTP connections, by listener";
        registry.register("api_connections", help, metrics.open.clone());
        let help = "HTTP connections closed, and HTTP/2 streams reset, to make room for others, by listener and the best credential they had shown";
        registry.register("api_connections_evicted", help, metrics.evicted.clone());
        let help = "HTTP connections and HTTP/2 streams answered 503, since all are in use (full) or all that one client may have (client), \
             and streams reset with REFUSED_STREAM, since requests of reset streams are still in work (streams)";
        registry.register("api_connections_refused", help, metrics.refused.clone());
        let help = "Open HTTP connections that speak HTTP/2, by listener";
        registry.register("api_http2_connections", help, metrics.http2.clone());
        let help = "Open HTTP/2 streams, by listener";
        registry.register("api_http2_streams", help, metrics.http2_streams.clone());
        let help = "Closed HTTP/2 connections, by listener and reason: by the client (client), no requests (idle), the node shuts down or moves devices away (drain), \
             to make room (evicted), without an answer to a PING (unresponsive), for floods of frames or resets (flood), broken (error)";
        registry.register("api_http2_connections_closed", help, metrics.http2_closed.clone());
        metrics
    }

    /// For tests.
    pub fn unregistered() -> Self {
        let metrics = Self {
            open: Family::default(),
            evicted: Family::default(),
            refused: Family::default(),
            http2: Family::default(),
            http2_streams: Family::default(),
            http2_closed: Family::default(),
        };
        // From the first scrape on: what never happened is 0.
        for listener in ["public", "admin"] {
            drop(metrics.open.get_or_create_owned(&ListenerLabels { listener }));
            for trust in [Trust::None, Trust::Device, Trust::Provider] {
                let labels = EvictedLabels { listener, credential: trust.as_str() };
                drop(metrics.evicted.get_or_create_owned(&labels));
            }
            for reason in [NoRoom::Pool.as_str(), NoRoom::Client.as_str(), TOO_MANY_STREAMS] {
                let labels = RefusedLabels { listener, reason };
                drop(metrics.refused.get_or_create_owned(&labels));
            }
            drop(metrics.http2.get_or_create_owned(&ListenerLabels { listener }));
            drop(metrics.http2_streams.get_or_create_owned(&ListenerLabels { listener }));
            for ended in Ended::ALL {
                let labels = ClosedLabels { listener, reason: ended.as_str() };
                drop(metrics.http2_closed.get_or_create_owned(&labels));
            }
        }
        metrics
    }
}

const TOO_MANY_STREAMS: &str = "streams";

impl Trust {
    fn as_str(self) -> &'static str {
        match self {
            Trust::None => "none",
            Trust::Device => "device",
            Trust::Provider => "provider",
        }
    }
}

impl NoRoom {
    fn as_str(self) -> &'static str {
        match self {
            NoRoom::Pool => "full",
            NoRoom::Client => "client",
        }
    }
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
    /// Notified when an evicted connection has closed. One listener waits for it.
    closed: Notify,
}

/// Which of several connections is evicted first: the least.
type Order = (Trust, Activity, u64);

struct Entry {
    trust: Trust,
    activity: Activity,
    /// When `activity` began, by [`Places::clock`].
    since: u64,
    /// None: it does not count for its client.
    client: Option<ClientNetwork>,
    holder: Holder,
    evict: Evict,
}

/// Set when the holder of a place has to give it back: the connection's task and the request in work both look.
type Evict = Arc<SetOnce<()>>;

impl Entry {
    fn order(&self) -> Option<Order> {
        let stays = self.activity == Activity::Working
            || (self.trust == Trust::Provider && self.activity != Activity::Idle);
        (!stays).then_some((self.trust, self.activity, self.since))
    }
}

#[derive(Default)]
struct OfClient {
    count: usize,
    evictable: BTreeMap<Order, u64>,
}

#[derive(Default)]
struct Places {
    open: HashMap<u64, Entry>,
    /// Counted by the gateway for now.
    lent: HashMap<u64, Entry>,
    evictable: BTreeMap<Order, u64>,
    clients: HashMap<ClientNetwork, OfClient>,
    /// Evicted, but not closed yet.
    leaving: usize,
    /// Grows with every change, so that orders are unique.
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

    /// A place for a connection whose first request is there. `client`: whom it counts for; none where nobody is
    /// to be limited, such as a trusted proxy that carries requests of many.
    pub fn enter(&self, client: Option<ClientNetwork>) -> Result<Place, NoRoom> {
        self.enter_at(Activity::Working, client)
    }

    /// A place for a connection of which nothing came yet.
    pub fn enter_silent(&self, client: Option<ClientNetwork>) -> Result<Place, NoRoom> {
        self.enter_at(Activity::Silent, client)
    }

    /// Waits while too many evicted connections have not closed yet. A listener that accepts nothing meanwhile refuses
    /// nobody for them: they close as soon as their tasks run.
    pub async fn can_evict(&self) {
        loop {
            let closed = self.0.closed.notified();
            if self.0.places.lock().leaving < EVICTED_MAX {
                return;
            }
            closed.await;
        }
    }

    fn enter_at(&self, activity: Activity, client: Option<ClientNetwork>) -> Result<Place, NoRoom> {
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
    ) -> Result<Place, NoRoom> {
        let entered = self.enter(activity, client.filter(|_| self.limits.per_client_max > 0), holder);
        if let Err(no_room) = &entered {
            self.count_refused(no_room.as_str());
        }
        entered.map(|(id, evict)| Place { pool: self.clone(), id, evict, holder })
    }

    /// Evicts as many connections as one more needs.
    fn make_room(&self, places: &mut Places, client: Option<ClientNetwork>) -> Result<(), NoRoom> {
        if let Some(of_client) = client.and_then(|client| places.clients.get(&client))
            && of_client.count >= self.limits.per_client_max
        {
            let oldest = of_client.evictable.values().next().copied().ok_or(NoRoom::Client)?;
            self.evict(places, oldest);
        }
        if places.open.len() >= self.limits.connections_max {
            let oldest = places.evictable.values().next().copied().ok_or(NoRoom::Pool)?;
            self.evict(places, oldest);
        }
        Ok(())
    }

    fn enter(
        &self,
        activity: Activity,
        client: Option<ClientNetwork>,
        holder: Holder,
    ) -> Result<(u64, Evict), NoRoom> {
        let places = &mut *self.places.lock();
        if places.leaving >= EVICTED_MAX {
            return Err(NoRoom::Pool);
        }
        self.make_room(places, client)?;
        places.clock += 1;
        let (id, evict) = (places.clock, Evict::default());
        let entry = Entry { trust: Trust::None, activity, since: id, client, holder, evict: evict.clone() };
        places.insert(id, entry);
        Ok((id, evict))
    }

    fn count(&self, open: &Family<ListenerLabels, Gauge>) -> Open {
        let gauge = open.get_or_create_owned(&ListenerLabels { listener: self.listener });
        gauge.inc();
        Open(gauge)
    }

    fn count_refused(&self, reason: &'static str) {
        let labels = RefusedLabels { listener: self.listener, reason };
        self.metrics.refused.get_or_create(&labels).inc();
    }

    fn change(&self, places: &mut Places, id: u64, change: impl FnOnce(&mut Entry)) {
        places.change(id, change);
        self.evict_if_over(places, id);
    }

    /// Evicts the entry if it can be and there are more than the limits allow.
    fn evict_if_over(&self, places: &mut Places, id: u64) {
        let Some(entry) = places.open.get(&id).filter(|entry| entry.order().is_some()) else { return };
        let of_client = entry.client.and_then(|client| places.clients.get(&client));
        let is_over = places.open.len() > self.limits.connections_max
            || of_client.is_some_and(|of_client| of_client.count > self.limits.per_client_max);
        if is_over {
            self.evict(places, id);
        }
    }

    fn evict(&self, places: &mut Places, id: u64) {
        let Some(entry) = places.take(id) else { return };
        places.leaving += usize::from(entry.holder == Holder::Connection);
        let _ = entry.evict.set(()); // it was open, so nothing had set it
        let labels = EvictedLabels { listener: self.listener, credential: entry.trust.as_str() };
        self.metrics.evicted.get_or_create(&labels).inc();
    }
}

impl Places {
    fn insert(&mut self, id: u64, entry: Entry) {
        if let Some(client) = entry.client {
            self.clients.entry(client).or_default().count += 1;
        }
        self.note(id, &entry);
        self.open.insert(id, entry);
    }

    fn take(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        self.forget(&entry);
        if let Some(client) = entry.client {
            self.uncount(client);
        }
        Some(entry)
    }

    fn uncount(&mut self, client: ClientNetwork) {
        if let Some(of_client) = self.clients.get_mut(&client) {
            of_client.count -= 1;
            if of_client.count == 0 {
                self.clients.remove(&client);
            }
        }
    }

    fn forget(&mut self, entry: &Entry) {
        let Some(order) = entry.order() else { return };
        self.evictable.remove(&order);
        if let Some(of_client) = entry.client.and_then(|client| self.clients.get_mut(&client)) {
            of_client.evictable.remove(&order);
        }
    }

    fn note(&mut self, id: u64, entry: &Entry) {
        let Some(order) = entry.order() else { return };
        self.evictable.insert(order, id);
        if let Some(of_client) = entry.client.and_then(|client| self.clients.get_mut(&client)) {
            of_client.evictable.insert(order, id);
        }
    }

    /// An entry that was evicted already is not changed.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(lent) = self.lent.get_mut(&id) {
            return change(lent);
        }
        let Some(mut entry) = self.open.remove(&id) else { return };
        self.forget(&entry);
        let counted = entry.client;
        change(&mut entry);
        if let Some(client) = counted.filter(|_| entry.client.is_none()) {
            self.uncount(client);
        }
        self.note(id, &entry);
        self.open.insert(id, entry);
    }
}

/// Who has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Connection,
    /// Of an HTTP/2 connection.
    Stream,
}

/// The place of one connection, or of a stream; free again when this is dropped.
pub struct Place {
    pool: Arc<Inner>,
    id: u64,
    evict: Evict,
    holder: Holder,
}

/// Why an HTTP/2 connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Client,
    Idle,
    Drain,
    Evicted,
    Unresponsive,
    Flood,
    Error,
}

impl Ended {
    const ALL: [Ended; 7] = [
        Ended::Client,
        Ended::Idle,
        Ended::Drain,
        Ended::Evicted,
        Ended::Unresponsive,
        Ended::Flood,
        Ended::Error,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Ended::Client => "client",
            Ended::Idle => "idle",
            Ended::Drain => "drain",
            Ended::Evicted => "evicted",
            Ended::Unresponsive => "unresponsive",
            Ended::Flood => "flood",
            Ended::Error => "error",
        }
    }
}

/// Counts an HTTP/2 connection or stream for as long as it is there.
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Place {
    /// A place for one more stream of this connection.
    pub(crate) fn beside(&self) -> Result<Place, NoRoom> {
        let client = {
            let places = self.pool.places.lock();
            places.open.get(&self.id).or_else(|| places.lent.get(&self.id)).and_then(|entry| entry.client)
        };
        self.pool.enter_counted(Activity::Working, client, Holder::Stream)
    }

    /// The connection counts elsewhere until [`Place::reclaim`].
    pub(crate) fn lend(&self) {
        let places = &mut *self.pool.places.lock();
        if let Some(entry) = places.take(self.id) {
            places.lent.insert(self.id, entry);
        }
    }

    /// The connection counts here again. Where nothing makes room for it, it has to close: at once, or as soon as no
    /// request of it is in work.
    pub(crate) fn reclaim(&self) {
        let places = &mut *self.pool.places.lock();
        let Some(entry) = places.lent.remove(&self.id) else { return };
        let _ = self.pool.make_room(places, entry.client);
        places.insert(self.id, entry);
        self.pool.evict_if_over(places, self.id);
    }

    pub(crate) fn count_http2(&self) -> Open {
        self.pool.count(&self.pool.metrics.http2)
    }

    pub(crate) fn count_stream(&self) -> Open {
        self.pool.count(&self.pool.metrics.http2_streams)
    }

    /// A stream was reset, since as many as may be are in work.
    pub(crate) fn count_refused_stream(&self) {
        self.pool.count_refused(TOO_MANY_STREAMS);
    }

    pub(crate) fn count_closed(&self, ended: Ended) {
        let labels = ClosedLabels { listener: self.pool.listener, reason: ended.as_str() };
        self.pool.metrics.http2_closed.get_or_create(&labels).inc();
    }

    /// Resolves when the connection has to close, or the stream to end. Cancel-safe.
    pub(crate) async fn evicted(&self) {
        self.evict.wait().await;
    }

    pub(crate) fn is_at(&self, activity: Activity) {
        let places = &mut *self.pool.places.lock();
        places.clock += 1;
        let now = places.clock;
        self.pool.change(places, self.id, |entry| (entry.activity, entry.since) = (activity, now));
    }

    /// The best credential counts.
    pub(crate) fn has_shown(&self, trust: Trust) {
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
        let Ok(place) = pool.enter(client(from)) else { panic!("no room") };
        place.has_shown(trust);
        place.is_at(activity);
        place
    }

    fn is_evicted(place: &Place) -> bool {
        !place.pool.places.lock().open.contains_key(&place.id)
    }

    #[test]
    fn strangers_go_first_and_the_longest_idle_of_them() {
        use Activity::{AwaitsPeer, Idle, Working};
        use Trust::{Device, None as Stranger, Provider};
        let pool = pool(7, 0);
        let order = [
            enter(&pool, 1, Idle, Provider),
            enter(&pool, 1, Idle, Device),
            enter(&pool, 1, AwaitsPeer, Stranger),
            enter(&pool, 1, Idle, Stranger),
            enter(&pool, 1, Idle, Stranger),
        ];
        let stay = [enter(&pool, 1, Working, Stranger), enter(&pool, 1, AwaitsPeer, Provider)];
        order[3].is_at(Working);
        order[3].is_at(Idle); // it was used, so the other one is idle for longer
        let mut newcomers = Vec::new();
        for expected in [4, 3, 2, 1, 0] {
            let Ok(newcomer) = pool.enter(client(2)) else { panic!("no room") };
            newcomers.push(newcomer);
            let evicted: Vec<_> = order.iter().map(is_evicted).collect();
            assert!(evicted[expected], "{expected}: {evicted:?}");
            assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), newcomers.len());
        }
        assert!(!stay.iter().any(is_evicted));
        assert_eq!(pool.enter(client(2)).err(), Some(NoRoom::Pool), "all are at work");
        drop(order);
        assert_eq!(pool.0.places.lock().leaving, 0);
        drop((stay, newcomers));
        let places = pool.0.places.lock();
        assert!(places.open.is_empty() && places.evictable.is_empty() && places.clients.is_empty());
    }

    #[test]
    fn connections_without_a_request_go_before_those_that_had_one() {
        let pool = pool(3, 0);
        let used = enter(&pool, 1, Activity::Idle, Trust::None);
        let Ok(silent) = pool.enter_silent(None) else { panic!("no room") };
        let Ok(asking) = pool.enter_silent(None) else { panic!("no room") };
        asking.is_at(Activity::Working);
        let newcomer = pool.enter_silent(None);
        assert!(newcomer.is_ok() && is_evicted(&silent) && !is_evicted(&used) && !is_evicted(&asking));
    }

    #[tokio::test]
    async fn a_listener_waits_while_evicted_connections_close() {
        let pool = pool(1, 0);
        let mut evicted: Vec<_> = (0..=EVICTED_MAX).filter_map(|_| pool.enter_silent(None).ok()).collect();
        assert_eq!(evicted.len(), EVICTED_MAX + 1);
        assert_eq!(pool.enter_silent(None).err(), Some(NoRoom::Pool));
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { pool.can_evict().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(evicted.remove(0));
        waiting.await.expect("it goes on");
        assert!(pool.enter_silent(None).is_ok());
    }

    /// Else one client could refuse everybody by making room for itself.
    #[test]
    fn evicted_streams_that_have_not_ended_refuse_nobody() {
        let pool = pool(100, 2);
        let Ok(connection) = pool.enter(client(1)) else { panic!("no room") };
        let streams: Vec<_> = (0..=EVICTED_MAX)
            .filter_map(|_| {
                let stream = connection.beside().ok()?;
                stream.is_at(Activity::AwaitsPeer);
                Some(stream)
            })
            .collect();
        assert!(streams[..EVICTED_MAX].iter().all(is_evicted) && streams.len() == EVICTED_MAX + 1);
        assert!(pool.enter(client(2)).is_ok());
        drop((streams, connection));
        assert_eq!(pool.0.places.lock().leaving, 0);
    }

    #[test]
    fn a_client_makes_room_for_itself_and_providers_do_not_count() {
        let pool = pool(100, 2);
        let first = enter(&pool, 1, Activity::Idle, Trust::Device);
        let second = enter(&pool, 1, Activity::Working, Trust::None);
        let other = enter(&pool, 2, Activity::Idle, Trust::None);
        let third = enter(&pool, 1, Activity::Working, Trust::None);
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&other));
        assert_eq!(pool.enter(client(1)).err(), Some(NoRoom::Client));
        third.has_shown(Trust::Provider);
        let fourth = enter(&pool, 1, Activity::Working, Trust::None);
        assert_eq!(pool.enter(client(1)).err(), Some(NoRoom::Client));
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
                place.is_at(Activity::Idle);
                place
            })
            .collect();
        assert_eq!(pool.enter(None).err(), Some(NoRoom::Pool));
        drop(stuck);
        assert!(pool.enter(None).is_ok());
    }
}

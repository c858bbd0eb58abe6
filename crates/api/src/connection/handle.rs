//! State shared by a connection, its requests and their bodies: what the connection waits for, and how it must end. The
//! handle reports the connection's activity to the pool.
//!
//! An HTTP/1.1 connection has one handle, since it serves one request at a time. Each stream of an HTTP/2 connection has
//! its own handle, and the connection's handle counts them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::handoff::GatewayRequest;
use super::pool::{Activity, Place, Rejection, Trust};

/// The client of a request, behind trusted proxies too. An extension of each request, for limits, rate limits and
/// access logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// Cheap to clone. Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct Handle(Arc<Inner>);

/// How a connection counts one of its streams.
const NOT_COUNTED: u8 = 0;
const AWAITS_PEER: u8 = 1;
const WORKING: u8 = 2;

#[derive(Default)]
struct Inner {
    /// None: the connection is in no pool, or the stream uses the place of its connection.
    place: Option<Place>,
    stream: Option<StreamState>,
    /// HTTP/2 connections: streams with a request in progress, and those of them that do not wait for the peer.
    streams: AtomicUsize,
    working: AtomicUsize,
    /// HTTP/2 connections: a stream uses the connection's place.
    is_shared: AtomicBool,
    /// HTTP/2 connections: streams that the gateway counts. While there is one, the gateway counts the connection too.
    bridged: AtomicUsize,
    /// The peer sent bytes, or read blocked ones, since [`Handle::take_active`].
    was_active: AtomicBool,
    /// A request is in progress, up to the end of its response.
    in_request: AtomicBool,
    /// The handler waits for more of the body.
    awaits_body: AtomicBool,
    /// The peer did not read all of the last write.
    is_write_blocked: AtomicBool,
    /// The response is ready, but delayed.
    is_delayed: AtomicBool,
    /// A body missed a deadline.
    is_body_timed_out: AtomicBool,
    /// Part of a body was not read: the connection cannot serve another request.
    has_unread: AtomicBool,
    handed_off: Mutex<Option<GatewayRequest>>,
}

/// State of streams only.
struct StreamState {
    connection: Handle,
    /// How the connection counts the stream.
    counted: AtomicU8,
    /// The stream uses the connection's place.
    shares: bool,
}

impl Handle {
    pub(crate) fn new(place: Option<Place>) -> Self {
        Self(Arc::new(Inner { place, ..Inner::default() }))
    }

    /// A new stream. One stream at a time uses the place of the connection; each further one takes its own place, as a
    /// connection does.
    pub(crate) fn of_stream(connection: &Handle) -> Result<Self, Rejection> {
        let inner = &connection.0;
        let shares =
            inner.bridged.load(Ordering::Relaxed) == 0 && !inner.is_shared.swap(true, Ordering::Relaxed);
        let place = match &inner.place {
            Some(place) if !shares => Some(place.for_stream()?),
            _ => None,
        };
        let stream =
            StreamState { connection: connection.clone(), counted: AtomicU8::new(NOT_COUNTED), shares };
        Ok(Self(Arc::new(Inner { place, stream: Some(stream), ..Inner::default() })))
    }

    /// The connection has sent no request yet.
    pub(crate) fn set_silent(&self) {
        if let Some(place) = &self.0.place {
            place.set_activity(Activity::Silent);
        }
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// While the result is held, the gateway counts the connection and the pool does not.
    pub(crate) fn lend(&self) -> LentPlace {
        if self.0.bridged.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(place) = &self.0.place
        {
            place.lend();
        }
        LentPlace(self.clone())
    }

    /// Whether the gateway serves a stream of the connection.
    pub(crate) fn is_lent(&self) -> bool {
        self.0.bridged.load(Ordering::Relaxed) > 0
    }

    /// Resolves when the pool evicts the connection or stream. Cancel-safe.
    pub(crate) async fn evicted(&self) {
        let connection_place = || self.0.stream.as_ref()?.connection.0.place.as_ref();
        match self.0.place.as_ref().or_else(connection_place) {
            Some(place) => place.evicted().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn set_active(&self) {
        self.0.was_active.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_active(&self) -> bool {
        self.0.was_active.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn begin_request(&self) {
        self.0.has_unread.store(false, Ordering::Relaxed);
        self.set(&self.0.in_request, true);
    }

    pub(crate) fn end_request(&self) {
        self.set(&self.0.in_request, false);
    }

    pub(crate) fn set_awaits_body(&self, awaits: bool) {
        self.set(&self.0.awaits_body, awaits);
    }

    pub(crate) fn set_write_blocked(&self, blocked: bool) {
        self.set(&self.0.is_write_blocked, blocked);
    }

    /// The pool may evict the connection while its response is delayed.
    pub(crate) fn set_delayed(&self, delayed: bool) {
        self.set(&self.0.is_delayed, delayed);
    }

    fn set(&self, flag: &AtomicBool, to: bool) {
        if flag.swap(to, Ordering::Relaxed) != to {
            self.report();
        }
    }

    /// Reports the activity to the pool and to the stream's connection. A connection runs in one task, so the flags are
    /// consistent.
    fn report(&self) {
        let activity = self.0.activity();
        if let Some(place) = &self.0.place {
            place.set_activity(activity);
        }
        if let Some(stream) = &self.0.stream {
            stream.connection.recount(&stream.counted, activity);
        }
    }

    fn recount(&self, counted: &AtomicU8, activity: Activity) {
        let now = match activity {
            Activity::Working => WORKING,
            Activity::AwaitsPeer => AWAITS_PEER,
            Activity::Idle | Activity::Silent => NOT_COUNTED,
        };
        let before = counted.swap(now, Ordering::Relaxed);
        let count = |number: &AtomicUsize, was: bool, is: bool| match (was, is) {
            (false, true) => drop(number.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(number.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        };
        count(&self.0.streams, before != NOT_COUNTED, now != NOT_COUNTED);
        count(&self.0.working, before == WORKING, now == WORKING);
        if before != now {
            self.report();
        }
    }

    /// The request brought a valid credential.
    pub(crate) fn record_trust(&self, trust: Trust) {
        if let Some(place) = &self.0.place {
            place.record_trust(trust);
        }
        if let Some(stream) = &self.0.stream {
            stream.connection.record_trust(trust);
        }
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.0.is_write_blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_body_timed_out(&self) {
        self.0.is_body_timed_out.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_body_timed_out(&self) -> bool {
        self.0.is_body_timed_out.load(Ordering::Relaxed)
    }

    pub(crate) fn set_unread(&self) {
        self.0.has_unread.store(true, Ordering::Relaxed);
    }

    /// Makes the connection linger when it closes, so that unread bytes do not cost the peer the end of the
    /// response.
    pub(crate) fn linger_at_end(&self) {
        self.set_unread();
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.0.has_unread.load(Ordering::Relaxed)
    }

    /// The connection's next request is for the gateway.
    pub(super) fn hand_off(&self, request: GatewayRequest) {
        *self.0.handed_off.lock() = Some(request);
    }

    pub(super) fn is_handed_off(&self) -> bool {
        self.0.handed_off.lock().is_some()
    }

    pub(super) fn take_handed_off(&self) -> Option<GatewayRequest> {
        self.0.handed_off.lock().take()
    }
}

impl Inner {
    fn activity(&self) -> Activity {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let some = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 0;
        if some(&self.working) {
            Activity::Working // even if other streams wait for the peer
        } else if is(&self.awaits_body) || is(&self.is_write_blocked) || is(&self.is_delayed) {
            Activity::AwaitsPeer
        } else if is(&self.in_request) {
            Activity::Working
        } else if some(&self.streams) {
            Activity::AwaitsPeer
        } else {
            Activity::Idle
        }
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        self.connection.recount(&self.counted, Activity::Idle);
        if self.shares {
            self.connection.0.is_shared.store(false, Ordering::Relaxed);
        }
    }
}

/// Held by a stream that the gateway serves.
pub(crate) struct LentPlace(Handle);

impl Drop for LentPlace {
    fn drop(&mut self) {
        if self.0.0.bridged.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(place) = &self.0.0.place
        {
            place.reclaim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::pool::{Pool, PoolLimits, PoolMetrics};

    fn pool(connections_max: usize) -> Pool {
        let limits = PoolLimits { connections_max, per_client_max: 0 };
        Pool::new("public", limits, PoolMetrics::unregistered())
    }

    fn connection(pool: &Pool) -> Handle {
        let Ok(place) = pool.enter(None) else { panic!("rejected") };
        Handle::new(Some(place))
    }

    #[test]
    fn further_streams_take_places_as_connections_do() {
        let pool = pool(3);
        let connection = connection(&pool);
        let stream = || {
            let stream = Handle::of_stream(&connection)?;
            stream.begin_request();
            Ok::<_, Rejection>(stream)
        };
        let streams: Vec<_> = (0..3).map(|_| stream()).collect();
        assert!(streams.iter().all(Result::is_ok));
        assert_eq!(stream().err(), Some(Rejection::PoolFull));
        drop(streams);
        assert_eq!((0..3).filter(|_| stream().is_ok()).count(), 3, "one at a time");
        assert_eq!(connection.0.activity(), Activity::Idle);
    }

    #[test]
    fn a_connection_is_working_while_a_stream_is() {
        let pool = pool(9);
        let connection = connection(&pool);
        let (one, two) = (Handle::of_stream(&connection).ok(), Handle::of_stream(&connection).ok());
        let (Some(one), Some(two)) = (one, two) else { panic!("rejected") };
        one.begin_request();
        two.begin_request();
        two.set_awaits_body(true);
        assert_eq!(connection.0.activity(), Activity::Working);
        one.set_delayed(true);
        assert_eq!(connection.0.activity(), Activity::AwaitsPeer);
        two.set_awaits_body(false);
        assert_eq!(connection.0.activity(), Activity::Working);
        drop(two);
        one.end_request();
        one.set_delayed(false);
        assert_eq!(connection.0.activity(), Activity::Idle);
        assert_eq!(
            (connection.0.streams.load(Ordering::Relaxed), connection.0.working.load(Ordering::Relaxed)),
            (0, 0)
        );
    }

    #[test]
    fn the_pool_does_not_count_a_connection_with_an_event_stream() {
        let pool = pool(1);
        let device = connection(&pool);
        let stream = device.lend();
        let other = connection(&pool);
        assert!(pool.enter(None).is_err(), "the other connection is working");
        other.begin_request();
        other.end_request();
        drop(stream);
        assert!(is_evicted(&other), "the idle connection");
        assert!(!is_evicted(&device));
    }

    #[test]
    fn a_reclaimed_idle_connection_is_evicted_from_a_full_pool() {
        let pool = pool(1);
        let device = connection(&pool);
        device.set_silent();
        let stream = device.lend();
        let _working = connection(&pool);
        drop(stream);
        assert!(is_evicted(&device));
    }

    #[test]
    fn a_reclaimed_working_connection_is_evicted_after_its_request() {
        let pool = pool(2);
        let connection = connection(&pool);
        let (Ok(request), Ok(other)) = (Handle::of_stream(&connection), Handle::of_stream(&connection))
        else {
            panic!("rejected")
        };
        request.begin_request();
        other.begin_request();
        let stream = connection.lend();
        let Ok(_working) = pool.enter(None) else { panic!("rejected") };
        drop(stream);
        assert!(!is_evicted(&connection) && !is_evicted(&request) && !is_evicted(&other));
        drop(request);
        assert!(!is_evicted(&connection), "another request is in progress");
        other.end_request();
        assert!(is_evicted(&other), "its place is enough");
        assert!(!is_evicted(&connection));
    }

    #[test]
    fn a_write_blocked_connection_stays_while_a_stream_is_working() {
        let pool = pool(1);
        let connection = connection(&pool);
        let Ok(stream) = Handle::of_stream(&connection) else { panic!("rejected") };
        stream.begin_request();
        connection.set_write_blocked(true);
        assert!(pool.enter(None).is_err());
        stream.set_awaits_body(true);
        assert!(pool.enter(None).is_ok() && is_evicted(&connection) && is_evicted(&stream));
    }

    fn is_evicted(handle: &Handle) -> bool {
        futures_util::FutureExt::now_or_never(handle.evicted()).is_some()
    }
}

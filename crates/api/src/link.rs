//! What a connection and the requests on it tell each other: who is at the other end, what it waits for, and how
//! it has to end.
//!
//! An HTTP/1.1 connection has one link, since it serves one request at a time. Each stream of an HTTP/2 connection has a link
//! of its own, and the connection's link counts them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::pool::{Activity, NoRoom, Place, Trust};
use crate::turn::Turned;

/// Who sent a request, behind trusted proxies too. [`crate::serve_connection`] adds it to each request; limits,
/// rate limits and access logs use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// Shared by a connection, the request in work and its body. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<Inner>);

/// What a connection counts one of its streams as.
const NOT_COUNTED: u8 = 0;
const AWAITS_PEER: u8 = 1;
const WORKING: u8 = 2;

#[derive(Default)]
struct Inner {
    /// None: nobody counts the connection. Of a stream: it uses the place of its connection.
    place: Option<Place>,
    stream: Option<OfStream>,
    /// Of an HTTP/2 connection: its streams with a request in work, and those of them that do not wait for the peer.
    streams: AtomicUsize,
    working: AtomicUsize,
    /// Of an HTTP/2 connection: a stream uses its place.
    is_shared: AtomicBool,
    /// Of an HTTP/2 connection: its streams that the gateway counts, and the connection with them.
    bridged: AtomicUsize,
    /// The peer sent bytes, or took some that had waited, since somebody looked.
    was_heard: AtomicBool,
    /// A request is in work, up to the end of its answer.
    in_request: AtomicBool,
    /// The handler waits for more of the body.
    awaits_body: AtomicBool,
    /// The peer did not take the last write whole.
    is_write_blocked: AtomicBool,
    /// The response is ready, and delayed.
    is_delayed: AtomicBool,
    /// A body missed a deadline.
    is_late: AtomicBool,
    /// Part of a body was not read: the connection cannot serve another request.
    has_unread: AtomicBool,
    turned: Mutex<Option<Turned>>,
}

/// What only a stream's link has.
struct OfStream {
    connection: Link,
    /// What the connection counts the stream as.
    counted: AtomicU8,
    /// It uses the connection's place.
    shares: bool,
}

impl Link {
    pub(crate) fn new(place: Option<Place>) -> Self {
        Self(Arc::new(Inner { place, ..Inner::default() }))
    }

    /// Of a new stream. One at a time uses the place of the connection; each further one takes a place as a connection
    /// would.
    pub(crate) fn of_stream(connection: &Link) -> Result<Self, NoRoom> {
        let of_connection = &connection.0;
        let shares = of_connection.bridged.load(Ordering::Relaxed) == 0
            && !of_connection.is_shared.swap(true, Ordering::Relaxed);
        let place = match &of_connection.place {
            Some(place) if !shares => Some(place.beside()?),
            _ => None,
        };
        let stream = OfStream { connection: connection.clone(), counted: AtomicU8::new(NOT_COUNTED), shares };
        Ok(Self(Arc::new(Inner { place, stream: Some(stream), ..Inner::default() })))
    }

    /// The connection has not asked for anything yet.
    pub(crate) fn is_silent(&self) {
        if let Some(place) = &self.0.place {
            place.is_at(Activity::Silent);
        }
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// While this is held the gateway counts the connection, and its pool does not.
    pub(crate) fn lend(&self) -> LentPlace {
        if self.0.bridged.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(place) = &self.0.place
        {
            place.lend();
        }
        LentPlace(self.clone())
    }

    /// Whether a stream of the connection is the gateway's.
    pub(crate) fn is_lent(&self) -> bool {
        self.0.bridged.load(Ordering::Relaxed) > 0
    }

    /// Resolves when the connection, or the stream, has to make room for another. Cancel-safe.
    pub(crate) async fn evicted(&self) {
        let of_connection = || self.0.stream.as_ref()?.connection.0.place.as_ref();
        match self.0.place.as_ref().or_else(of_connection) {
            Some(place) => place.evicted().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn heard(&self) {
        self.0.was_heard.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_heard(&self) -> bool {
        self.0.was_heard.swap(false, Ordering::Relaxed)
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
            self.tell();
        }
    }

    /// All of a connection runs in one task, so what one flag says is not outrun by another.
    fn tell(&self) {
        let activity = self.0.activity();
        if let Some(place) = &self.0.place {
            place.is_at(activity);
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
            self.tell();
        }
    }

    pub(crate) fn has_shown(&self, trust: Trust) {
        if let Some(place) = &self.0.place {
            place.has_shown(trust);
        }
        if let Some(stream) = &self.0.stream {
            stream.connection.has_shown(trust);
        }
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.0.is_write_blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn body_was_late(&self) {
        self.0.is_late.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_late(&self) -> bool {
        self.0.is_late.load(Ordering::Relaxed)
    }

    pub(crate) fn left_unread(&self) {
        self.0.has_unread.store(true, Ordering::Relaxed);
    }

    /// The peer may send bytes that nobody reads: they must not cost it the end of what it is sent.
    pub(crate) fn linger_at_end(&self) {
        self.left_unread();
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.0.has_unread.load(Ordering::Relaxed)
    }

    pub(crate) fn turn(&self, turned: Turned) {
        *self.0.turned.lock() = Some(turned);
    }

    pub(crate) fn has_turned(&self) -> bool {
        self.0.turned.lock().is_some()
    }

    pub(crate) fn take_turned(&self) -> Option<Turned> {
        self.0.turned.lock().take()
    }
}

impl Inner {
    fn activity(&self) -> Activity {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let some = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 0;
        if some(&self.working) {
            Activity::Working // whatever the other streams wait for
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

impl Drop for OfStream {
    fn drop(&mut self) {
        self.connection.recount(&self.counted, Activity::Idle);
        if self.shares {
            self.connection.0.is_shared.store(false, Ordering::Relaxed);
        }
    }
}

/// Held by a stream that the gateway counts.
pub(crate) struct LentPlace(Link);

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
    use crate::pool::{Pool, PoolLimits, PoolMetrics};

    fn pool(connections_max: usize) -> Pool {
        let limits = PoolLimits { connections_max, per_client_max: 0 };
        Pool::new("public", limits, PoolMetrics::unregistered())
    }

    fn connection(pool: &Pool) -> Link {
        let Ok(place) = pool.enter(None) else { panic!("no room") };
        Link::new(Some(place))
    }

    #[test]
    fn streams_beside_the_first_take_places_as_connections_do() {
        let pool = pool(3);
        let connection = connection(&pool);
        let stream = || {
            let stream = Link::of_stream(&connection)?;
            stream.begin_request();
            Ok::<_, NoRoom>(stream)
        };
        let streams: Vec<_> = (0..3).map(|_| stream()).collect();
        assert!(streams.iter().all(Result::is_ok));
        assert_eq!(stream().err(), Some(NoRoom::Pool));
        drop(streams);
        assert_eq!((0..3).filter(|_| stream().is_ok()).count(), 3, "one at a time");
        assert_eq!(connection.0.activity(), Activity::Idle);
    }

    #[test]
    fn a_connection_works_as_long_as_one_stream_does() {
        let pool = pool(9);
        let connection = connection(&pool);
        let (one, two) = (Link::of_stream(&connection).ok(), Link::of_stream(&connection).ok());
        let (Some(one), Some(two)) = (one, two) else { panic!("no room") };
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
    fn a_connection_with_an_event_stream_is_not_the_pools() {
        let pool = pool(1);
        let device = connection(&pool);
        let stream = device.lend();
        let other = connection(&pool);
        assert!(pool.enter(None).is_err(), "the other one works");
        other.begin_request();
        other.end_request();
        drop(stream);
        assert!(is_evicted(&other), "the idle one makes room");
        assert!(!is_evicted(&device));
    }

    #[test]
    fn a_connection_that_comes_back_to_a_full_pool_goes() {
        let pool = pool(1);
        let device = connection(&pool);
        device.is_silent();
        let stream = device.lend();
        let _works = connection(&pool);
        drop(stream);
        assert!(is_evicted(&device));
    }

    #[test]
    fn a_connection_that_comes_back_with_a_request_in_work_goes_after_it() {
        let pool = pool(2);
        let connection = connection(&pool);
        let (Ok(request), Ok(other)) = (Link::of_stream(&connection), Link::of_stream(&connection)) else {
            panic!("no room")
        };
        request.begin_request();
        other.begin_request();
        let stream = connection.lend();
        let Ok(_works) = pool.enter(None) else { panic!("no room") };
        drop(stream);
        assert!(!is_evicted(&connection) && !is_evicted(&request) && !is_evicted(&other));
        drop(request);
        assert!(!is_evicted(&connection), "the other one is in work");
        other.end_request();
        assert!(is_evicted(&other), "which makes the room that is needed");
        assert!(!is_evicted(&connection));
    }

    #[test]
    fn a_connection_whose_socket_is_full_stays_while_a_stream_works() {
        let pool = pool(1);
        let connection = connection(&pool);
        let Ok(stream) = Link::of_stream(&connection) else { panic!("no room") };
        stream.begin_request();
        connection.set_write_blocked(true);
        assert!(pool.enter(None).is_err());
        stream.set_awaits_body(true);
        assert!(pool.enter(None).is_ok() && is_evicted(&connection) && is_evicted(&stream));
    }

    fn is_evicted(link: &Link) -> bool {
        futures_util::FutureExt::now_or_never(link.evicted()).is_some()
    }
}

//! What a connection and the requests on it tell each other: who is at the other end, what it waits for, and how
//! it has to end.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::pool::{Activity, Place, Trust};
use crate::turn::Turned;

/// Who sent a request, behind trusted proxies too. [`crate::serve_connection`] adds it to each request; limits,
/// rate limits and access logs use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// Shared by a connection, the request in work and its body. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// None: nobody counts the connection.
    place: Option<Place>,
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

impl Link {
    pub(crate) fn new(place: Option<Place>) -> Self {
        Self(Arc::new(Inner { place, ..Inner::default() }))
    }

    /// Resolves when the connection has to make room for another. Cancel-safe.
    pub(crate) async fn evicted(&self) {
        match &self.0.place {
            Some(place) => place.evicted().await,
            None => std::future::pending().await,
        }
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

    /// All of a connection runs in one task, so what one flag says is not outrun by another.
    fn set(&self, flag: &AtomicBool, to: bool) {
        let Some(place) = &self.0.place else { return flag.store(to, Ordering::Relaxed) };
        if flag.swap(to, Ordering::Relaxed) != to {
            let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            let inner = &self.0;
            let gives_way = is(&inner.awaits_body) || is(&inner.is_write_blocked) || is(&inner.is_delayed);
            place.is_at(match gives_way {
                true => Activity::AwaitsPeer,
                false if is(&self.0.in_request) => Activity::Working,
                false => Activity::Idle,
            });
        }
    }

    pub(crate) fn has_shown(&self, trust: Trust) {
        if let Some(place) = &self.0.place {
            place.has_shown(trust);
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

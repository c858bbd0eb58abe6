//! What every request can reach. The node makes it once; nothing here changes afterwards but the flags
//! and counters inside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_auth::Auth;
use noroshi_delivery::Delivery;
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;
use noroshi_types::{Timestamp, limits};

use crate::body::Limits;
use crate::drain::Drain;
use crate::first_call::FirstCalls;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::pace::{Pace, Paces};

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct Config {
    pub limits: Limits,
    /// How devices reach this service from outside, such as `https://push.example.com`; none: as the
    /// request says in its `Host` header.
    pub public_url: Option<String>,
    /// How they reach MQTT and XMPP over TCP, such as `mqtts://push.example.com:8883`; none: they are not told.
    pub mqtt_public_url: Option<String>,
    pub xmpp_public_url: Option<String>,
    /// A request to a host directly under this domain names the app of that name.
    pub app_domain: Option<String>,
    pub device_token_ttl: Duration,
    /// False on a node without the role `api`: of the public routes only those of the gateway are served.
    pub public: bool,
    /// Requests in work at once; one more is answered 503.
    pub requests_max: usize,
    /// Bytes of bodies in memory at once, over all requests.
    pub bodies_bytes_max: usize,
    /// How often others may post to Web Push endpoints.
    pub web_push: Paces,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            public_url: None,
            mqtt_public_url: None,
            xmpp_public_url: None,
            app_domain: None,
            device_token_ttl: limits::DEVICE_TOKEN_TTL,
            public: true,
            // Ten times what two cores work on at once; each costs some tens of KiB.
            requests_max: 4_096,
            // 16 batches of the largest size.
            bodies_bytes_max: 256 << 20,
            web_push: Paces {
                endpoint_per_minute: limits::ENDPOINT_MESSAGES_PER_MINUTE,
                app_per_second: limits::APP_ENDPOINT_MESSAGES_PER_SECOND,
            },
        }
    }
}

/// Shared as `Arc<State>` by both routers.
pub struct State {
    pub auth: Arc<Auth>,
    pub delivery: Arc<Delivery>,
    pub config: Config,
    pub metrics: Metrics,
    /// All metrics of the node, for `/metrics`.
    pub registry: Arc<Registry>,
    /// True while the node takes traffic.
    pub ready: Arc<AtomicBool>,
    /// Which thread failed, if one did.
    pub threads: Threads,
    /// Opens the admin listener's `/v1/apps`, `/v1/drain` and `/v1/nodes`; none: nothing does.
    pub operator_token: Option<String>,
    /// Moves devices away; none: there are none.
    pub drain: Option<Arc<dyn Drain>>,
    /// Who else is there; none: nobody knows.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// Where the program's time and memory go.
    pub profiler: noroshi_profiling::Profiler,
    /// Answers to first calls. Made by `FirstCalls::default()`.
    pub first_calls: FirstCalls,
    /// Made by `Load::default()`.
    pub load: Load,
}

/// Which listener a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Public,
    /// Loopback by default.
    Admin,
}

/// What handlers are given.
#[derive(Clone)]
pub struct Api {
    pub(crate) state: Arc<State>,
    pub(crate) door: Door,
}

impl std::ops::Deref for Api {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl State {
    pub fn now(&self) -> Timestamp {
        self.delivery.clock().now()
    }

    /// Counts a request in; none if there are too many.
    pub(crate) fn enter(&self) -> Option<Share> {
        let mut share = Share::of(&self.load.requests);
        share.grow(1, self.config.requests_max).then_some(share)
    }

    /// An empty share of the memory for bodies; it grows with what arrives.
    pub(crate) fn body_share(&self) -> Share {
        Share::of(&self.load.bodies_bytes)
    }
}

/// What is in work.
#[derive(Default)]
pub struct Load {
    requests: Arc<AtomicUsize>,
    bodies_bytes: Arc<AtomicUsize>,
    /// Of what comes without a credential.
    pub(crate) pace: Arc<Pace>,
}

/// A part of a bounded resource, given back when dropped.
pub(crate) struct Share {
    of: Arc<AtomicUsize>,
    size: usize,
}

impl Share {
    fn of(resource: &Arc<AtomicUsize>) -> Self {
        Self { of: resource.clone(), size: 0 }
    }

    /// False, and unchanged, if the whole would pass `max`.
    pub(crate) fn grow(&mut self, by: usize, max: usize) -> bool {
        let fits = |used: usize| used.checked_add(by).filter(|used| *used <= max);
        let grown = self.of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        self.size += if grown { by } else { 0 };
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// The other end of the connection that a request came by; [`crate::serve_connection`] adds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client speaks TLS.
    pub secure: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_back_and_never_exceeds_the_whole() {
        let used = Arc::new(AtomicUsize::new(0));
        let (mut first, mut second) = (Share::of(&used), Share::of(&used));
        assert!(first.grow(3, 4));
        assert!(!second.grow(2, 4));
        assert!(!second.grow(usize::MAX, 4));
        drop(first);
        assert!(second.grow(4, 4));
        drop(second);
        assert_eq!(used.load(Ordering::Relaxed), 0);
    }
}

//! What all adapters of the node share: configuration, tokens, the session registry, and each protocol's own service.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use noroshi_auth::Auth;
use noroshi_protocol::mqtt::filter_matches;
use noroshi_store::App;
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppId, JsonText, Push, Request, Target, Timestamp, Topic, Ttl, Urgency, When, limits};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::rate::Rate;
use crate::session::registry::Registry;
use crate::session::stamp::Stamps;

pub(crate) struct Services {
    pub(crate) config: Arc<Config>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) generations: Generations,
    /// What single protocols share among their connections, one value of each type.
    pub(crate) of_protocols: Vec<Box<dyn Any + Send + Sync>>,
}

impl Services {
    /// What the connections of one protocol share.
    pub(crate) fn of<T: Any>(&self) -> &T {
        let found = self.of_protocols.iter().find_map(|service| service.downcast_ref());
        found.expect("`registry::services` makes a value of each type")
    }

    pub(crate) fn frame_rate(&self) -> Rate {
        Rate { per_second: self.config.frames_per_second, burst: self.config.frames_burst }
    }

    /// Whether clients of an app may publish to a topic, by the app's filters.
    pub(crate) fn may_publish(&self, app: AppId, topic: &Topic) -> bool {
        let may_publish = |app: &App| {
            let open = self.config.anonymous_app.as_deref() == Some(app.name.as_str());
            open || app.settings.client_publish.iter().any(|filter| filter_matches(filter, topic.as_str()))
        };
        !needs_rule(topic.as_str()) && self.auth.with_app(app, may_publish).unwrap_or(false)
    }
}

/// What a client publishes to a topic, in the terms of a provider's request.
pub(crate) fn publication(topic: Topic, data: JsonText, when: When, life: Duration, retain: bool) -> Request {
    Request {
        target: Target::Topic(topic),
        when,
        ttl: Ttl::new(life.min(limits::TTL_MAX)).unwrap_or_default(),
        urgency: Urgency::Normal,
        waits_for_use: false,
        category: None,
        collapse_key: None,
        retain,
        notification: None,
        data: Some(data),
        push: Push::default(),
        item: None,
        trace: None,
    }
}

/// Numbers that grow for as long as the node lives and from one run to the next.
pub(crate) struct Generations(AtomicU64);

impl Generations {
    pub(crate) fn new(now: Timestamp) -> Self {
        // A later run begins above an earlier one: 2^20 log-ins a millisecond are out of reach.
        Self(AtomicU64::new(now.0 << 20))
    }

    /// Grows with the clock, so that of two log-ins at two nodes the later one has the greater.
    pub(crate) fn next(&self, now: Timestamp) -> u64 {
        let next = |last: u64| (last + 1).max(now.0 << 20);
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or_else(next, next)
    }

    /// A number as unique as a generation, without a clock.
    pub(crate) fn next_number(&self) -> u64 {
        self.next(Timestamp(0))
    }

    /// The next ones are greater: another node's clock is ahead.
    pub(crate) fn outrun(&self, generation: u64) {
        self.0.fetch_max(generation, Ordering::Relaxed);
    }
}

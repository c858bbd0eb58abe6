//! The state of the routers, assembled from components that do not know it.
//!
//! The node fills in a [`State`]. [`Api`] builds from it what one listener needs, and gives each extractor and handler the
//! component that it names ([`FromRef`]). Handlers, extractors and components are below this module; only the routers and
//! [`crate::parts`] are above it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::extract::FromRef;
use noroshi_auth::Auth;
use noroshi_console::Console;
use noroshi_delivery::Delivery;
use noroshi_profiling::Profiler;
use noroshi_series::Series;
use noroshi_supervision::Threads;
use noroshi_tail::Tails;
use noroshi_telemetry::{LogThrottle, Registry};
use noroshi_types::{Timestamp, limits};

use crate::address::Addresses;
use crate::body::Limits;
use crate::campaign_rules::CampaignRules;
use crate::drain::Drain;
use crate::first_call::{FirstCallService, FirstCalls};
use crate::handler::health::Health;
use crate::handler::web_push::WebPush;
use crate::inspection::Inspector;
use crate::load::Load;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::observe::Observer;
use crate::rate_limit::RateLimits;
use crate::registration::TokenIssuer;
use crate::request::access::{Authenticator, Listener};
use crate::request::body::BodyReader;
use crate::request::session::Desk;

/// Configuration of the API.
#[derive(Debug, Clone)]
pub struct Config {
    pub limits: Limits,
    /// Public base URL for devices, such as `https://push.example.com`. None: the `Host` header of the request.
    pub public_url: Option<String>,
    /// Public addresses of MQTT and XMPP over TCP, such as `mqtts://push.example.com:8883`. None: responses to
    /// devices omit it.
    pub mqtt_public_url: Option<String>,
    pub xmpp_public_url: Option<String>,
    /// A request to a host directly under this domain names the app.
    pub app_domain: Option<String>,
    pub device_token_ttl: Duration,
    /// Whether the node is a front, which has cells and no devices of its own.
    pub front: bool,
    /// False on a node without the role `api`: of the public paths, it serves only those of the gateway.
    pub public: bool,
    /// Concurrent requests; further ones get 503.
    pub requests_max: usize,
    /// Memory for request bodies, over all requests.
    pub bodies_bytes_max: usize,
    /// Rate limits of Web Push endpoints.
    pub web_push: RateLimits,
    pub campaigns: CampaignRules,
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
            front: false,
            public: true,
            // Ten times what two cores process concurrently; each costs some tens of KiB.
            requests_max: 4_096,
            // 16 batches of the maximum size.
            bodies_bytes_max: 256 << 20,
            web_push: RateLimits {
                endpoint_per_minute: limits::ENDPOINT_MESSAGES_PER_MINUTE,
                app_per_second: limits::APP_ENDPOINT_MESSAGES_PER_SECOND,
            },
            campaigns: CampaignRules::default(),
        }
    }
}

/// The components of a node, for both listeners.
pub struct State {
    pub auth: Arc<Auth>,
    pub delivery: Arc<Delivery>,
    /// People, and the audit log.
    pub console: Arc<Console>,
    pub config: Config,
    pub metrics: Metrics,
    /// All metrics of the node, for `/metrics`.
    pub registry: Arc<Registry>,
    /// True while the node accepts traffic.
    pub ready: Arc<AtomicBool>,
    /// Reports a failed thread.
    pub threads: Threads,
    /// Grants access to `/v1/apps`, `/v1/drain` and `/v1/nodes` of the admin listener. None: all requests are rejected.
    pub operator_token: Option<String>,
    /// None: the node has no gateway.
    pub drain: Option<Arc<dyn Drain>>,
    /// The nodes of the cluster. None: unknown.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// The time series and live figures.
    pub series: Arc<Series>,
    /// Live tails.
    pub tails: Arc<Tails>,
    /// Doctor's findings and the configuration. None: the node cannot examine itself.
    pub inspector: Option<Arc<Inspector>>,
    /// CPU and heap profiles.
    pub profiler: Profiler,
    /// Cache of first calls. Created by `FirstCalls::default()`.
    pub first_calls: FirstCalls,
    /// Created by `Load::default()`.
    pub load: Load,
}

impl State {
    pub fn now(&self) -> Timestamp {
        self.delivery.clock().now()
    }
}

/// The state of one listener's router. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Components>);

struct Components {
    state: Arc<State>,
    authenticator: Arc<Authenticator>,
    bodies: Arc<BodyReader>,
    addresses: Arc<Addresses>,
    first_calls: Arc<FirstCallService>,
    web_push: Arc<WebPush>,
    health: Arc<Health>,
}

impl Api {
    pub(crate) fn new(state: Arc<State>, listener: Listener) -> Self {
        let State { auth, delivery, config, metrics, load, .. } = &*state;
        let addresses = Arc::new(Addresses {
            public_url: config.public_url.clone(),
            mqtt_public_url: config.mqtt_public_url.clone(),
            xmpp_public_url: config.xmpp_public_url.clone(),
            nodes: state.nodes.clone(),
        });
        let bodies = Arc::new(BodyReader {
            memory: load.body_bytes(config.bodies_bytes_max),
            bytes_max: config.limits.body_bytes,
            metrics: metrics.clone(),
        });
        Self(Arc::new(Components {
            authenticator: Arc::new(Authenticator {
                auth: auth.clone(),
                delivery: delivery.clone(),
                listener,
                app_domain: config.app_domain.clone(),
                operator_token: state.operator_token.clone(),
            }),
            first_calls: Arc::new(FirstCallService {
                delivery: delivery.clone(),
                addresses: addresses.clone(),
                cache: state.first_calls.clone(),
                metrics: metrics.clone(),
            }),
            web_push: Arc::new(WebPush {
                auth: auth.clone(),
                delivery: delivery.clone(),
                bodies: bodies.clone(),
                limiter: load.web_push.clone(),
                limits: config.web_push,
                metrics: metrics.clone(),
                ready: state.ready.clone(),
            }),
            health: Arc::new(Health {
                threads: state.threads.clone(),
                ready: state.ready.clone(),
                drain: state.drain.clone(),
                delivery: delivery.clone(),
            }),
            addresses,
            bodies,
            state,
        }))
    }

    /// What the middleware of the listener needs.
    pub(crate) fn observer(&self, sheds: bool) -> Observer {
        let State { delivery, config, metrics, load, .. } = &**self;
        Observer {
            listener: self.listener(),
            serves_api: config.public,
            sheds,
            requests: load.requests(config.requests_max),
            metrics: metrics.clone(),
            delivery: delivery.clone(),
            console: self.console.clone(),
            log_throttle: LogThrottle::default(),
        }
    }

    pub(crate) fn listener(&self) -> Listener {
        self.0.authenticator.listener
    }
}

impl std::ops::Deref for Api {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0.state
    }
}

/// The components that extractors and handlers name.
macro_rules! components {
    ($($component:ty: |$api:ident| $value:expr;)*) => {
        $(impl FromRef<Api> for $component {
            fn from_ref($api: &Api) -> Self {
                $value
            }
        })*
    };
}

components! {
    Arc<Auth>: |api| api.auth.clone();
    Arc<Delivery>: |api| api.delivery.clone();
    Arc<Registry>: |api| api.registry.clone();
    Arc<Authenticator>: |api| api.0.authenticator.clone();
    Arc<BodyReader>: |api| api.0.bodies.clone();
    Arc<Addresses>: |api| api.0.addresses.clone();
    Arc<FirstCallService>: |api| api.0.first_calls.clone();
    Arc<WebPush>: |api| api.0.web_push.clone();
    Arc<Health>: |api| api.0.health.clone();
    Option<Arc<dyn Drain>>: |api| api.drain.clone();
    Option<Arc<dyn Nodes>>: |api| api.nodes.clone();
    Arc<Series>: |api| api.series.clone();
    Arc<Tails>: |api| api.tails.clone();
    Option<Arc<Inspector>>: |api| api.inspector.clone();
    Profiler: |api| api.profiler.clone();
    TokenIssuer: |api| TokenIssuer { auth: api.auth.clone(), ttl: api.config.device_token_ttl };
    Limits: |api| api.config.limits;
    CampaignRules: |api| api.config.campaigns;
    Desk: |api| Desk {
        console: api.console.clone(),
        auth: api.auth.clone(),
        delivery: api.delivery.clone(),
        front: api.config.front,
        metrics: api.metrics.clone(),
    };
}

//! The HTTP API: for providers, devices and operators. HTTP status codes appear only in this crate.
//!
//! ```text
//!   bytes ─► connection ─► observe (id, log, limit, panic) ─► origin (CORS) ─► request (access, body) ─► handler
//!                                                                                                          │
//!                                  Problem ◄── error ◄───────────────── delivery, store, auth ◄────────────┘
//! ```
//!
//! Modules are layers, from the bottom up:
//! 1. [`error`]; `json`, [`body`] and [`document`]: formats. `metrics`, `load`, `rate_limit`: counters and limits.
//! 2. `connection`: HTTP/1.1 and HTTP/2 over any byte stream, and the pool that bounds the connections.
//! 3. `address`, `audit`, `registration`, `push_check`, `respond`: what several handlers share. [`mod@drain`],
//!    [`inspection`] and [`nodes`] are interfaces that the node implements.
//! 4. `request`: extractors. `first_call`: the cached `GET /v1/me`.
//! 5. `handler`: one file per resource. `observe` and `origin`: middleware.
//! 6. `state`: the components of a node. [`mod@router`]: every route. [`parts`]: the API of the crate for other listeners.
//!
//! The Web Push resource (`/push/…`) has no credential but its address: `handler::web_push`, limited by `rate_limit`.
//!
//! Invariants: no body is read before its credential is accepted; no handler sees another tenant's rows, since every call
//! names the app of the credential; no secret is logged.

pub mod body;
pub mod document;
pub mod drain;
pub mod error;
pub mod inspection;
pub mod nodes;
pub mod parts;
pub mod router;

mod address;
mod audit;
mod campaign_rules;
mod connection;
mod first_call;
mod handler;
mod json;
mod load;
mod metrics;
mod observe;
mod origin;
mod push_check;
mod rate_limit;
mod registration;
mod request;
mod request_id;
mod respond;
mod state;
mod token_check;

pub use body::Limits;
pub use campaign_rules::CampaignRules;
pub use connection::{
    BridgeFn, Client, EVICTED_MAX, GatewayStream, Handoff, Http2, Peer, Place, Pool, PoolLimits, PoolMetrics,
    Rejection, Serving, Timing, serve_connection,
};
pub use error::{Code, Problem};
pub use first_call::FirstCalls;
pub use handler::batch::OVER_QUOTA_FIELD;
pub use handler::queues::queue_metrics;
pub use load::Load;
pub use metrics::Metrics;
pub use rate_limit::RateLimits;
pub use request::session::Needed;
pub use router::{admin_router, console_router, no_capacity_router, router};
pub use state::{Api, Config, State};

//! HTTP: what providers, devices and operators ask for. Status codes live in this crate and nowhere else.
//!
//! ```text
//!   bytes ─► serve ─► observe (id, log, shed, panic) ─► origin ─► access (who) ─► extract (body) ─► handler
//!                                                                                                     │
//!                                 problem ◄── error ◄───────────── delivery, store, auth ◄────────────┘
//! ```
//!
//! Reading order: [`mod@router`] (every route), [`error`] (every refusal), [`body`] (what requests may say),
//! `access`, `fit` (what push services would not take), `handler`, then what is around them: `observe`, `origin`, `serve` (with `pool`, `link`, `begun`, `arriving`, `coding`, `paced`, `turn`) and `http2`, `document`; [`parts`] is what others build on.
//!
//! The Web Push resource (`/push/…`) has no credential but its address: `handler::web_push`, and `pace` for how often.
//!
//! Invariants: no body is read before its credential was accepted; no handler sees another tenant's
//! rows, since every call below names the app of the credential; nothing that may be a secret is logged.

pub mod body;
pub mod document;
pub mod drain;
pub mod error;
pub mod nodes;
pub mod parts;
pub mod router;

mod access;
mod arriving;
mod begun;
mod coding;
mod connect;
mod extract;
mod first_call;
mod fit;
mod handler;
mod http2;
mod json;
mod link;
mod metrics;
mod observe;
mod origin;
mod pace;
mod paced;
mod pool;
mod registration;
mod respond;
mod serve;
mod state;
mod traced;
mod turn;

pub use arriving::Timing;
pub use body::Limits;
pub use error::{Code, Problem};
pub use first_call::FirstCalls;
pub use handler::batch::OVER_QUOTA_FIELD;
pub use http2::{BridgeFn, GatewayStream, Http2};
pub use link::Client;
pub use metrics::Metrics;
pub use pace::Paces;
pub use pool::{EVICTED_MAX, NoRoom, Place, Pool, PoolLimits, PoolMetrics};
pub use router::{admin_router, no_room_router, router};
pub use serve::{Serving, Turn, serve_connection};
pub use state::{Api, Config, Load, Peer, State};

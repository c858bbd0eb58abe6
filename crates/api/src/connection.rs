//! HTTP/1.1 and HTTP/2 over any byte stream: the gateway and the node pass connections here, plain or TLS,
//! together with the bytes already read from them.
//!
//! ```text
//!   io ─► preface ─┬─► http1 ──────────┬─► answer ─► router
//!                  └─► http2 ─► stream ┘
//!                              └─► bridge ⇄ gateway
//! ```
//!
//! Everything a client owes has a deadline: its next request head (`http1`, `http2`), request bodies (`body_deadline`),
//! and reading its responses (`send_deadline`). [`pool`] bounds the number of connections; [`handle`] is the state that a
//! connection and its requests share. This layer knows neither routes nor credentials: it calls the [`Serving::router`].

mod answer;
mod body_deadline;
mod capacity;
mod handle;
mod handoff;
mod http1;
mod http2;
mod pool;
mod preface;
mod send_deadline;
mod serving;
mod timing;

pub(crate) use body_deadline::BodyTimeout;
pub(crate) use capacity::no_capacity;
pub use handle::Client;
pub(crate) use handle::Handle;
pub use http1::{Handoff, serve_connection};
pub(crate) use pool::Trust;
pub use pool::{EVICTED_MAX, Place, Pool, PoolLimits, PoolMetrics, Rejection};
pub use serving::{BridgeFn, GatewayStream, Http2, Peer, Serving};
pub use timing::Timing;

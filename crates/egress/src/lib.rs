//! All outgoing connections to addresses that come from outside of the program.
//!
//! ```text
//!   Egress::connect(https, host, port, tls)            Egress::get / post_form (HTTP/1.1)
//!        │                                                  │ over connect
//!        ▼                                                  ▼
//!   Target (normalised) ──► Guard (ports, special addresses; may allow networks)
//!        │ proxy?
//!        ├── no ──► Resolver ──► Guard on every address ──► dial those that pass ──┐
//!        └── yes ─► CONNECT through the proxy ─────────────────────────────────────┤
//!                                                                                  ▼
//!                                                            TLS (rustls) ──► Connected
//! ```
//!
//! Invariants: a socket is opened only to an address that the guard has checked, never to a name that is resolved again
//! (DNS rebinding). Redirects are never followed. Every step has a timeout. A proxy resolves names itself and its rules
//! decide where they lead: the guard then checks only addresses in URLs.
//!
//! Reading order: [`target`], [`guard`], [`proxy`], `resolve`, `dial`, `tls`, then [`Egress`], and [`fetch`] on top of
//! it; [`Backoff`] for retries and [`failing`] for their reports. [`webhook`] signs
//! requests. [`aws`] is separate: what clients of Amazon's SDK share.

pub mod aws;
mod backoff;
mod dial;
mod egress;
mod error;
pub mod failing;
pub mod fetch;
pub mod guard;
pub mod proxy;
mod resolve;
pub mod target;
mod tls;
pub mod webhook;

pub use backoff::Backoff;
pub use egress::{Config, Connected, Egress, Stream};
pub use error::{ConfigError, Error};
pub use failing::Failing;
pub use fetch::{Limits, Response};
pub use guard::Guard;
pub use proxy::{Proxies, ProxyUrl};
pub use resolve::Resolver;
pub use tls::{Identity, Tls, read_ca_file};

//! The one way out: every connection that this program opens to an address it was told by somebody else
//! passes here.
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
//! Invariants: a socket is opened only to an address that the guard has seen, never to a name that is
//! resolved again (DNS rebinding); redirects are never followed; every step has a time limit. Behind a
//! proxy the name is the proxy's to resolve and its rules decide where it leads: the guard then sees only
//! addresses that are written in the URL.
//!
//! Reading order: [`target`], [`guard`], [`proxy`], `resolve`, `dial`, `tls`, then [`Egress`], and
//! [`fetch`] on top of it; [`Backoff`] for whoever asks again.

mod backoff;
mod dial;
mod egress;
mod error;
pub mod fetch;
pub mod guard;
pub mod proxy;
mod resolve;
mod stream;
pub mod target;
mod tls;

pub use backoff::Backoff;
pub use egress::{Config, Connected, Egress};
pub use error::{ConfigError, Error};
pub use fetch::{Limits, Response};
pub use guard::Guard;
pub use proxy::{Proxies, ProxyUrl};
pub use resolve::Resolver;
pub use stream::Stream;
pub use tls::{Identity, Tls, read_ca_file};

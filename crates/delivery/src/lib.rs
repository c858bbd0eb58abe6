//! The decisions: recipients, live delivery or inbox, acknowledgements, and outcomes.
//!
//! ```text
//!   api ──► Publisher::publish ──► Store::accept ──(commit order)──► Edge::deliver ──► shards
//!   gateway ──► Logins::log_in, Delivery::backlog, recover ──► Store (batched)
//!   gateway ──► Acks::push ──► coalesced ──► Store::ack
//!   gateway ──► Outcomes::record ──► metrics + event log + Store::record
//!   Delivery ◄──► cluster ◄──► other nodes             (only with several nodes)
//!   Store::take ──► push::sender ──► push services ──► Store::finish
//! ```
//!
//! [`Delivery`] builds and holds the components, in layers; a component knows only those below it:
//!
//! ```text
//!   delivery
//!   push · share · first_call
//!   campaign · activity · publish · ack · login · devices
//!   sessions · seen · quota · rules · items · preferences · push_work · backpressure
//!   freshness · figures · tails
//!   exchange
//!   cluster · share_feed
//!   context (store, clock, runtime, edge, spans, outcomes)
//! ```
//!
//! Reading order: [`edge`] (the trait that the gateway implements), `context`, `delivery`, [`publish`], `ack`, `login`,
//! `seen` (when devices were last seen), `backpressure` (requests that wait for room), `sessions`, `devices`,
//! [`preferences`] (what connected devices follow), [`cluster`] (other nodes), `exchange`, [`figures`] and [`tails`]
//! (what the console shows of other nodes), [`push`] (recipients that are not connected), [`campaign`], [`activity`],
//! [`definition`] and [`first_call`] (experiments and notices), [`rules`] (who may use which topic), `share` (which
//! member of a group gets a message), [`quota`] (what an app may use), [`metrics`].
//!
//! Invariant: `Edge::deliver` for stored messages is called from the store's completion, which runs in commit order.
//! This alone gives every inbox and every topic its order.

mod ack;
pub mod activity;
mod backpressure;
pub mod campaign;
pub mod clock;
pub mod cluster;
mod context;
pub mod definition;
mod delivery;
mod devices;
pub mod edge;
mod error;
mod exchange;
pub mod figures;
pub mod filter;
pub mod first_call;
mod freshness;
mod holder;
pub mod items;
mod login;
pub mod metrics;
mod outcomes;
pub mod preferences;
mod prune;
pub mod publish;
pub mod push;
mod push_work;
pub mod quota;
pub mod rules;
mod seen;
mod sessions;
mod share;
mod share_feed;
mod spans;
pub mod tails;
pub mod template;
mod texts;

pub use backpressure::{Admitted, Backpressure, Config as BackpressureConfig, Outline, Pace};
pub use clock::Clock;
pub use cluster::id_at;
pub use delivery::Delivery;
pub use edge::{Edge, Fan, LocalSession, Session};
pub use error::Error;
pub use login::{LoginAttempt, LoginResult};
pub use outcomes::Outcomes;
pub use publish::{Publishing, Receipt, Series};
pub use quota::{Admission, Held, InOrder, Origin, OverQuota};
pub use texts::Texts;
pub use tokio_util::task::AbortOnDropHandle;

//! The decisions: who is meant, who hears it live, who finds it in the inbox; confirmations; and
//! what is told afterwards.
//!
//! ```text
//!   api ──► Delivery::publish ──► Store::accept ──(commit order)──► Edge::deliver ──► shards
//!   gateway ──► Delivery::log_in / backlog / recover ──► Store       (batched)
//!   gateway ──► Delivery::ack ──► coalesced ──► Store::ack
//!   gateway ──► Delivery::outcomes ──► metrics + event log + Store::record
//!   Delivery ◄──► cluster ◄──► other nodes             (a node alone has none of this)
//!   Store::take ──► push::sender ──► push services ──► Store::finish
//! ```
//!
//! Reading order: [`edge`] (the trait the gateway implements), [`publish`], [`ack`], [`cluster`]
//! (who is connected elsewhere), [`push`] (who is not connected), [`campaign`], [`definition`] and [`first_call`] (what an app is told when it
//! starts), [`rules`] (who may use which topic), `share` (who of a group gets a message), [`quota`] (what an app may use), [`service`] (background work),
//! [`metrics`].
//!
//! Invariant: `Edge::deliver` for what is kept is called from the store's completion, which runs in
//! commit order; that alone gives every inbox and every topic its order.

pub mod ack;
pub mod campaign;
pub mod clock;
pub mod cluster;
pub mod definition;
pub mod edge;
pub mod entering;
pub mod first_call;
pub mod metrics;
pub mod publish;
pub mod push;
pub mod quota;
pub mod rules;
pub mod service;
mod share;
mod spans;

mod delivery;
mod telling;

pub use clock::Clock;
pub use cluster::id_at;
pub use delivery::{AbortOnDrop, Delivery, Error};
pub use edge::{Edge, LocalSession, Session};
pub use entering::{Entered, Entering};
pub use publish::{Begun, Receipt};
pub use quota::{Admission, Held, InOrder, Origin, OverQuota};

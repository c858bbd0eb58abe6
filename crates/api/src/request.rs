//! What handlers extract from a request: credentials, bodies, parameters and the trace.
//!
//! Extractors are generic over the router's state: each names the component it needs ([`FromRef`](axum::extract::FromRef)),
//! such as [`access::Authenticator`] or [`body::BodyReader`], and does not know what else the state contains.

pub(crate) mod access;
pub(crate) mod author;
pub(crate) mod body;
pub(crate) mod caller;
mod coding;
pub(crate) mod idempotency;
pub(crate) mod page;
pub(crate) mod parameter;
pub(crate) mod session;
pub(crate) mod trace;

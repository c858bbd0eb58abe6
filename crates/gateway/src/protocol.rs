//! One folder for each protocol that a connection may speak, behind one interface: bytes or a WebSocket message in, messages
//! out (`offer`), timeout, close ([`adapter::Adapter`]).
//!
//! An adapter is a state machine without IO. It owns what its protocol remembers of a connection and pushes effects
//! ([`effect::Effect`]), which the shard carries out (`crate::shard::conversations`). No file here names the shard.
//!
//! A new protocol (`line`, which only tests have, is the shortest one) touches:
//! 1. its folder, `protocol/NAME/`, with the adapter;
//! 2. one line in [`registry`];
//! 3. its name in `wire::Protocol` (the label of metrics and logs), and in `wire::Speaks` if it has a TCP listener of its
//!    own, or a path in `shard::route` if it comes over a WebSocket.
//!
//! Files, from the lowest: [`services`], [`requests`], [`legs`], [`credentials`], [`effect`], [`context`], [`adapter`], then the
//! protocols, then [`registry`]. In each protocol: `adapter` input to effects, `login`, `publish`, `subscribe`, `message`
//! (messages to the client), `requests` (what waits for an outcome), `job` (work outside the shard), `session` (what
//! outlives a connection), `close`; as far as the protocol has it.

pub(crate) mod adapter;
pub(crate) mod context;
pub(crate) mod credentials;
pub(crate) mod echo;
pub(crate) mod effect;
pub(crate) mod legs;
#[cfg(test)]
mod line;
pub(crate) mod mqtt;
pub(crate) mod native;
pub(crate) mod polling;
pub(crate) mod registry;
pub(crate) mod requests;
pub(crate) mod services;
pub(crate) mod socket_io;
pub(crate) mod sse;
pub(crate) mod xmpp;

//! One module for each protocol that a connection may speak (a folder if it has several files), behind one interface:
//! bytes or a WebSocket message in, messages out (`offer`), timeout, close ([`adapter::Adapter`]). [`polling`] is the
//! transport of Engine.IO.
//!
//! An adapter is a state machine without IO. It owns what its protocol remembers of a connection and pushes effects
//! ([`effect::Effect`]), which the shard carries out (`crate::shard::adapters`). No file here names the shard.
//!
//! A new protocol touches (`tests::line`, which only tests have, is the shortest one):
//! 1. its folder: `protocol/NAME.rs`, `protocol/NAME/`, with `mod NAME` here;
//! 2. its registration: one line of `protocols!` in [`registry`], and one where its adapter is made;
//! 3. its name: a variant of `wire::Protocol` (`wire/framing.rs`), in `Protocol::ALL` too; the compiler then asks for its
//!    label, and in `metrics.rs` for the framings that it has;
//! 4. the way in: a variant of `wire::Speaks` if it has a TCP listener of its own (and a key of the configuration in
//!    `node`), or a variant of `noroshi_protocol::device_path::DevicePath` if it comes over a WebSocket.
//!
//! ARCHITECTURE.md lists what a protocol touches in other crates.
//!
//! Files, from the lowest: [`services`], [`jobs`], [`polling`], [`effect`], [`context`], [`command`], [`adapter`],
//! then the protocols, then [`registry`]. In each protocol: `adapter` input to effects, requests and their outcomes, and
//! messages to the client; `login`, `publish`, `subscribe`, `job` (work outside the shard), `session` (what outlives a
//! connection), `close`; as far as the protocol has it.

pub(crate) mod adapter;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod echo;
pub(crate) mod effect;
pub(crate) mod jobs;
pub(crate) mod mqtt;
pub(crate) mod native;
pub(crate) mod polling;
pub(crate) mod registry;
pub(crate) mod services;
pub(crate) mod socket_io;
pub(crate) mod sse;
#[cfg(test)]
mod tests;
pub(crate) mod xmpp;

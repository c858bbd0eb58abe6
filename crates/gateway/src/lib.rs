//! Connections that cost almost nothing: listeners, transports, event loops, sessions and protocols.
//!
//! Modules are layers. Each uses only those below it; `crates/node/tests/it/layers.rs` checks that.
//!
//! ```text
//!   gateway     builds and holds everything; accepts sockets; what `delivery` and the API call
//!   shard       one event loop per core: owns one value of each layer below and passes down what an operation needs
//!   lifecycle   admission and drain
//!   protocol    one adapter per protocol, without IO: bytes in, effects out
//!   fanout      mail, the messages under way, and the order of delivery
//!   session     registry, log-ins, topic rules, topic index, catch-up, preferences
//!   metrics     what is counted
//!   config      what `node` configures
//!   io          sockets, TLS, timers, io_uring
//!   wire, rate  encodings of messages, compression; token buckets
//! ```
//!
//! Life of a connection:
//!
//! ```text
//!   listener ─► shard with the fewest ─► request head ─┬─► WebSocket, event stream, MQTT, XMPP, Engine.IO
//!                                                      └─► API on the same port (HTTP/2 streams return by the bridge)
//!   token ─► verification ─► log-in (batched read of the store) ─► session attached ─► catch-up ─► live ─► close
//! ```
//!
//! Life of a message: `delivery` → [`gateway`]'s edge → registry → mailbox of a shard → marked at its recipients → one
//! write for each connection.
//!
//! Reading order: [`config`], [`gateway`], `shard` and `shard::connection`. Then along a connection's life:
//! `io::listener`, `gateway::acceptor`, `shard::admission`, `shard::input`, `shard::route`, `protocol`,
//! `shard::adapters`, `session::verification`, `shard::login`, `session::following`, `session::catch_up`, `shard::backlog`,
//! `shard::close`, [`drain`]. Then along a message's: `gateway::edge`, `session::registry`, `session::stamp`,
//! `fanout::mail`, `fanout`, `shard::delivery`, `wire`.
//!
//! Invariants:
//! - A session lives and ends on one shard, and so does its connection. (A connection that polls may move to its
//!   session's shard before it is answered.)
//! - An idle connection owns no buffer, no timer of its own and no channel.
//! - A disconnect writes nothing to the store, except one row of an MQTT session that outlasts it and has wildcards.
//! - No shard waits for anything but events.

pub mod config;
pub mod gateway;
pub mod metrics;

mod fanout;
mod io;
mod lifecycle;
mod protocol;
mod rate;
mod session;
mod shard;
mod wire;

pub use config::{Config, Listener, Redirect, SocketIo, xmpp};
pub use gateway::bridge::Bridge;
pub use gateway::{Bound, Error, Gateway};
pub use io::handover::{Handover, Io};
pub use io::listener::BACKLOG;
pub use io::tls;
pub use lifecycle::drain;
pub use metrics::Metrics;
pub use shard::shared::{HandoverFn, OVER_MAX};
pub use wire::Speaks;

//! Connections that cost almost nothing: listeners, transports, shards and the conversation.
//!
//! ```text
//!   listener ──least loaded──► shard (one thread, one epoll, no task and no lock per connection)
//!                                │ input: head ─ route ─┬─ websocket, sse ────────────────┐
//!                                │                      ├─ talk: mqtt, socket_io, xmpp
//!                                │                      └─ handover ──► API, same port (bridge: HTTP/2 streams from there)
//!                                │ login ─(batched)─► delivery ─► catch_up ─► open
//!   delivery ─ Edge ─ registry ──► mailbox ─► fanout ─► one write a connection
//! ```
//!
//! Reading order: [`config`], [`gateway`], `connection`, `shard`, then along a connection's life
//! `listener`, `bridge`, `clients`, `unauthenticated`, `input`, `route`, `refusal`, `websocket`, `deflate`, `sse`, `gzip`, `talk`, `mqtt`, `socket_io`, `polling`,
//! [`xmpp`], `verification`, `login`, `renewal`, `permission`, `gate`, `recheck`, `catch_up`, `backlog`, `close`, `pulse`,
//! [`drain`]; along a message's `edge`, `registry`, `stamp`, `dispatch`, `mailbox`, `overtake`, `topic_index`, `wildcard`, `fanout`, `offering`,
//! `recent`, `ring`, `uring`, `tail`.
//!
//! Invariants: a session lives and dies on one shard, and so does its connection (but one that polls may
//! move to its session's before it is answered); while it is idle it owns no buffer, no timer of its own and
//! no channel; a disconnect writes nothing anywhere (but one row of an MQTT session with wildcards that
//! outlasts it); no shard waits for anyone.

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
pub use gateway::acceptor::OVER_MAX;
pub use gateway::bridge::Bridge;
pub use gateway::{Bound, Error, Gateway};
pub use io::handover::{Handover, Io};
pub use io::listener::BACKLOG;
pub use io::{handover, tls};
pub use lifecycle::drain;
pub use metrics::Metrics;
pub use shard::shared::HandoverFn;
pub use wire::Speaks;

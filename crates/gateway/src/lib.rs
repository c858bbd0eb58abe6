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
//! `listener`, `bridge`, `clients`, `strangers`, `input`, `route`, `refusal`, `websocket`, `deflate`, `sse`, `gzip`, `talk`, `mqtt`, `socket_io`, `polling`,
//! [`xmpp`], `verification`, `login`, `renewal`, `permission`, `gate`, `recheck`, `catch_up`, `backlog`, `close`, `pulse`,
//! [`drain`]; along a message's `edge`, `registry`, `stamp`, `dispatch`, `mailbox`, `overtake`, `topic_index`, `wildcard`, `fanout`, `offering`,
//! `recent`, `ring`, `uring`, `tail`.
//!
//! Invariants: a session lives and dies on one shard, and so does its connection (but one that polls may
//! move to its session's before it is answered); while it is idle it owns no buffer, no timer of its own and
//! no channel; a disconnect writes nothing anywhere (but one row of an MQTT session with wildcards that
//! outlasts it); no shard waits for anyone.

pub mod config;
pub mod drain;
pub mod gateway;
pub mod handover;
pub mod metrics;
pub mod tls;

mod admission;
mod backlog;
mod bridge;
mod catch_up;
mod clients;
mod close;
mod connection;
mod deflate;
mod dispatch;
mod edge;
mod fanout;
mod gate;
mod gzip;
mod input;
mod listener;
mod login;
mod mailbox;
mod mqtt;
mod offering;
mod outcome;
mod overtake;
mod parking;
mod permission;
mod polling;
mod pulse;
mod recent;
mod recheck;
mod refusal;
mod registry;
mod renewal;
mod ring;
mod route;
mod shard;
mod socket_io;
mod sparing;
mod sse;
mod stamp;
mod strangers;
mod tail;
mod talk;
mod timer;
mod topic_index;
mod transport;
#[cfg(feature = "io-uring")]
mod uring;
mod verification;
mod websocket;
mod wildcard;
pub mod xmpp;

pub use bridge::Bridge;
pub use config::{Config, Listener, Redirect, SocketIo, Speaks};
pub use gateway::{Bound, Error, Gateway, HandoverFn};
pub use handover::{Handover, Io};
pub use listener::{BACKLOG, OVER_MAX};
pub use metrics::Metrics;

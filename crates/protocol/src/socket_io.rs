//! The server side of Socket.IO protocol v5: packets over Engine.IO messages, and the conversation of a
//! device with the service.
//!
//! ```text
//!   engine_io::Data ── Assembler ── Whole (Packet + attachments) ── Conversation ── Action
//!   Message ── Notification (shared) + Conversation::deliver (ack id) ── bytes
//! ```
//!
//! Reading order: [`packet`], [`assembler`], [`encode`], [`notification`], [`conversation`]; [`echo`] is the
//! application that the public test suites expect. "SIO" refers to the protocol specification (socket.io
//! repository, `docs/socket.io-protocol/v5-current.md`), whose sections are cited by name.
//!
//! # Events
//! A device connects to the namespace `/` with `{"token":"…"}`; `app`, `topics` (subscriptions of this
//! connection) and `offsets` are optional. It emits `subscribe`, `unsubscribe`, `ack`, `presence` and
//! `token`, each with the object of the corresponding native frame without `t` (or just a name, an id or a
//! list of them, if that is the only field). It receives `notification`, `recovered`, `error` and `close`.
//! Subscriptions made with `subscribe` last as long as the connection, recovered or not.

pub mod action;
pub mod assembler;
mod auth;
mod client_event;
pub mod close;
pub mod conversation;
pub mod echo;
pub mod encode;
pub mod notification;
pub mod packet;
mod placeholder;
pub mod recovery;
mod window;

pub use action::{Action, LogIn, Reply};
pub use assembler::{Assembler, Whole};
pub use conversation::{Config, Conversation};
pub use echo::Echo;
pub use notification::{Notification, Variant};
pub use packet::{Args, Event, Kind, Limits, Packet, PacketError};
pub use recovery::Offset;

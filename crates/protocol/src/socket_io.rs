//! Socket.IO protocol v5, the server's side: packets over Engine.IO messages, and the conversation of a
//! device with the service.
//!
//! ```text
//!   engine_io::Data ── Assembler ── Whole (Packet + attachments) ── Conversation ── Action
//!   Message ── Notification (shared) + Conversation::deliver (ack id) ── bytes
//! ```
//!
//! Reading order: [`packet`], [`assembler`], [`encode`], [`notification`], [`conversation`]; [`echo`] is what
//! the public test suites expect to talk to. The document meant by "SIO" is the protocol's own (socket.io
//! repository, `docs/socket.io-protocol/v5-current.md`); its sections are cited by name.
//!
//! # What a device says and hears
//! It connects to the namespace `/` with `{"token":"…"}`; `app`, `topics` (subscriptions of this connection)
//! and `offsets` are optional. It emits `subscribe`, `unsubscribe`, `ack`, `presence` and `token`, each with
//! the object of the native frame of that kind without its `t` (or a name, an id, a list of them, where
//! nothing else is said), and hears `notification`, `recovered`, `error` and `close`. Subscriptions by
//! `subscribe` last as long as the connection, whether it was recovered or not.

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

//! The server side of Engine.IO protocol v4, the transport under Socket.IO. A session runs over a WebSocket,
//! or over HTTP long polling until it upgrades to a WebSocket.
//!
//! ```text
//!   head ── request ── Request ──┐
//!   body ── payload::Decoder ────┼── Packet ── Session ── Output (answers, frames, the end)
//!   WebSocket message ── Packet ─┘                └────── Data ── socket_io
//! ```
//!
//! Reading order: [`packet`], [`payload`], [`mod@request`], [`handshake`], [`session`], [`answer`]. "EIO"
//! refers to the protocol specification (socket.io repository, `docs/engine.io-protocol/v4-current.md`),
//! whose sections are cited by name. The owner of the connections handles CORS, keep-alive and sockets.

pub mod answer;
pub mod handshake;
pub mod packet;
pub mod payload;
pub mod request;
pub mod session;

pub use handshake::{Config, Sid, push_open};
pub use packet::{Data, Outgoing, Packet, PacketError};
pub use payload::Payload;
pub use request::{Request, RequestError, Transport, request};
pub use session::{Output, Session};

//! Engine.IO protocol v4, the server's side: the transport under Socket.IO. One session speaks over a
//! WebSocket, or over HTTP long polling until it moves to a WebSocket.
//!
//! ```text
//!   head ── request ── Request ──┐
//!   body ── payload::Decoder ────┼── Packet ── Session ── Output (answers, frames, the end)
//!   WebSocket message ── Packet ─┘                └────── Data ── socket_io
//! ```
//!
//! Reading order: [`packet`], [`payload`], [`mod@request`], [`handshake`], [`session`], [`answer`]. The document
//! meant by "EIO" is the protocol's own (socket.io repository, `docs/engine.io-protocol/v4-current.md`); its
//! sections are cited by name. CORS, keep-alive and the sockets are whose who owns the connections.

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

//! Bytes on the wire: protocols and framings, compression, and a message in every encoding.
//!
//! May use nothing of this crate. Pure: no sockets, no sessions.

pub(crate) mod deflate;
pub(crate) mod dispatch;
pub(crate) mod framing;
pub(crate) mod gzip;

pub use framing::Speaks;
pub(crate) use framing::{Framing, Protocol};

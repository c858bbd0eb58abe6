//! Bytes on the wire: what connections speak, compression, and a message in every encoding.

pub(crate) mod deflate;
pub(crate) mod dispatch;
pub(crate) mod framing;
pub(crate) mod gzip;

pub use framing::Speaks;
pub(crate) use framing::{Framing, Protocol};

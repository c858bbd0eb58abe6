//! HTTP/2 (RFC 9113) with HPACK (RFC 7541) for the end that makes requests: what a push service is spoken to
//! with. Sans-IO: the owner of the socket hands in the bytes it read and writes what is in `output`.
//!
//! Only what a push needs, and that exactly: requests with a body known beforehand, responses handed over
//! whole. No server push (refused), no priorities (ignored), no CONNECT, no HEAD, no upgrade from HTTP/1.1;
//! trailers are checked and dropped. Time belongs to the caller: it cancels what takes too long and pings.
//!
//! Reading order: [`connection`], [`headers`], [`mod@error`], [`hpack`].

pub mod connection;
pub mod error;
mod frame;
pub mod headers;
pub mod hpack;
mod settings;
mod stream;

pub use connection::{Closed, Config, Connection, Event, Field, Head, Key};
pub use error::{ConnectionError, code};
pub use frame::PREFACE;
pub use headers::Headers;

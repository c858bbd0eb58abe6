//! HTTP/2 (RFC 9113) with HPACK (RFC 7541), client side only: for requests to push services. Sans-IO: the
//! owner of the socket passes in the bytes it read and writes the contents of `output`.
//!
//! Implements exactly what a push needs: requests with a body known beforehand, and responses delivered
//! whole. No server push (rejected), no priorities (ignored), no CONNECT, no HEAD, no upgrade from HTTP/1.1;
//! trailers are checked and dropped. The caller owns time: it cancels slow requests and sends pings.
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

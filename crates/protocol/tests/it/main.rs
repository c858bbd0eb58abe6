//! Tests of the protocols against independent implementations. The crate has no IO; an in-memory pipe carries
//! the bytes.

mod http2_server;

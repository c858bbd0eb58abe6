//! The protocols against ends that others wrote. The crate itself has no IO; here a pipe in memory carries
//! the bytes.

mod http2_server;

//! Egress to real servers on loopback.

mod fetch;
mod proxy;
mod reach;
mod server;
mod tls;

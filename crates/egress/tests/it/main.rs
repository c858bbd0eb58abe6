//! Egress to real servers on loopback.

mod fetch;
mod proxy;
mod reach;
mod real_proxy;
mod server;
mod tls;

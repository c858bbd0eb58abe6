//! The way out, to real servers on loopback and around them.

mod fetch;
mod proxy;
mod reach;
mod server;
mod tls;

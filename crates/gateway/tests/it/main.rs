//! The gateway with a real store and real sockets.

mod deliver;
mod node;
mod recovery;
mod session;

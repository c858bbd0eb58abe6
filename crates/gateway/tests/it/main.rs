//! The gateway with a real store and real sockets.

mod node;
mod session;

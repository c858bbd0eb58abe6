//! The gateway with a real store and real sockets.

mod deliver;
mod drain;
mod hostile;
mod node;
mod recovery;
mod secure;
mod session;
mod stream;

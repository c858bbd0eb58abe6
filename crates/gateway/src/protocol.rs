//! One folder for each protocol that a connection may speak, behind one interface.

pub(crate) mod conversation;
pub(crate) mod mqtt;
pub(crate) mod native;
pub(crate) mod polling;
pub(crate) mod socket_io;
pub(crate) mod sse;
pub(crate) mod xmpp;

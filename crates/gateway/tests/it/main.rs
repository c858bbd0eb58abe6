//! The gateway with a real store and real sockets.

mod alone;
mod closing;
mod cluster;
mod deflate;
mod deliver;
mod descriptors;
mod drain;
mod emitted;
mod event_log;
mod fairness;
mod hostile;
mod http2;
mod items;
mod model;
mod mqtt;
mod node;
mod preferences;
mod recovery;
mod rejected;
mod reset;
mod secure;
mod session;
mod slow;
mod socket_io;
mod storm;
mod stream;
mod topic_rules;
#[cfg(debug_assertions)]
mod verification;
mod xmpp;
mod xmpp_accounts;

//! Live tails of other nodes: requests for events, and reports. What a request and a report hold is the business of their
//! listener.
//!
//! A node reports only while another node asks: a request counts for [`ASKED_FOR`], and is repeated meanwhile. A node of an
//! older version is not asked, and the tail states that it is missing.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use noroshi_cluster::Epoch;

use crate::cluster::Nodes;
use crate::cluster::wire::Record;
use crate::exchange::Exchange;

/// The most bytes of a request and of a report. A receiver skips a longer one.
pub use crate::cluster::wire::REPORT_BYTES_MAX as BYTES_MAX;
pub use crate::exchange::{ASKED_FOR, Peer};

/// Gets requests and reports of other nodes. The methods never wait.
pub trait Listener: Send + Sync {
    fn asked(&self, by: Epoch, tail: Bytes);
    fn reported(&self, by: Epoch, report: Bytes);
}

pub struct Tails(Exchange<dyn Listener>);

impl Tails {
    pub(crate) fn new(nodes: Arc<Nodes>) -> Self {
        Self(Exchange::new(nodes))
    }

    /// A second call is ignored.
    pub fn attach(&self, listener: Weak<dyn Listener>) {
        self.0.attach(listener);
    }

    pub(crate) fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.0.listener()
    }

    /// The other nodes, as last known. Empty without a cluster.
    pub fn peers(&self) -> Vec<Peer> {
        self.0.peers(|info| info.tails)
    }

    pub fn ask(&self, of: Epoch, tail: Bytes) {
        self.0.send(of, Record::AskTail { tail });
    }

    pub fn report(&self, to: Epoch, report: Bytes) {
        self.0.send(to, Record::Tail { report });
    }
}

//! Live figures of other nodes: requests for them, and reports. What a report holds is the business of its listener.
//!
//! A node reports only while another node asks: a request counts for [`ASKED_FOR`], and is repeated meanwhile. A node of an
//! older version is not asked, and the answer shows it as missing.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_types::AppId;

use crate::cluster::Nodes;
use crate::cluster::wire::Record;
use crate::exchange::Exchange;

/// The most bytes of a report. A receiver skips a longer one.
pub use crate::cluster::wire::REPORT_BYTES_MAX;
pub use crate::exchange::{ASKED_FOR, Peer};

/// Gets requests and reports of other nodes. The methods never wait.
pub trait Listener: Send + Sync {
    /// A node asks for figures, and for those of these apps in particular.
    fn asked(&self, by: Epoch, apps: Vec<AppId>);
    fn reported(&self, by: Epoch, report: Bytes);
}

pub struct Figures(Exchange<dyn Listener>);

impl Figures {
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
        self.0.peers(|info| info.figures)
    }

    /// Asks these nodes for reports during the next [`ASKED_FOR`].
    pub fn ask(&self, of: impl IntoIterator<Item = Epoch>, apps: &[AppId]) {
        for epoch in of {
            self.0.send(epoch, Record::AskFigures { apps: apps.to_vec() });
        }
    }

    pub fn report(&self, to: Epoch, report: Bytes) {
        self.0.send(to, Record::Figures { report });
    }
}

//! Several nodes as one cluster: who holds which session, messages between nodes, and the list of nodes.
//!
//! ```text
//!   gateway ─ take/keep/forget ─► Directory ◄─ locate ─ delivery
//!   delivery ─ send ─────────────► Bus ─ receive/lost ─► Receiver (delivery, on the other node)
//!   node ─ set_info ─────────────► Members (a lease for each node, never for a connection)
//!   push ─ put/pull/done ────────► BatchQueue (the senders' shared queue)
//! ```
//!
//! Two implementations: [`in_process`] (for tests: several nodes in one process, with fault injection) and [`redis`],
//! whose bus uses direct connections between nodes ([`links`]) where all nodes accept them.
//! One conformance suite (`tests/it`) runs against both. A single node uses neither.
//!
//! Reading order: [`epoch`], [`key`], [`directory`], [`bus`], [`members`], [`batches`], [`in_process`],
//! [`links`], [`redis`].
//!
//! Foundation: an [`Epoch`] identifies a node's lease, is never reused, and is in the list of nodes before anything
//! else carries it; so an epoch that is missing from a later list is dead for good. Of two sessions of one device, the
//! one with the greater generation wins, wherever it is.

pub mod batches;
pub mod bus;
mod clock;
pub mod directory;
pub mod epoch;
mod error;
pub mod in_process;
pub mod key;
pub mod links;
pub mod members;
pub mod metrics;
mod random;
pub mod redis;

use std::sync::Arc;

pub use bus::{Bus, Receiver};
pub use directory::{Directory, Holder, Kept, Take, Taken};
pub use epoch::Epoch;
pub use error::Error;
pub use key::{Keys, SessionKey};
pub use members::{Members, NodeInfo, NodeView, Roles};

/// The handles that other crates use.
#[derive(Clone)]
pub struct Cluster {
    pub directory: Arc<dyn Directory>,
    pub bus: Arc<dyn Bus>,
    pub members: Arc<dyn Members>,
    pub keys: Keys,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("epoch", &self.members.epoch()).finish_non_exhaustive()
    }
}

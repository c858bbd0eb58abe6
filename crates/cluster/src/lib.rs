//! More than one node: who holds which session, how nodes tell each other, who is there.
//!
//! ```text
//!   gateway ─ take/keep/forget ─► Directory ◄─ locate ─ delivery
//!   delivery ─ send ─────────────► Bus ─ receive/lost ─► Receiver (delivery, on the other node)
//!   node ─ set_info ─────────────► Members (a lease for each node, never for a connection)
//!   push ─ put/pull/done ────────► BatchQueue (what senders take turns at)
//! ```
//!
//! Two implementations: [`in_process`] (tests: several nodes in one process, faults at will) and [`redis`].
//! One conformance suite (`tests/it`) runs against both. A single node has none of this.
//!
//! Reading order: [`epoch`], [`key`], [`directory`], [`bus`], [`members`], [`batches`], [`in_process`],
//! [`redis`].
//!
//! What all of it rests on: an [`Epoch`] names a node's lease, is never used twice, and is put into the list of
//! nodes before anything else carries it; so an epoch that is not in a list read later is dead for good. Of two sessions
//! of one device the one with the greater generation stands, wherever it is.

pub mod batches;
pub mod bus;
mod clock;
pub mod directory;
pub mod epoch;
mod error;
pub mod in_process;
pub mod key;
pub mod members;
pub mod metrics;
pub mod redis;

use std::sync::Arc;

pub use bus::{Bus, Receiver};
pub use directory::{Directory, Holder, Kept, Take, Taken};
pub use epoch::Epoch;
pub use error::Error;
pub use key::{Keys, SessionKey};
pub use members::{Members, NodeInfo, NodeView, Roles};

/// What the other crates hold of it.
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

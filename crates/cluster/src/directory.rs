//! Which node holds which device, and which nodes hold devices of a user.
//!
//! An entry is never written for a disconnect: what is stale is found out by the node it names ("not here"), which
//! removes it by [`Directory::absent`]; entries of nodes that are gone are not answered. Calls are batches: one
//! round trip each, whatever their length (on Redis Cluster one for each shard, in parallel).
//!
//! Every call may be repeated. A call answers `Error::Lost` when `epoch` is not the one this node holds.

use async_trait::async_trait;
use smallvec::SmallVec;

use crate::{Epoch, Error, SessionKey};

/// Whose a device is: the node's lease and the gateway's number of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    pub epoch: Epoch,
    pub generation: u64,
}

/// One session, as the directory knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take {
    pub device: SessionKey,
    /// A device whose user is not known is found by its own key alone.
    pub user: Option<SessionKey>,
    pub generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The device is this session's. `previous` is to be told, if its epoch is another session's; it is `None` when
    /// the same take had been done before (a repetition).
    Now { previous: Option<Holder> },
    /// As `Now`, but the part of the engine that keeps its user is not there: the session is found by its device alone
    /// until it is put in again (`keep`).
    Partly { previous: Option<Holder> },
    /// A session with this generation, equal or greater, stands: draw a greater one and take again.
    Behind { generation: u64 },
    /// The part of the engine that keeps this device is not there, while others are: as `Error::Unavailable`, for this
    /// device alone.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The entry names this session (again).
    Mine,
    /// A session of a greater generation stands: this one is to end.
    Superseded,
}

#[async_trait]
pub trait Directory: Send + Sync {
    /// Takes devices for this node, in order: wins iff the generation is greater than the present one's, whatever its
    /// epoch. Atomic for each device; the entry of the user follows by itself, and a greater generation wins there too.
    /// Not cancel-safe: dropped, it may or may not have been done.
    async fn take(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Taken>, Error>;

    /// Puts sessions in again (after a wipe, a lapsed lease, or to look whether they still stand), in order: sets the
    /// entry iff it is absent or of a lower or the same generation; never displaces a greater one.
    async fn keep(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Kept>, Error>;

    /// A log-in did not come about, or a session was found gone: removes entries that are still (epoch, generation).
    async fn forget(&self, epoch: Epoch, takes: Vec<Take>) -> Result<(), Error>;

    /// A look-up brought a message here, but nobody is here: removes what the keys (devices or users) say of `epoch`
    /// with a generation below `before`. Choose `before` so that no log-in under way is hit: the generation of some
    /// time ago. An addition to the design: a node that gets a message for a user does not know which device it was.
    async fn absent(&self, epoch: Epoch, keys: Vec<SessionKey>, before: u64) -> Result<(), Error>;

    /// For each key, in order, the epochs that hold it (several for users), each once; epochs without a live lease are
    /// left out. Asks no lease: a node without one may look up. While the part of the engine that keeps a key is not
    /// there, but others are, the answer for it is every gateway node.
    async fn locate(&self, keys: Vec<SessionKey>) -> Result<Vec<SmallVec<[Epoch; 2]>>, Error>;
}

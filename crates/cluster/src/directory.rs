//! Which node holds which device, and which nodes hold devices of a user.
//!
//! A disconnect writes nothing. The node named in a stale entry detects it when a message arrives ("not here") and
//! removes it with [`Directory::absent`]; entries of dead nodes are ignored. Calls are batches: one round trip each,
//! whatever their length (on Redis Cluster one per shard, in parallel).
//!
//! All calls are idempotent. A call returns `Error::Lost` if this node does not hold `epoch`.

use async_trait::async_trait;
use smallvec::SmallVec;

use crate::{Epoch, Error, SessionKey};

/// The holder of a device: the node's lease and the gateway's number of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    pub epoch: Epoch,
    pub generation: u64,
}

/// One session, as the directory knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take {
    pub device: SessionKey,
    /// A device without a known user is found only by its own key.
    pub user: Option<SessionKey>,
    pub generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The device now belongs to this session. Notify `previous` if it is another session; `None` if this take is a
    /// repetition.
    Now { previous: Option<Holder> },
    /// As `Now`, but the part of the engine that keeps the user is down: the session is found only by its device until
    /// it is registered again (`keep`).
    Partly { previous: Option<Holder> },
    /// A session with an equal or greater generation holds the device: draw a greater one and take again.
    Behind { generation: u64 },
    /// The part of the engine that keeps this device is down, while others are up: as `Error::Unavailable`, for this
    /// device only.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The entry names this session (again).
    Mine,
    /// A session with a greater generation holds the device: close this one.
    Superseded,
}

#[async_trait]
pub trait Directory: Send + Sync {
    /// Takes devices for this node, in order: succeeds if the generation is greater than the present one, whatever its
    /// epoch. Atomic for each device; the user's entry follows, and there too the greater generation wins. Not
    /// cancel-safe: if dropped, it may or may not take effect.
    async fn take(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Taken>, Error>;

    /// Registers sessions again (after a wipe or an expired lease, or to check whether they are still valid), in order:
    /// sets the entry if it is missing or has a lower or equal generation; never replaces a greater one.
    async fn keep(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Kept>, Error>;

    /// After a failed log-in, or if a session no longer exists: removes entries that still have this epoch and
    /// generation.
    async fn forget(&self, epoch: Epoch, takes: Vec<Take>) -> Result<(), Error>;

    /// A lookup sent a message to this node, but it has no such session: removes the entries of these keys (devices or
    /// users) with `epoch` and a generation below `before`. Choose `before` so that it excludes log-ins in progress:
    /// the generation of some time ago. A node that gets a message for a user does not know which of the user's devices
    /// it was for.
    async fn absent(&self, epoch: Epoch, keys: Vec<SessionKey>, before: u64) -> Result<(), Error>;

    /// For each key, in order, the distinct epochs that hold it (several for users), without those that have no live
    /// lease. Needs no lease. If the part of the engine that keeps a key is down while others are up, the answer for it
    /// is every gateway node.
    async fn locate(&self, keys: Vec<SessionKey>) -> Result<Vec<SmallVec<[Epoch; 2]>>, Error>;
}

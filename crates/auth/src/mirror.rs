//! Keys of an app that a front owns: what to change here so that the app has exactly the front's keys. Pure; the front
//! may repeat its request at any time, and an unchanged app needs no change.

use std::collections::HashSet;

use noroshi_store::{Key, KeyHash};
use noroshi_types::{KeyId, Scopes, Timestamp};

/// A key that is known by its hash only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorKey {
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
}

pub(crate) struct Change {
    pub(crate) revoke: Vec<KeyId>,
    pub(crate) create: Vec<MirrorKey>,
}

/// A key whose scopes or expiry differ is revoked and created again.
pub(crate) fn change(present: &[Key], wanted: Vec<MirrorKey>) -> Change {
    let is_wanted: HashSet<(KeyHash, Scopes, Option<Timestamp>)> =
        wanted.iter().map(|key| (key.hash, key.scopes, key.expires_at)).collect();
    let (kept, stale): (Vec<&Key>, Vec<&Key>) =
        present.iter().partition(|key| is_wanted.contains(&(key.hash, key.scopes, key.expires_at)));
    let kept: HashSet<KeyHash> = kept.into_iter().map(|key| key.hash).collect();
    Change {
        revoke: stale.into_iter().map(|key| key.id).collect(),
        create: wanted.into_iter().filter(|key| !kept.contains(&key.hash)).collect(),
    }
}

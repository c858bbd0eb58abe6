//! The owners of notifications: the shared function needs the ids of this store.

use super::transaction::{Failed, Tx};
use crate::engine::owner;
use crate::{Found, Owned};

pub(crate) async fn owners(tx: &Tx, of: &Owned) -> Result<Found, Failed> {
    owner::owners(tx, tx.ids(), of).await
}

//! Lookups: the shared function needs the ids of this store.

use super::transaction::{Failed, Tx};
use crate::engine::lookup;
use crate::{Found, LookupKeys};

pub(crate) async fn lookup(tx: &Tx, keys: &LookupKeys) -> Result<Found, Failed> {
    lookup::lookup(tx, tx.ids(), keys).await
}

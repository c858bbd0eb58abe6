//! Lookups: the shared function needs the ids of this store.

use super::reader::Read;
use super::statement::ready;
use crate::engine::lookup;
use crate::{Error, Found, LookupKeys};

pub(crate) fn lookup(Read { db, ids }: Read<'_>, keys: &LookupKeys) -> Result<Found, Error> {
    ready(lookup::lookup(db, ids, keys))
}

//! The owners of notifications: the shared function needs the ids of this store.

use super::reader::Read;
use super::statement::ready;
use crate::engine::owner;
use crate::{Error, Found, Owned};

pub(crate) fn owners(Read { db, ids }: Read<'_>, of: &Owned) -> Result<Found, Error> {
    ready(owner::owners(db, ids, of))
}

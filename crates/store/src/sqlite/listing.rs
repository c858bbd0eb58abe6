//! Lists of notifications: the shared function needs the ids of this store.

use noroshi_types::{AppId, Timestamp};

use super::reader::Read;
use super::statement::ready;
use crate::engine::listing;
use crate::{Error, NotificationFilter, NotificationPage};

pub(crate) fn notifications(
    Read { db, ids }: Read<'_>,
    app: AppId,
    filter: &NotificationFilter,
    now: Timestamp,
) -> Result<NotificationPage, Error> {
    ready(listing::notifications(db, ids, app, filter, now))
}

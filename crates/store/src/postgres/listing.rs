//! Lists of notifications: the shared function needs the ids of this store.

use noroshi_types::{AppId, Timestamp};

use super::transaction::{Failed, Tx};
use crate::engine::listing;
use crate::{NotificationFilter, NotificationPage};

pub(crate) async fn notifications(
    tx: &Tx,
    app: AppId,
    filter: &NotificationFilter,
    now: Timestamp,
) -> Result<NotificationPage, Failed> {
    listing::notifications(tx, tx.ids(), app, filter, now).await
}

//! This node's slot among at most 64, which determines its loose numbers ([`super::ids`]).
//!
//! A slot is an advisory lock held by a separate connection. If the connection is lost, the node takes the slot
//! again, or another one if it is taken. Until then it keeps using the old slot: two nodes could only give out the
//! same number within the same millisecond, and then one of two traces is dropped.

use std::time::Duration;

use deadpool_postgres::ClientWrapper;

use super::connect::Connector;
use super::ids::{Loose, SLOTS};
use super::transaction::text_of;

/// The first half of the locks' keys.
const SLOT_LOCKS: i32 = 0x6e6f_726f;
/// Between two checks of the connection.
const CHECK: Duration = Duration::from_secs(5);

/// Takes a free slot, `preferred` if possible. `None`: all slots are taken.
pub(super) async fn take(
    session: &ClientWrapper,
    preferred: i64,
) -> Result<Option<i64>, tokio_postgres::Error> {
    let rest = (0..SLOTS).filter(|slot| *slot != preferred);
    for slot in std::iter::once(preferred).chain(rest) {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&SLOT_LOCKS, &(slot as i32)];
        let row = session.query_one("SELECT pg_try_advisory_lock($1, $2)", &values).await?;
        if row.get(0) {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// Holds the slot, and takes one again when it is lost. Runs until it is dropped.
pub(super) async fn hold(connector: Connector, mut session: ClientWrapper, loose: &Loose) {
    loop {
        tokio::time::sleep(CHECK).await;
        // Only a query detects a network that stopped responding.
        let asked = tokio::time::timeout(CHECK, session.check_connection()).await;
        if matches!(asked, Ok(Ok(()))) {
            continue;
        }
        let fresh = match tokio::time::timeout(CHECK, connector.session()).await {
            Ok(Ok(fresh)) => fresh,
            Ok(Err(error)) => {
                tracing::warn!(error = text_of(&error), "the database cannot be reached");
                continue;
            }
            Err(_) => continue,
        };
        match take(&fresh, loose.slot()).await {
            Ok(Some(slot)) => {
                if slot != loose.slot() {
                    loose.set_slot(slot);
                }
                session = fresh;
            }
            Ok(None) => {
                tracing::error!(
                    "all 64 slots of the database are taken; ids of unstored notifications may repeat"
                )
            }
            Err(error) => {
                tracing::warn!(error = text_of(&error), "this node's slot could not be taken again")
            }
        }
    }
}

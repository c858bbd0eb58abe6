//! This node's slot among at most 64: which loose numbers are its own ([`super::ids`]).
//!
//! A slot is an advisory lock that a connection of its own holds. If the connection is lost, the slot is taken
//! again, or another if somebody was faster; until then the old one is used on: numbers of two nodes could only
//! be the same within the same millisecond, and then one of two traces is left out.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;

use super::connect::Connector;
use super::ids::{Loose, SLOTS};
use super::transaction::text_of;

/// First half of the locks' names.
const SLOT_LOCKS: i32 = 0x6e6f_726f;
/// Between two looks at the connection.
const CHECK: Duration = Duration::from_secs(5);

/// Takes a free slot, `preferred` if it is. None: there is none.
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

/// Holds the slot, and takes one again whenever it is lost. Runs until it is dropped.
pub(super) async fn hold(connector: Connector, mut session: ClientWrapper, loose: Arc<Loose>) {
    loop {
        tokio::time::sleep(CHECK).await;
        // On a network that fell silent only a question tells.
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
                tracing::error!("64 nodes use the database; ids of what is not stored may be doubled")
            }
            Err(error) => tracing::warn!(error = text_of(&error), "the slot of this node is not taken again"),
        }
    }
}

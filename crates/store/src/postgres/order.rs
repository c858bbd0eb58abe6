//! The order lock: who holds it decides what the next commits of accepted notifications are, over all nodes.

use super::transaction::{Failed, Tx};

/// The advisory lock's name.
pub(super) const LOCK: i64 = 0x6e6f_726f_7368_6901;

/// What [`keep_accepts_out`] runs.
pub(super) const KEEP_OUT: &str = "SELECT pg_advisory_xact_lock_shared($1)";

/// Keeps accepting out until the transaction ends. For changes of what a group of accepts reads before it
/// writes: another user of a device, and the end of a device, after which their inbox has to be empty.
pub(super) async fn keep_accepts_out(tx: &Tx) -> Result<(), Failed> {
    // Shared: such changes do not keep each other out.
    tx.execute(KEEP_OUT, &[&LOCK]).await?;
    Ok(())
}

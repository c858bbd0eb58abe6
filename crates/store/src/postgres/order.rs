//! The order lock: its holder commits the next accepted notifications of all nodes.

use super::transaction::{Failed, Tx};

/// The key of the advisory lock.
pub(super) const LOCK: i64 = 0x6e6f_726f_7368_6901;

/// The statement of [`keep_accepts_out`].
pub(super) const KEEP_OUT: &str = "SELECT pg_advisory_xact_lock_shared($1)";

/// Prevents accepting until the transaction ends. For changes of what accepting reads before it writes: a device that
/// gets another user or is removed must have an empty inbox afterwards.
pub(super) async fn keep_accepts_out(tx: &Tx) -> Result<(), Failed> {
    // Shared, so that such changes do not exclude each other.
    tx.execute(KEEP_OUT, &[&LOCK]).await?;
    Ok(())
}

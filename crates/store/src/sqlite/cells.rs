//! What SQLite needs of its own for a front over several cells.

pub(crate) mod outbox;
pub(crate) mod residence;

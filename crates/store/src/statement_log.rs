//! Reports the text of each statement before it runs, at the level `trace` with the target
//! `noroshi_store::statement`: `RUST_LOG=noroshi_store::statement=trace` lists them. Values of statements never appear.
//!
//! The tests collect the reports while the conformance suite runs, and explain every statement
//! (`tests/it/statements.rs`). So both engines report where they prepare statements.

/// The target of the reports.
const TARGET: &str = "noroshi_store::statement";

pub(crate) fn sqlite(sql: &str) {
    tracing::trace!(target: TARGET, engine = "sqlite", sql);
}

pub(crate) fn postgres(sql: &str) {
    tracing::trace!(target: TARGET, engine = "postgres", sql);
}

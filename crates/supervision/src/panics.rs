//! Counts every panic of the process by the kind of its thread, those that a handler catches included.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kind::Kind;

static COUNTS: [AtomicU64; Kind::ALL.len()] = [const { AtomicU64::new(0) }; Kind::ALL.len()];

thread_local! {
    static KIND: Cell<Kind> = const { Cell::new(Kind::Other) };
}

/// The calling thread is of this kind.
pub fn enter(kind: Kind) {
    KIND.set(kind);
}

/// Counts panics from now on. What was done about them before (a line on standard error) stays.
pub fn count() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A thread that is ending may have no variables any more.
        let kind = KIND.try_with(Cell::get).unwrap_or(Kind::Other);
        COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
        before(panic);
    }));
}

pub fn of(kind: Kind) -> u64 {
    COUNTS[kind as usize].load(Ordering::Relaxed)
}

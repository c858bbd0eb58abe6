//! Counts every panic of the process by the kind of its thread, including panics that a handler catches.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kind::Kind;

static COUNTS: [AtomicU64; Kind::ALL.len()] = [const { AtomicU64::new(0) }; Kind::ALL.len()];

thread_local! {
    static KIND: Cell<Kind> = const { Cell::new(Kind::Other) };
}

/// Sets the kind of the calling thread.
pub fn enter(kind: Kind) {
    KIND.set(kind);
}

/// Installs the counter. The previous panic hook (a line on standard error) still runs. A second call has no effect.
pub fn count() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is ending may have destroyed its thread-local variables.
            let kind = KIND.try_with(Cell::get).unwrap_or(Kind::Other);
            COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
            before(panic);
        }));
    });
}

/// Panics since the start of the process.
pub fn of(kind: Kind) -> u64 {
    COUNTS[kind as usize].load(Ordering::Relaxed)
}

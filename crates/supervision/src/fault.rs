//! Injects panics and stalls for tests. Debug builds only.
//!
//! At every tick the watchdog reads the file that [`VARIABLE`] names and arms the fault in it, such as `panic shard-0` or
//! `stall store-writer`. The thread or code location of that name triggers it at its next [`strike`]. A panic triggers
//! once.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The environment variable with the path of the file. `node` reads it.
pub const VARIABLE: &str = "NOROSHI_FAULT_FILE";

/// Whether a fault is armed. Every thread checks it at every turn.
static ARMED: AtomicBool = AtomicBool::new(false);
static FAULT: Mutex<Option<Fault>> = Mutex::new(None);
/// Stalled threads. Grows only under the lock of [`FAULT`].
static HELD: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    stalls: bool,
    place: String,
}

/// The configured file.
pub fn file() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Arms the fault that the text names; an empty text disarms.
pub fn arm(text: &str) {
    let fault = text.trim().split_once(' ').and_then(|(action, place)| {
        let stalls = match action {
            "stall" => true,
            "panic" => false,
            _ => return None,
        };
        Some(Fault { stalls, place: place.to_owned() })
    });
    let mut armed = FAULT.lock().unwrap_or_else(PoisonError::into_inner);
    ARMED.store(fault.is_some(), Ordering::Relaxed);
    *armed = fault;
}

/// Triggers a fault that is armed for this place: panics, or blocks until the fault is disarmed.
pub fn strike(place: &str) {
    match take(place) {
        None => {}
        Some(Fault { stalls: true, .. }) => {
            while is_armed(place) {
                std::thread::sleep(Duration::from_millis(50));
            }
            HELD.fetch_sub(1, Ordering::Relaxed);
        }
        Some(Fault { stalls: false, .. }) => panic!("a fault was injected into {place}"),
    }
}

/// Threads that are blocked, including those that have not noticed the disarming yet.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Whether a fault is armed for this place.
pub fn is_armed(place: &str) -> bool {
    ARMED.load(Ordering::Relaxed)
        && FAULT
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(|fault| fault.place == place)
}

fn take(place: &str) -> Option<Fault> {
    if !ARMED.load(Ordering::Relaxed) {
        return None;
    }
    let mut armed = FAULT.lock().unwrap_or_else(PoisonError::into_inner);
    let fault = armed.clone().filter(|fault| fault.place == place)?;
    if fault.stalls {
        HELD.fetch_add(1, Ordering::Relaxed);
    } else {
        ARMED.store(false, Ordering::Relaxed);
        *armed = None;
    }
    Some(fault)
}

//! Panics and stalls on request, for tests: this file is compiled in debug builds only.
//!
//! The watchdog reads the file that [`VARIABLE`] names at every tick and arms what it finds, such as `panic shard-0` or
//! `stall store-writer`; the thread or place of that name strikes it the next time it comes by. A panic strikes once.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Names the file. `node` reads it.
pub const VARIABLE: &str = "NOROSHI_FAULT_FILE";

/// Whether there is a fault at all: asked at every turn of every thread.
static ARMED: AtomicBool = AtomicBool::new(false);
static FAULT: Mutex<Option<Fault>> = Mutex::new(None);
/// Threads that a stall holds. It grows under the lock of [`FAULT`] only.
static HELD: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    stalls: bool,
    place: String,
}

/// The file, if there is one.
pub fn file() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Arms what the text asks for; an empty text disarms.
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

/// Strikes if this place is meant: panics, or does not return before the fault is disarmed.
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

/// Threads that a stall holds, or held until it was disarmed and that have not noticed yet.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Whether a fault waits for this place.
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

//! Tests that need a process of their own: they count all its memory, or take all its descriptors.
//!
//! Such a test begins with `if !alone("file::name") { return; }`: in the process of all tests it starts itself in
//! another process and waits for the outcome; in that process it continues.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const ALONE: &str = "NOROSHI_TEST_ALONE";

/// True in the process in which no other test runs.
pub(crate) fn alone(test: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program).args(["--exact", test, "--nocapture"]).env(ALONE, test).output();
    let output = run.expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "there is no test {test}: {said}");
    false
}

struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call goes to the system's allocator as it is; counting touches nothing else.
#[allow(unsafe_code)] // a global allocator is unsafe by nature
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes on the heap of the process once nothing moves any more.
pub(crate) async fn settled_heap() -> i64 {
    let (mut last, mut same) = (i64::MIN, 0);
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let live = LIVE_BYTES.load(Ordering::Relaxed);
        same = if live == last { same + 1 } else { 0 };
        last = live;
        if same == 10 {
            break;
        }
    }
    last
}

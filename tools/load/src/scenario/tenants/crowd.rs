//! Threads that work beside the measurement until they are told to end. They end when their crowd is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::Error;

/// The least of Linux (setpriority(2)). It holds for the calling thread alone.
const LOWEST_PRIORITY: i32 = 19;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    Normal,
    Lowest,
}

#[derive(Default)]
pub(super) struct Crowd {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// `act` returns soon after its argument became true.
    pub(super) fn spawn(
        &mut self,
        name: &str,
        priority: Priority,
        act: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), Error> {
        let ends = self.ends.clone();
        let run = move || {
            if priority == Priority::Lowest
                && let Err(error) = rustix::process::nice(LOWEST_PRIORITY)
            {
                eprintln!("noroshi bench: a thread does nothing: its priority cannot be lowered: {error}");
                return;
            }
            act(&ends);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(Error::system("a thread of the benchmark"))?);
        Ok(())
    }

    pub(super) fn end(&mut self) {
        self.ends.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}

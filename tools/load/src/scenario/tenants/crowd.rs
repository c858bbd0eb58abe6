//! Background threads of a measurement. They are stopped when the crowd is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::Error;

/// The lowest priority of Linux (setpriority(2)). It applies to the calling thread only.
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
    /// `act` must return soon after its argument became true.
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
                eprintln!("noroshi bench: a thread is not started: its priority cannot be lowered: {error}");
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
            // A panic has already been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}

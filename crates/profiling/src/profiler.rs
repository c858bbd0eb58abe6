//! Takes profiles, one at a time. Who asks by [`Profiler::cpu`] has the sampler at once: a window that is only to be
//! pushed ends early for it. A second one who asks is told [`Error::Busy`].
//!
//! The sampler belongs to the process, whatever number of [`Profiler`]s there is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{Mutex, Notify, Semaphore};

/// What a CPU profile may be asked for: long enough to see something, short enough to wait for.
pub const SECONDS_MAX: u64 = 60;

/// Samples for each second of CPU time. More often than the kernel's tick nothing is sampled at all.
pub const HZ_MAX: u32 = 250;

/// Not a divisor of anything that happens regularly.
pub const HZ_DEFAULT: u32 = 99;

/// How long, and how often a second of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub duration: Duration,
    /// 1 to [`HZ_MAX`].
    pub hz: u32,
}

/// How much a profile says of each function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its name.
    Functions,
    /// What was inlined into it too, and of all the files and lines (what that costs: docs/performance.md).
    Lines,
}

/// Why there is no profile, by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Ask another build.
    #[error("this program was built without {what} (feature `{feature}`)")]
    NotBuilt { what: &'static str, feature: &'static str },
    /// Ask again when that one is done.
    #[error("a CPU profile is being taken; one at a time")]
    Busy,
    /// The build could, the process cannot.
    #[error("no profile can be taken: {0}")]
    Failed(String),
}

/// A profile in pprof's format, compressed with gzip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub pprof: Bytes,
    /// Different stacks in it; 0 where nothing ran meanwhile.
    pub stacks: usize,
    pub from: SystemTime,
    pub until: SystemTime,
    /// CPU time of the thread that made it; not what its samples took of those that were sampled.
    pub cost: Duration,
}

/// Clones share everything.
#[derive(Clone)]
pub struct Profiler(Arc<Inner>);

struct Inner {
    /// Of those who ask one is served, and nobody waits.
    asked: Semaphore,
    /// Likewise of dumps of the heap.
    #[cfg(feature = "heap")]
    dumps: Semaphore,
    /// Held while samples are taken; who waits has it in turn. No other lock under it.
    sampler: Arc<Mutex<()>>,
    /// Told to a window that is only to be pushed.
    cut: Notify,
    /// Somebody who asked waits for the sampler.
    wanted: AtomicBool,
    #[cfg(feature = "heap")]
    folder: PathBuf,
    /// Guards the tables of names. No other lock under it.
    #[cfg(feature = "cpu")]
    symbols: Arc<parking_lot::Mutex<crate::symbol::Symbols>>,
}

impl Profiler {
    /// What jemalloc writes goes into `folder`, which is made, and emptied, with the first heap profile.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        #[cfg(not(feature = "heap"))]
        let _ = folder;
        Self(Arc::new(Inner {
            asked: Semaphore::new(1),
            #[cfg(feature = "heap")]
            dumps: Semaphore::new(1),
            sampler: Arc::default(),
            cut: Notify::new(),
            wanted: AtomicBool::new(false),
            #[cfg(feature = "heap")]
            folder,
            #[cfg(feature = "cpu")]
            symbols: Arc::default(),
        }))
    }

    /// Samples for as long as was asked, and tells lines. Cancel-safe: dropped, the sampler stops.
    pub async fn cpu(&self, ask: Ask) -> Result<Taken, Error> {
        let _asked = self.0.asked.try_acquire().map_err(|_| Error::Busy)?;
        let wanted = Wanted::new(&self.0.wanted);
        // A window under way hears this; one that begins now sees that the sampler is wanted.
        self.0.cut.notify_waiters();
        let turn = self.0.sampler.clone().lock_owned().await;
        drop(wanted);
        self.take(turn, ask, Detail::Lines, std::future::pending()).await
    }

    /// Samples for as long as was asked, or until somebody else asks, or `end`, and tells functions. Cancel-safe.
    pub(crate) async fn window(&self, ask: Ask, end: impl Future<Output = ()>) -> Result<Taken, Error> {
        let (turn, cut) = loop {
            let turn = self.0.sampler.clone().lock_owned().await;
            // Listens before it looks, so that no cut is missed.
            let cut = self.0.cut.notified();
            if !self.0.wanted.load(Ordering::SeqCst) {
                break (turn, cut);
            }
            drop(turn);
            tokio::task::yield_now().await;
        };
        self.take(turn, ask, Detail::Functions, async {
            tokio::select! {
                () = cut => {}
                () = end => {}
            }
        })
        .await
    }

    #[cfg(feature = "cpu")]
    async fn take(
        &self,
        turn: tokio::sync::OwnedMutexGuard<()>,
        ask: Ask,
        detail: Detail,
        end: impl Future<Output = ()>,
    ) -> Result<Taken, Error> {
        crate::cpu::take(self.0.symbols.clone(), turn, ask, detail, end).await
    }

    #[cfg(not(feature = "cpu"))]
    async fn take(
        &self,
        _: tokio::sync::OwnedMutexGuard<()>,
        _: Ask,
        _: Detail,
        _: impl Future<Output = ()>,
    ) -> Result<Taken, Error> {
        Err(Error::NotBuilt { what: "CPU profiles", feature: "profiling" })
    }

    /// What is allocated now, by who allocated it. Cancel-safe; a dump that began ends by itself.
    #[cfg(feature = "heap")]
    pub async fn heap(&self, detail: Detail) -> Result<Taken, Error> {
        let inner = self.0.clone();
        let dump = move || {
            // Held by the dump, which goes on if nobody waits for it any more.
            let _dumps = inner.dumps.try_acquire().map_err(|_| Error::Busy)?;
            crate::heap::take(&inner.folder, &inner.symbols, detail)
        };
        let take = tokio::task::spawn_blocking(dump);
        take.await.map_err(|error| Error::Failed(error.to_string()))?
    }

    /// What is allocated now: not in this build.
    #[cfg(not(feature = "heap"))]
    pub async fn heap(&self, _: Detail) -> Result<Taken, Error> {
        Err(Error::NotBuilt { what: "heap profiles", feature: "heap-profiling" })
    }
}

/// True as long as it lives.
struct Wanted<'a>(&'a AtomicBool);

impl<'a> Wanted<'a> {
    fn new(wanted: &'a AtomicBool) -> Self {
        wanted.store(true, Ordering::SeqCst);
        Self(wanted)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Profiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiler").finish_non_exhaustive()
    }
}

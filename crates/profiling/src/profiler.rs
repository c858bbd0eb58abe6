//! The handle that takes profiles, one CPU profile at a time. An on-demand profile ([`Profiler::cpu`]) takes precedence:
//! it ends a window of continuous profiling early. A second on-demand profile fails with [`Error::Busy`].
//!
//! The sampler belongs to the process, however many [`Profiler`]s exist.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, Notify, Semaphore};

use crate::tree::CallTree;

pub use crate::profile::{Ask, Detail, Error, HZ_DEFAULT, HZ_MAX, SECONDS_MAX, Taken};

/// Clones share everything.
#[derive(Clone)]
pub struct Profiler(Arc<Inner>);

struct Inner {
    /// Admits one on-demand profile; others fail at once.
    on_demand: Semaphore,
    /// Admits one heap dump; others fail at once.
    #[cfg(feature = "heap")]
    dumps: Semaphore,
    /// Held while sampling; fair. No other lock is taken under it.
    sampler: Arc<Mutex<()>>,
    /// Ends a window of continuous profiling early.
    cut: Notify,
    /// Whether an on-demand profile waits for the sampler.
    wanted: AtomicBool,
    #[cfg(feature = "heap")]
    folder: PathBuf,
    /// Guards the symbol tables. No other lock is taken under it.
    #[cfg(feature = "cpu")]
    symbols: Arc<parking_lot::Mutex<crate::symbol::Symbols>>,
}

impl Profiler {
    /// jemalloc writes its dumps into `folder`. The first heap profile creates and empties it.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        #[cfg(not(feature = "heap"))]
        let _ = folder;
        Self(Arc::new(Inner {
            on_demand: Semaphore::new(1),
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

    /// An on-demand profile with lines. Cancel-safe: dropping the future stops the sampler.
    pub async fn cpu(&self, ask: Ask) -> Result<Taken, Error> {
        let _permit = self.0.on_demand.try_acquire().map_err(|_| Error::Busy)?;
        let wanted = Wanted::new(&self.0.wanted);
        // Ends a running window. A window that starts now sees `wanted`.
        self.0.cut.notify_waiters();
        let turn = self.0.sampler.clone().lock_owned().await;
        drop(wanted);
        self.take(turn, ask, Detail::Lines, std::future::pending()).await
    }

    /// As [`Self::cpu`], as a tree of calls.
    pub async fn cpu_tree(&self, ask: Ask) -> Result<CallTree, Error> {
        let taken = self.cpu(ask).await?;
        tree(taken).await
    }

    /// A window of continuous profiling, without lines. Ends early at an on-demand profile or at `end`. Cancel-safe.
    pub(crate) async fn window(&self, ask: Ask, end: impl Future<Output = ()>) -> Result<Taken, Error> {
        let (turn, cut) = loop {
            let turn = self.0.sampler.clone().lock_owned().await;
            // Subscribes before it checks, so that no notification is missed.
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

    /// Live allocations by allocating stack. Cancel-safe; a dump that has started runs to its end.
    #[cfg(feature = "heap")]
    pub async fn heap(&self, detail: Detail) -> Result<Taken, Error> {
        let inner = self.0.clone();
        let dump = move || {
            // The dump holds the permit: it continues if the caller is gone.
            let _dumps = inner.dumps.try_acquire().map_err(|_| Error::Busy)?;
            crate::heap::take(&inner.folder, &inner.symbols, detail)
        };
        let take = tokio::task::spawn_blocking(dump);
        take.await.map_err(|error| Error::Failed(error.to_string()))?
    }

    /// This build cannot take heap profiles.
    #[cfg(not(feature = "heap"))]
    pub async fn heap(&self, _: Detail) -> Result<Taken, Error> {
        Err(Error::NotBuilt { what: "heap profiles", feature: "heap-profiling" })
    }
}

#[cfg(feature = "cpu")]
async fn tree(taken: Taken) -> Result<CallTree, Error> {
    let fold = move || crate::folded::fold(&taken.pprof).map(|folded| CallTree::of(&folded));
    let folded = tokio::task::spawn_blocking(fold).await.map_err(|error| Error::Failed(error.to_string()))?;
    folded.map_err(|error| Error::Failed(error.to_string()))
}

#[cfg(not(feature = "cpu"))]
async fn tree(_: Taken) -> Result<CallTree, Error> {
    Err(Error::NotBuilt { what: "CPU profiles", feature: "profiling" })
}

/// Sets the flag while it exists.
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

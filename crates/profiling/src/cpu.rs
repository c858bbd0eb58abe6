//! The CPU profile: runs the sampler, counts equal stacks, resolves names and encodes the result, all on a thread of its
//! own. [`crate::profiler`] decides when.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::pprof::{Kind, Stack, encode};
use crate::profile::{Ask, Detail, Error, Taken, thread_time};
use crate::sampler::{Sample, Sampling};
use crate::symbol::Symbols;

/// Releases `turn` when sampling ends, before it encodes the profile.
pub(crate) async fn take(
    symbols: Arc<Mutex<Symbols>>,
    turn: OwnedMutexGuard<()>,
    ask: Ask,
    detail: Detail,
    end: impl Future<Output = ()>,
) -> Result<Taken, Error> {
    let (stop, stopped) = crossbeam_channel::bounded(1);
    let (done, mut taken) = oneshot::channel();
    let thread = std::thread::Builder::new().name("noroshi-profile".to_owned());
    thread
        .spawn(move || {
            // Fails only if the caller is gone.
            let _ = done.send(run(&symbols, turn, ask, detail, &stopped));
        })
        .map_err(|error| Error::Failed(error.to_string()))?;
    let ended = tokio::select! {
        result = &mut taken => result,
        () = end => {
            // Fails if the thread has ended already.
            let _ = stop.try_send(());
            taken.await
        }
    };
    ended.unwrap_or_else(|_| Err(Error::Failed("the sampler panicked".to_owned())))
}

fn run(
    symbols: &Mutex<Symbols>,
    turn: OwnedMutexGuard<()>,
    ask: Ask,
    detail: Detail,
    stopped: &Receiver<()>,
) -> Result<Taken, Error> {
    let (from, began) = (SystemTime::now(), Instant::now());
    let sampling = Sampling::start(ask)?;
    if let Err(RecvTimeoutError::Disconnected) = stopped.recv_timeout(ask.duration) {
        return Err(Error::Failed("the caller is gone".to_owned()));
    }
    let sampled = sampling.stop();
    let lasted = began.elapsed();
    drop(turn);
    if sampled.lost > 0 {
        tracing::debug!(
            lost = sampled.lost,
            taken = sampled.samples.len(),
            "samples were lost: the buffer is full or all handlers are busy"
        );
    }
    let kind = Kind::Cpu { period: Duration::from_secs(1) / ask.hz };
    let stacks = count(sampled.samples);
    let pprof = encode(kind, &stacks, &mut symbols.lock(), detail, (from, lasted))?;
    Ok(Taken { pprof, stacks: stacks.len(), from, until: from + lasted, cost: thread_time() })
}

/// Counts equal stacks. Threads of the same name do the same work and count as one.
fn count(samples: Vec<Sample>) -> Vec<Stack> {
    let mut stacks: HashMap<Sample, i64> = HashMap::new();
    for sample in samples {
        *stacks.entry(sample).or_default() += 1;
    }
    let stack = |(Sample { addresses, thread }, value)| Stack { addresses, thread: Some(thread), value };
    stacks.into_iter().map(stack).collect()
}

//! The buffer that handlers fill: each stack is a record of its depth, the thread's name and the addresses. Handlers
//! take no lock and allocate nothing; a stack that finds no free slot or no room is dropped and counted.

#![allow(unsafe_code)] // memory that one handler uses at a time; each use says what makes it sound

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::unwind::{Registers, Scratch, Unwinder};

/// Handlers that run at once. The kernel keeps one signal pending, so more are rare.
const SLOTS: usize = 8;

/// The head of a record: its depth, and the thread's name in two words.
const HEAD_WORDS: usize = 3;

/// 32 MiB; only the filled part takes memory.
const WORDS_MAX: usize = 4 << 20;

/// One stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Sample {
    /// Innermost first: the interrupted instruction, then return addresses.
    pub(crate) addresses: Vec<usize>,
    pub(crate) thread: String,
}

/// The stacks, and how many did not fit.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) samples: Vec<Sample>,
    pub(crate) lost: usize,
}

/// Stacks as handlers record them.
pub(super) struct Buffer {
    unwinder: &'static Unwinder,
    slots: [Slot; SLOTS],
    words: Box<[AtomicUsize]>,
    /// Index of the next stack; beyond the end once the buffer is full.
    next: AtomicUsize,
    lost: AtomicUsize,
}

/// Used by one handler at a time.
struct Slot {
    taken: AtomicBool,
    scratch: UnsafeCell<Scratch>,
}

// SAFETY: only the handler that set `taken` uses `scratch`.
unsafe impl Sync for Slot {}

impl Buffer {
    pub(super) fn new(unwinder: &'static Unwinder, words: usize) -> Self {
        let slot = |_| Slot { taken: AtomicBool::new(false), scratch: UnsafeCell::new(Scratch::new()) };
        // SAFETY: all-zero bytes are a valid AtomicUsize.
        let words = unsafe { Box::<[AtomicUsize]>::new_zeroed_slice(words).assume_init() };
        let (next, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { unwinder, slots: std::array::from_fn(slot), words, next, lost }
    }

    /// Called by the handler.
    pub(super) fn record(&self, registers: Registers) {
        let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::Acquire);
        let Some(slot) = self.slots.iter().find(free) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // SAFETY: this handler has just set `taken`.
        let scratch = unsafe { &mut *slot.scratch.get() };
        if !self.put(scratch.unwind(self.unwinder, registers)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        slot.taken.store(false, Ordering::Release);
    }

    fn put(&self, addresses: &[usize]) -> bool {
        let size = HEAD_WORDS + addresses.len();
        let at = self.next.fetch_add(size, Ordering::Relaxed);
        let Some([depth, name_0, name_1, places @ ..]) = self.words.get(at..at.saturating_add(size)) else {
            return false;
        };
        let name = thread_name();
        name_0.store(name as usize, Ordering::Relaxed);
        name_1.store((name >> 64) as usize, Ordering::Relaxed);
        for (place, address) in places.iter().zip(addresses) {
            place.store(*address, Ordering::Relaxed);
        }
        depth.store(addresses.len(), Ordering::Relaxed);
        true
    }

    /// Call it when no handler is active.
    pub(super) fn samples(&self) -> Samples {
        let word = |word: &AtomicUsize| word.load(Ordering::Relaxed);
        let (mut samples, mut rest) = (Vec::new(), &self.words[..]);
        while let [depth, name_0, name_1, after @ ..] = rest {
            let depth = word(depth);
            // The end of the recorded stacks.
            if depth == 0 || depth > after.len() {
                break;
            }
            let name = [word(name_0).to_ne_bytes(), word(name_1).to_ne_bytes()].concat();
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let thread = String::from_utf8_lossy(&name[..end]).into_owned();
            samples.push(Sample { addresses: after[..depth].iter().map(word).collect(), thread });
            rest = &after[depth..];
        }
        Samples { samples, lost: word(&self.lost) }
    }
}

/// The capacity for this many samples of 40 calls each.
pub(super) fn words_for(samples: usize) -> usize {
    samples.saturating_mul(HEAD_WORDS + 40).clamp(1 << 16, WORDS_MAX)
}

/// At most 15 bytes and a NUL.
fn thread_name() -> u128 {
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes 16 bytes at most (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    u128::from_ne_bytes(name)
}

#[cfg(test)]
mod tests {
    use super::super::unwind::{DEPTH_MAX, unwinder};
    use super::*;

    #[test]
    fn recorded_stacks_are_read_back_until_the_buffer_is_full() {
        let buffer = Buffer::new(unwinder().expect("an unwinder"), HEAD_WORDS + 2 + HEAD_WORDS + 1);
        assert!(buffer.put(&[1, 2]) && buffer.put(&[3]) && !buffer.put(&[4]) && !buffer.put(&[5]));
        let samples = buffer.samples().samples;
        let addresses: Vec<_> = samples.iter().map(|sample| &sample.addresses[..]).collect();
        assert_eq!(addresses, [&[1, 2][..], &[3]]);
        let name = std::thread::current().name().map(|name| name[..name.len().min(15)].to_owned());
        assert_eq!(Some(&samples[0].thread), name.as_ref());
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn a_stack_ends_at_the_start_of_the_thread() {
        let buffer = Buffer::new(unwinder().expect("an unwinder"), WORDS_MAX);
        #[inline(never)]
        fn deep(buffer: &Buffer, calls: usize) -> usize {
            match calls {
                0 => here(buffer),
                _ => std::hint::black_box(deep(buffer, calls - 1)) + 1,
            }
        }
        #[inline(never)]
        fn here(buffer: &Buffer) -> usize {
            let mut context = std::mem::MaybeUninit::<libc::ucontext_t>::zeroed();
            // SAFETY: all-zero bytes are a valid context, and only getcontext writes to it.
            let context = unsafe {
                assert_eq!(libc::getcontext(context.as_mut_ptr()), 0);
                context.assume_init()
            };
            buffer.record(Registers::of(&context));
            std::hint::black_box(0)
        }
        assert_eq!(deep(&buffer, 20), 20);
        let addresses = &buffer.samples().samples[0].addresses;
        assert!((22..DEPTH_MAX).contains(&addresses.len()), "{}", addresses.len());
    }
}

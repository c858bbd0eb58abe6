//! The CPU sampler: a timer of the process's CPU time (`ITIMER_PROF`) sends SIGPROF to whatever thread runs, and the
//! handler notes that thread's stack. It belongs to the process: one [`Sampling`] at a time.
//!
//! The handler comes between any two instructions of any thread. It takes no lock of the program's and allocates
//! nothing: where every desk is taken, or the room for stacks is full, the sample is left out and counted. It has the
//! kernel read the stack (`process_vm_readv`), so that a wrong address is an error and not a crash. It stays installed:
//! a signal that comes late finds that nothing is sampled.
//!
//! Stacks are unwound by the tables for exceptions, where they lie in memory: a walk along frame pointers does not see
//! the function that runs, nor who called into libc. What is not a file, as the vDSO, has none.
//!
//! System calls that a signal interrupts are begun anew (`SA_RESTART`), but those that wait for events: whoever calls
//! them has to take EINTR. A child process inherits no timer.

#![allow(unsafe_code)] // a signal handler, and tables that the loader has mapped; each use says what makes it sound

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::PtrAuthMask;
use framehop::{CacheNative, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder as _, UnwinderNative};
use parking_lot::{Mutex, MutexGuard};

use crate::map;
use crate::profiler::{Ask, Error};

mod module;

type Unwinder = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

/// Deeper stacks lose their outermost functions.
const DEPTH_MAX: usize = 128;

/// Handlers that work at once: the kernel has one signal pending at a time, so more are hardly ever there.
const DESKS: usize = 8;

/// Far more than 128 calls take.
const STACK_BYTES: usize = 256 << 10;

/// Of a stack as it is noted: its depth, and the thread's name in two words.
const HEAD_WORDS: usize = 3;

/// 32 MiB, of which only what is filled takes memory.
const WORDS_MAX: usize = 4 << 20;

/// One stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Sample {
    /// The innermost first: where the thread was; all others are where calls return to.
    pub(crate) addresses: Vec<usize>,
    pub(crate) thread: String,
}

/// What was sampled, and how often there was no place for a sample.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) samples: Vec<Sample>,
    pub(crate) lost: usize,
}

/// Held while there is a [`Sampling`]. No other lock under it.
static ONE: Mutex<()> = Mutex::new(());

/// Null: nothing is sampled. Else it lives until no handler is at work any more.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// At work now, or about to look whether there is any.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// Samples until it is stopped or dropped.
pub(crate) struct Sampling {
    _one: MutexGuard<'static, ()>,
}

/// Where handlers work and what they note.
struct Table {
    unwinder: &'static Unwinder,
    desks: [Desk; DESKS],
    words: Box<[AtomicUsize]>,
    /// Where the next stack goes; beyond the end once it is full.
    next: AtomicUsize,
    lost: AtomicUsize,
}

/// One handler's at a time.
struct Desk {
    taken: AtomicBool,
    tools: UnsafeCell<Tools>,
}

// SAFETY: `tools` are used by none but who took the desk.
unsafe impl Sync for Desk {}

struct Tools {
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    stack: Box<[u8]>,
    addresses: [usize; DEPTH_MAX],
}

impl Sampling {
    /// The first of all takes some milliseconds more.
    pub(crate) fn start(ask: Ask) -> Result<Self, Error> {
        let one = ONE.try_lock().ok_or(Error::Busy)?;
        let unwinder = unwinder()?;
        install()?;
        let table = Box::new(Table::new(unwinder, room(ask)));
        TABLE.store(Box::into_raw(table), Ordering::SeqCst);
        let sampling = Self { _one: one };
        set_timer(Duration::from_secs(1) / ask.hz.max(1))?;
        Ok(sampling)
    }

    pub(crate) fn stop(self) -> Samples {
        let samples = take_table().map(|table| table.samples());
        samples.unwrap_or(Samples { samples: Vec::new(), lost: 0 })
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        take_table();
    }
}

/// Ends the sampling; none where that was done before.
fn take_table() -> Option<Box<Table>> {
    // Nothing would come of an error: a signal too many finds no table.
    let _ = set_timer(Duration::ZERO);
    let table = TABLE.swap(std::ptr::null_mut(), Ordering::SeqCst);
    while HANDLERS.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
    // SAFETY: it came from `Box::into_raw` and was taken out, so nobody else does this; whichever handler saw it had
    // counted itself before, and all that had are gone.
    (!table.is_null()).then(|| unsafe { Box::from_raw(table) })
}

/// Words for what may come: every core busy all the time, 40 calls deep.
fn room(ask: Ask) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let samples = (ask.duration.as_secs() as usize + 1).saturating_mul(ask.hz as usize).saturating_mul(cores);
    samples.saturating_mul(HEAD_WORDS + 40).clamp(1 << 16, WORDS_MAX)
}

/// Of the files that are mapped when the first profile is taken.
fn unwinder() -> Result<&'static Unwinder, Error> {
    static UNWINDER: OnceLock<Unwinder> = OnceLock::new();
    if let Some(unwinder) = UNWINDER.get() {
        return Ok(unwinder);
    }
    let here = 0_u64;
    let mut read = [0; 8];
    if read_memory((&raw const here) as usize, &mut read) != read.len() {
        let why = std::io::Error::last_os_error();
        return Err(Error::Failed(format!(
            "the kernel does not let it read its stack (process_vm_readv): {why}"
        )));
    }
    let mut unwinder = Unwinder::new();
    for map in map::read() {
        match module::of(&map) {
            Ok(module) => unwinder.add_module(module),
            Err(reason) => tracing::debug!(map.path, reason, "its stacks are unwound by frame pointers"),
        }
    }
    Ok(UNWINDER.get_or_init(|| unwinder))
}

impl Table {
    fn new(unwinder: &'static Unwinder, words: usize) -> Self {
        let desk = |_| Desk {
            taken: AtomicBool::new(false),
            tools: UnsafeCell::new(Tools {
                cache: CacheNative::new_in(),
                stack: vec![0; STACK_BYTES].into(),
                addresses: [0; DEPTH_MAX],
            }),
        };
        // SAFETY: zero is a word.
        let words = unsafe { Box::<[AtomicUsize]>::new_zeroed_slice(words).assume_init() };
        let (next, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { unwinder, desks: std::array::from_fn(desk), words, next, lost }
    }

    /// By the handler.
    fn note(&self, registers: Registers) {
        let free = |desk: &&Desk| !desk.taken.swap(true, Ordering::Acquire);
        let Some(desk) = self.desks.iter().find(free) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // SAFETY: it was free and is taken.
        let tools = unsafe { &mut *desk.tools.get() };
        let depth = tools.unwind(self.unwinder, registers);
        if !self.put(&tools.addresses[..depth]) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        desk.taken.store(false, Ordering::Release);
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

    /// When no handler is at work any more.
    fn samples(&self) -> Samples {
        let word = |word: &AtomicUsize| word.load(Ordering::Relaxed);
        let (mut samples, mut rest) = (Vec::new(), &self.words[..]);
        while let [depth, name_0, name_1, after @ ..] = rest {
            let depth = word(depth);
            // The end of what was noted.
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

impl Tools {
    fn unwind(&mut self, unwinder: &Unwinder, registers: Registers) -> usize {
        let mut stack = Stack { from: registers.stack, bytes: &mut self.stack, filled: 0 };
        let mut read = |address| stack.word(address).ok_or(());
        let mut frames =
            unwinder.iter_frames(registers.instruction, registers.unwind, &mut self.cache, &mut read);
        let mut depth = 0;
        while depth < DEPTH_MAX
            && let Ok(Some(frame)) = frames.next()
        {
            self.addresses[depth] = frame.address() as usize;
            depth += 1;
        }
        depth
    }
}

/// A thread's stack, as far as it was looked at.
struct Stack<'a> {
    /// Where the stack's end is in memory.
    from: u64,
    bytes: &'a mut [u8],
    filled: usize,
}

impl Stack<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.from)?).ok()?;
        let end = start.checked_add(8).filter(|end| *end <= self.bytes.len())?;
        while self.filled < end {
            let from = (self.from as usize).checked_add(self.filled)?;
            let read = read_memory(from, &mut self.bytes[self.filled..]);
            if read == 0 {
                return None;
            }
            self.filled += read;
        }
        Some(u64::from_ne_bytes(self.bytes[start..end].try_into().ok()?))
    }
}

/// Of the pages from `address` on so many as can be read, at most four and what is wanted.
fn read_memory(address: usize, into: &mut [u8]) -> usize {
    const PAGE: usize = 4 << 10;
    // What a page cannot give, the ones before it do.
    let mut pages = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 4];
    let (mut next, mut left) = (address, into.len());
    for page in &mut pages {
        let len = left.min(PAGE - next % PAGE);
        *page = libc::iovec { iov_base: next as *mut c_void, iov_len: len };
        (next, left) = (next.saturating_add(len), left - len);
    }
    let len = into.len() - left;
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: the kernel writes to `into` alone and answers an error for what it cannot read. May be called by a handler:
    // it is a system call and no more.
    let read = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const local,
            1,
            pages.as_ptr(),
            pages.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).unwrap_or(0)
}

/// 15 bytes and a zero, at most.
fn thread_name() -> u128 {
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes 16 bytes at most (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    u128::from_ne_bytes(name)
}

/// What a thread was at when the signal came.
#[derive(Clone, Copy)]
struct Registers {
    instruction: u64,
    stack: u64,
    unwind: UnwindRegsNative,
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let register = |number: c_int| context.uc_mcontext.gregs[number as usize] as u64;
        let (instruction, stack) = (register(libc::REG_RIP), register(libc::REG_RSP));
        let unwind = UnwindRegsNative::new(instruction, stack, register(libc::REG_RBP));
        Self { instruction, stack, unwind }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let registers = &context.uc_mcontext;
        // Libraries may sign return addresses (pointer authentication) in the bits above an address. How many bits an
        // address has is the kernel's choice: the program, its libraries and stacks together use them all. framehop
        // cannot read the tables of functions that sign and takes their frame pointers instead; a caller that is
        // unwound by its stack pointer may end the stack there. Ours are unwound by theirs (.cargo/config.toml).
        let program = handle as *const () as u64;
        let mask = PtrAuthMask::from_max_known_address(registers.pc | registers.sp | program);
        let unwind = UnwindRegsNative::new_with_ptr_auth_mask(
            mask,
            registers.regs[30],
            registers.sp,
            registers.regs[29],
        );
        Self { instruction: registers.pc, stack: registers.sp, unwind }
    }
}

extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // Counted before the table is looked at, so that it is not taken away meanwhile.
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: who takes the table out waits for all handlers that are counted.
    let table = unsafe { TABLE.load(Ordering::SeqCst).as_ref() };
    // SAFETY: with SA_SIGINFO the third argument is a context (sigaction(2)).
    let context = unsafe { context.cast::<libc::ucontext_t>().as_ref() };
    if let (Some(table), Some(context)) = (table, context) {
        // SAFETY: each thread has its own.
        let errno = unsafe { *libc::__errno_location() };
        table.note(Registers::of(context));
        // SAFETY: as before. Whoever was interrupted may be about to read it.
        unsafe { *libc::__errno_location() = errno };
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
}

/// Once for all; under [`ONE`].
fn install() -> Result<(), Error> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a sigaction; the handler is one for SA_SIGINFO, and async-signal-safe by what stands above.
    let failed = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask) != 0
            || libc::sigaction(libc::SIGPROF, action, std::ptr::null_mut()) != 0
    };
    if failed {
        return Err(Error::Failed(std::io::Error::last_os_error().to_string()));
    }
    INSTALLED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Zero stops it.
fn set_timer(interval: Duration) -> Result<(), Error> {
    let interval = libc::timeval {
        tv_sec: interval.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(interval.subsec_micros()),
    };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: it reads one timer.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::Failed(std::io::Error::last_os_error().to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error_and_no_crash() {
        let here = [7_u64; 2_048];
        let from = (&raw const here) as u64;
        let mut bytes = vec![0; STACK_BYTES];
        let mut stack = Stack { from, bytes: &mut bytes, filled: 0 };
        assert_eq!(
            (stack.word(from), stack.word(from + 8 * 2_047)),
            (Some(7), Some(7)),
            "over several pages"
        );
        assert_eq!(stack.word(from - 8), None, "below the stack");
        assert_eq!(stack.word(from + STACK_BYTES as u64 - 7), None, "beyond what is looked at");
        for nowhere in [0, 8, u64::MAX - 4, 0xffff_8000_0000_0000] {
            let mut stack = Stack { from: nowhere, bytes: &mut bytes, filled: 0 };
            assert_eq!(stack.word(nowhere), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn what_is_noted_is_read_again_until_the_room_is_full() {
        let table = Table::new(unwinder().expect("an unwinder"), HEAD_WORDS + 2 + HEAD_WORDS + 1);
        assert!(table.put(&[1, 2]) && table.put(&[3]) && !table.put(&[4]) && !table.put(&[5]));
        let samples = table.samples().samples;
        let addresses: Vec<_> = samples.iter().map(|sample| &sample.addresses[..]).collect();
        assert_eq!(addresses, [&[1, 2][..], &[3]]);
        let name = std::thread::current().name().map(|name| name[..name.len().min(15)].to_owned());
        assert_eq!(Some(&samples[0].thread), name.as_ref());
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn a_stack_ends_where_the_thread_began() {
        let table = Table::new(unwinder().expect("an unwinder"), WORDS_MAX);
        #[inline(never)]
        fn deep(table: &Table, calls: usize) -> usize {
            match calls {
                0 => here(table),
                _ => std::hint::black_box(deep(table, calls - 1)) + 1,
            }
        }
        #[inline(never)]
        fn here(table: &Table) -> usize {
            let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
            // SAFETY: zeros are a context, and it is written to only here.
            let context = unsafe {
                assert_eq!(libc::getcontext(context.as_mut_ptr()), 0);
                context.assume_init()
            };
            table.note(Registers::of(&context));
            std::hint::black_box(0)
        }
        assert_eq!(deep(&table, 20), 20);
        let addresses = &table.samples().samples[0].addresses;
        assert!((22..DEPTH_MAX).contains(&addresses.len()), "{}", addresses.len());
    }
}

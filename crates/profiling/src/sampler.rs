//! The CPU sampler: a timer of the process's CPU time (`ITIMER_PROF`) sends SIGPROF to a running thread, and the handler
//! records that thread's stack. It belongs to the process: one [`Sampling`] at a time.
//!
//! The handler runs between any two instructions of any thread, so it takes no lock and allocates nothing: see
//! `buffer` and `unwind`. It stays installed; a late signal finds no buffer and does nothing.
//!
//! The kernel restarts interrupted system calls (`SA_RESTART`) except those that wait for events: their callers must
//! handle EINTR. A child process inherits no timer.

#![allow(unsafe_code)] // a signal handler; each use says what makes it sound

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::profile::{Ask, Error};

mod buffer;
mod module;
mod unwind;

pub(crate) use buffer::{Sample, Samples};

use buffer::Buffer;
use unwind::Registers;

/// Held while a [`Sampling`] exists. No other lock is taken under it.
static ONE: Mutex<()> = Mutex::new(());

/// Null unless a sampling runs. The buffer lives until no handler is active.
static BUFFER: AtomicPtr<Buffer> = AtomicPtr::new(std::ptr::null_mut());

/// Active handlers. A handler counts itself before it reads [`BUFFER`].
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// A running sampling; ends when stopped or dropped.
pub(crate) struct Sampling {
    _one: MutexGuard<'static, ()>,
}

impl Sampling {
    /// The first call of a process takes some milliseconds: it reads the unwind tables.
    pub(crate) fn start(ask: Ask) -> Result<Self, Error> {
        let one = ONE.try_lock().ok_or(Error::Busy)?;
        let unwinder = unwind::unwinder()?;
        install()?;
        let buffer = Box::new(Buffer::new(unwinder, buffer::words_for(samples_max(ask))));
        BUFFER.store(Box::into_raw(buffer), Ordering::SeqCst);
        let sampling = Self { _one: one };
        set_timer(Duration::from_secs(1) / ask.hz.max(1))?;
        Ok(sampling)
    }

    pub(crate) fn stop(self) -> Samples {
        let samples = take_buffer().map(|buffer| buffer.samples());
        samples.unwrap_or(Samples { samples: Vec::new(), lost: 0 })
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        take_buffer();
    }
}

/// Ends the sampling. None if it has ended already.
fn take_buffer() -> Option<Box<Buffer>> {
    // An error does no harm: a late signal finds no buffer.
    let _ = set_timer(Duration::ZERO);
    let buffer = BUFFER.swap(std::ptr::null_mut(), Ordering::SeqCst);
    while HANDLERS.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
    // SAFETY: the pointer came from `Box::into_raw`, and the swap makes this thread its only owner. A handler that saw
    // it counted itself first, and no handler is active.
    (!buffer.is_null()).then(|| unsafe { Box::from_raw(buffer) })
}

/// The number of samples if every core is busy all the time.
fn samples_max(ask: Ask) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (ask.duration.as_secs() as usize + 1).saturating_mul(ask.hz as usize).saturating_mul(cores)
}

extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // Counted before it reads the pointer: `take_buffer` waits for it.
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `take_buffer` frees the buffer only when no handler is counted.
    let buffer = unsafe { BUFFER.load(Ordering::SeqCst).as_ref() };
    // SAFETY: with SA_SIGINFO the third argument is a context (sigaction(2)).
    let context = unsafe { context.cast::<libc::ucontext_t>().as_ref() };
    if let (Some(buffer), Some(context)) = (buffer, context) {
        // SAFETY: errno is thread-local.
        let errno = unsafe { *libc::__errno_location() };
        buffer.record(Registers::of(context));
        // SAFETY: as above. The interrupted code may be about to read errno.
        unsafe { *libc::__errno_location() = errno };
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
}

/// Installs the handler once. Called under [`ONE`].
fn install() -> Result<(), Error> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid sigaction. The handler has the signature for SA_SIGINFO and is
    // async-signal-safe as the header of this file explains.
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

/// Starts the timer; zero stops it.
fn set_timer(interval: Duration) -> Result<(), Error> {
    let interval = libc::timeval {
        tv_sec: interval.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(interval.subsec_micros()),
    };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: setitimer reads one itimerval.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::Failed(std::io::Error::last_os_error().to_string())),
    }
}

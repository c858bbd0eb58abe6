//! Walks the stack of the interrupted thread, inside the signal handler: takes no lock and allocates nothing.
//!
//! It uses the exception tables in the mapped files. A walk along frame pointers would miss the running function and
//! callers of libc. Memory without a file, such as the vDSO, has no table. The kernel copies the stack
//! (`process_vm_readv`), so a bad address is an error and not a crash.

#![allow(unsafe_code)] // one system call; its use says what makes it sound

#[cfg(target_arch = "x86_64")]
use std::ffi::c_int;
use std::ffi::c_void;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::PtrAuthMask;
use framehop::{CacheNative, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder as _, UnwinderNative};

use super::module;
use crate::map;
use crate::profile::Error;

pub(super) type Unwinder = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

/// Deeper stacks lose their outermost functions.
pub(super) const DEPTH_MAX: usize = 128;

/// Far more than 128 calls take.
const STACK_BYTES: usize = 256 << 10;

/// The working memory of one handler. Unwinding allocates nothing else.
pub(super) struct Scratch {
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    stack: Box<[u8]>,
    addresses: [usize; DEPTH_MAX],
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { cache: CacheNative::new_in(), stack: vec![0; STACK_BYTES].into(), addresses: [0; DEPTH_MAX] }
    }
}

/// The registers of the interrupted thread.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    instruction: u64,
    stack: u64,
    unwind: UnwindRegsNative,
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    pub(super) fn of(context: &libc::ucontext_t) -> Self {
        let register = |number: c_int| context.uc_mcontext.gregs[number as usize] as u64;
        let (instruction, stack) = (register(libc::REG_RIP), register(libc::REG_RSP));
        let unwind = UnwindRegsNative::new(instruction, stack, register(libc::REG_RBP));
        Self { instruction, stack, unwind }
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn of(context: &libc::ucontext_t) -> Self {
        let registers = &context.uc_mcontext;
        // Pointer authentication signs return addresses in the bits above an address. The kernel decides how many bits
        // an address has; the program, its libraries and stacks together use all of them. framehop cannot read the
        // unwind tables of functions that sign, and follows their frame pointers instead. A stack may end at a caller
        // without a frame pointer; our functions have one (.cargo/config.toml).
        let program = read_memory as *const () as u64;
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

/// Knows the files that are mapped at the first profile; later ones are unwound by frame pointers.
pub(super) fn unwinder() -> Result<&'static Unwinder, Error> {
    static UNWINDER: OnceLock<Unwinder> = OnceLock::new();
    if let Some(unwinder) = UNWINDER.get() {
        return Ok(unwinder);
    }
    let here = 0_u64;
    let mut read = [0; 8];
    if read_memory((&raw const here) as usize, &mut read) != read.len() {
        let why = std::io::Error::last_os_error();
        return Err(Error::Failed(format!(
            "the kernel does not allow this process to read its own stack (process_vm_readv): {why}"
        )));
    }
    let mut unwinder = Unwinder::new();
    for map in map::read() {
        match module::of(&map) {
            Ok(module) => unwinder.add_module(module),
            Err(reason) => {
                tracing::debug!(map.path, reason, "no unwind tables: stacks are unwound by frame pointers")
            }
        }
    }
    Ok(UNWINDER.get_or_init(|| unwinder))
}

impl Scratch {
    /// The stack, innermost address first.
    pub(super) fn unwind(&mut self, unwinder: &Unwinder, registers: Registers) -> &[usize] {
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
        &self.addresses[..depth]
    }
}

/// A copy of a thread's stack, read in steps.
struct Stack<'a> {
    /// The lowest address of the copy: the stack pointer.
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

/// Reads from `address` until `into` is full, four pages are read, or a page is unreadable. Returns the bytes read.
fn read_memory(address: usize, into: &mut [u8]) -> usize {
    const PAGE: usize = 4 << 10;
    // One entry per page: an unreadable page does not fail the pages before it.
    let mut pages = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 4];
    let (mut next, mut left) = (address, into.len());
    for page in &mut pages {
        let len = left.min(PAGE - next % PAGE);
        *page = libc::iovec { iov_base: next as *mut c_void, iov_len: len };
        (next, left) = (next.saturating_add(len), left - len);
    }
    let len = into.len() - left;
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: the kernel writes to `into` only and reports an error for memory that it cannot read. A signal handler may
    // call it: it is a plain system call.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_memory_is_an_error() {
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
        assert_eq!(stack.word(from + STACK_BYTES as u64 - 7), None, "beyond the copied part");
        for nowhere in [0, 8, u64::MAX - 4, 0xffff_8000_0000_0000] {
            let mut stack = Stack { from: nowhere, bytes: &mut bytes, filled: 0 };
            assert_eq!(stack.word(nowhere), None, "{nowhere:#x}");
        }
    }
}

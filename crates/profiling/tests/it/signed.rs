//! Signed return addresses, as in libraries of some distributions (pointer authentication). On a machine without it the
//! instructions have no effect.

#![allow(unsafe_code)] // a function that the stable compiler does not make

use std::sync::atomic::AtomicBool;

use noroshi_testkit::pyroscope::pprof;

use crate::take::{ASK, Load, TURN, profiler, spin_in_a_leaf};

// As a C compiler emits it with -mbranch-protection=pac-ret, with 32 bytes of locals above the frame record.
std::arch::global_asm!(
    ".pushsection .text",
    ".p2align 2",
    ".globl noroshi_test_call_signed",
    ".type noroshi_test_call_signed, %function",
    "noroshi_test_call_signed:",
    ".cfi_startproc",
    "hint #25", // paciasp
    ".cfi_negate_ra_state",
    "stp x29, x30, [sp, #-48]!",
    ".cfi_def_cfa_offset 48",
    ".cfi_offset w29, -48",
    ".cfi_offset w30, -40",
    "mov x29, sp",
    "blr x1",
    "ldp x29, x30, [sp], #48",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore w29",
    ".cfi_restore w30",
    "hint #29", // autiasp
    ".cfi_negate_ra_state",
    "ret",
    ".cfi_endproc",
    ".size noroshi_test_call_signed, . - noroshi_test_call_signed",
    ".popsection",
);

unsafe extern "C" {
    /// Calls `call` with `until`.
    fn noroshi_test_call_signed(until: &AtomicBool, call: extern "C" fn(&AtomicBool) -> u64) -> u64;
}

extern "C" fn leaf(until: &AtomicBool) -> u64 {
    spin_in_a_leaf(until)
}

#[inline(never)]
fn through_signed(until: &AtomicBool) -> u64 {
    // SAFETY: it passes its arguments on and preserves the callee-saved registers.
    1 + std::hint::black_box(unsafe { noroshi_test_call_signed(until, leaf) })
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_continue_after_a_signed_return_address() {
    let _turn = TURN.lock().await;
    let load = Load::start(1, through_signed);
    let taken = profiler().cpu(ASK).await.expect("a profile");
    drop(load);
    let profile = pprof::read(&taken.pprof).expect("by the rules");
    let (mut all, mut whole) = (0, 0);
    for sample in &profile.samples {
        let of_load = sample.labels.get("thread").is_some_and(|name| name == "load-0");
        if of_load && sample.stack.iter().any(|name| name.contains("spin_in_a_leaf")) {
            all += sample.values[0];
            let goes_on = sample.stack.iter().any(|name| name.contains("through_signed"));
            whole += if goes_on { sample.values[0] } else { 0 };
        }
    }
    assert!(all > 0 && whole * 10 >= all * 9, "{whole} of {all}");
}

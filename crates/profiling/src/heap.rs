//! The heap profile: jemalloc samples allocations and records the stacks of those still in use.
//!
//! The program must use jemalloc as its allocator with `prof:true`; [`MALLOC_CONF`] sets this for every program that
//! links this crate. An allocation that is not sampled costs one counter.

#![allow(unsafe_code)] // a symbol that jemalloc looks for; nothing is called or read by its address here

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
pub use tikv_jemallocator::Jemalloc;

use crate::map;
use crate::pprof::{Kind, Stack, encode};
use crate::profile::{Detail, Error, Taken, thread_time};
use crate::symbol::{Function, Symbols};

/// Samples one allocation in 512 KiB from the start, because long-lived objects are allocated early. NUL-terminated.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 45] = b"prof:true,prof_active:true,lg_prof_sample:19\0";

pub(crate) fn take(folder: &Path, symbols: &Mutex<Symbols>, detail: Detail) -> Result<Taken, Error> {
    let without = || Error::Failed("the allocator of this process does not sample allocations".to_owned());
    let control = jemalloc_pprof::PROF_CTL.as_ref().ok_or_else(without)?;
    prepare(folder)?;
    let failed = |error: &dyn std::fmt::Display| Error::Failed(error.to_string());
    let (from, spent) = (SystemTime::now(), thread_time());
    let (profile, period) = {
        let mut control = control.blocking_lock();
        let profile = control.dump_profile().map_err(|error| failed(&error))?;
        (profile, 1_i64 << control.lg_sample().min(62))
    };
    let mut symbols = symbols.lock();
    let returns = profile.iter().flat_map(|(stack, _)| stack.addrs.iter().copied());
    let functions = symbols.look_up(returns, &map::read(), Detail::Functions);
    let stacks: Vec<Stack> = profile
        .iter()
        .map(|(stack, _)| Stack {
            addresses: innermost_first(&stack.addrs, &functions),
            thread: None,
            value: stack.weight as i64,
        })
        .collect();
    let kind = Kind::Heap { period_bytes: period };
    let pprof = encode(kind, &stacks, &mut symbols, detail, (from, Duration::ZERO))?;
    Ok(Taken { pprof, stacks: stacks.len(), from, until: from, cost: thread_time().saturating_sub(spent) })
}

/// Prepares the folder for jemalloc's dumps, once.
fn prepare(folder: &Path) -> Result<(), Error> {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    let mut prepared = PREPARED.lock();
    if *prepared {
        return Ok(());
    }
    let failed =
        |error: std::io::Error| Error::Failed(format!("cannot write to {}: {error}", folder.display()));
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => std::fs::create_dir_all(folder).map_err(failed)?,
    }
    // Fails if the program has set another folder, which serves as well.
    let _ = tempfile::env::override_temp_dir(folder);
    *prepared = true;
    Ok(())
}

/// Reverses jemalloc's order, drops the allocator's own functions, and turns the innermost return address into the
/// address of the call.
fn innermost_first(outermost_first: &[usize], functions: &HashMap<usize, Vec<Function>>) -> Vec<usize> {
    let is_allocator = |address: &usize| {
        let functions = functions.get(address);
        functions
            .and_then(|all| all.last())
            .is_some_and(|function| function.system_name.starts_with("_rjem_"))
    };
    let callers = outermost_first.iter().position(is_allocator).unwrap_or(outermost_first.len());
    let mut addresses: Vec<usize> = outermost_first[..callers].iter().rev().copied().collect();
    if let Some(innermost) = addresses.first_mut() {
        *innermost = innermost.saturating_sub(1);
    }
    addresses
}

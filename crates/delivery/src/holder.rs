//! The random number by which the store tells the processes apart that want to lead a task.
//!
//! Every task that only one node may do at a time (clean-up, notices, shared subscriptions, push work) names its holder
//! with such a number when it asks the store for the lease.

use ring::rand::{SecureRandom, SystemRandom};

/// A number that no other process has. It fits into a signed 64-bit column.
pub(crate) fn draw() -> u64 {
    let mut number = [0; 8];
    // The process id has to do if the system has no randomness: holders need only differ.
    if SystemRandom::new().fill(&mut number).is_err() {
        number = u64::from(std::process::id()).to_be_bytes();
    }
    u64::from_be_bytes(number) >> 1
}

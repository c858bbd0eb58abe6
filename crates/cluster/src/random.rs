//! Randomness from the system: epochs, and jitter of pauses.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use crate::{Epoch, Error};

/// 64 random bits, never 0: of a million leases two collide with a probability of 3 in 100 million, and then the
/// acquiring script rejects the second.
pub(crate) fn epoch() -> Result<Epoch, Error> {
    let mut bytes = [0; 8];
    loop {
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Error::Refused("the system has no randomness".to_owned()))?;
        match u64::from_be_bytes(bytes) {
            0 => {}
            epoch => return Ok(Epoch(epoch)),
        }
    }
}

/// Between half of the time and all of it.
pub(crate) fn jittered(time: Duration) -> Duration {
    let mut byte = [128];
    // Without randomness the pause is in the middle.
    let _ = SystemRandom::new().fill(&mut byte);
    time / 2 + time * u32::from(byte[0]) / 512
}

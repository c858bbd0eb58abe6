//! Time and random numbers. Tests replace them.

use std::sync::Weak;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::protocol::Moment;
use crate::shared::Shared;

pub(crate) trait Clock: Send + Sync + 'static {
    fn now(&self) -> Moment;
    /// A number from 0 up to, but not including, 1.
    fn random(&self) -> f64;
    /// `Shared::tick` is due at this time, instead of at an earlier one.
    fn arm(&self, at: Option<Duration>);
}

pub(crate) struct SystemClock {
    start: Instant,
    random: SystemRandom,
    armed: watch::Sender<Option<Duration>>,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), random: SystemRandom::new(), armed: watch::Sender::new(None) }
    }

    /// Calls `tick` when it is due, until the clock is gone.
    pub(crate) fn drive(&self, shared: Weak<Shared>) -> impl Future<Output = ()> + Send + use<> {
        let (start, mut armed) = (self.start, self.armed.subscribe());
        async move {
            loop {
                let at = *armed.borrow_and_update();
                let changed = match at {
                    None => armed.changed().await,
                    Some(at) => tokio::select! {
                        () = tokio::time::sleep_until(start + at) => {
                            let Some(shared) = shared.upgrade() else { return };
                            shared.tick();
                            continue;
                        }
                        changed = armed.changed() => changed,
                    },
                };
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { at: self.start.elapsed(), unix }
    }

    fn random(&self) -> f64 {
        let mut bytes = [0; 4];
        match self.random.fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
            // Without random bytes: half.
            Err(_) => 0.5,
        }
    }

    fn arm(&self, at: Option<Duration>) {
        self.armed.send_if_modified(|armed| {
            let is_new = *armed != at;
            *armed = at;
            is_new
        });
    }
}

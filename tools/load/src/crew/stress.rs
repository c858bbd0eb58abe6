//! Further commands: handshakes, storms, and slow devices. Plans are for all workers together; each worker
//! gets its share, and reports are merged.

use std::time::Duration;

use super::{Crew, no_worker, together};
use crate::partition::Partition;
use crate::worker::{
    Command, Connected, HandshakePlan, HandshakeResults, SlowPlan, SlowResults, SteadyPlan, SteadyResults,
    StormPlan, StormResults,
};
use crate::{Error, clock};

/// Its position among all workers except the first; `None` for the first.
fn behind_first(part: Partition) -> Option<Partition> {
    Some(Partition { index: part.index.checked_sub(1)?, count: part.count - 1 })
}

impl Crew {
    /// Performs `plan.count` TLS handshakes, after closing all other connections.
    pub(crate) fn shake(&mut self, plan: &HandshakePlan) -> Result<HandshakeResults, Error> {
        self.send(|part| {
            Command::Shake(HandshakePlan {
                count: part.share(plan.count),
                opening_max: part.share(plan.opening_max).max(1),
                ..plan.clone()
            })
        })?;
        self.results()
    }

    /// Connects `steady` devices of the first worker and `others` of the other workers, of which there is at
    /// least one.
    pub(crate) fn connect_apart(
        &mut self,
        (steady, others): (usize, usize),
        handshakes_max: usize,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let deadline_ns = clock::now_ns() + clock::ns(timeout);
        self.send(|part| {
            let devices = behind_first(part).map_or(steady, |part| part.share(others));
            let handshakes_max = part.share(handshakes_max).max(1);
            Command::Connect { devices, handshakes_max, deadline_ns }
        })?;
        self.connected(steady + others)
    }

    /// The devices of all workers except the first lose their connection and reconnect, while the first
    /// worker publishes to its own devices.
    pub(crate) fn start_storm(&mut self, steady: &SteadyPlan, storm: &StormPlan) -> Result<(), Error> {
        self.send(|part| match behind_first(part) {
            None => Command::Steady(Box::new(steady.clone())),
            Some(part) => Command::Storm(StormPlan {
                devices: part.share(storm.devices),
                opening_max: part.share(storm.opening_max).max(1),
                ..storm.clone()
            }),
        })
    }

    /// Waits for the result of [`Crew::start_storm`].
    pub(crate) fn storm_results(&mut self) -> Result<(SteadyResults, StormResults), Error> {
        let (first, others) = self.members.split_first_mut().ok_or_else(no_worker)?;
        let storm = together(others)?;
        first.send(&Command::End)?;
        Ok((first.report()?, storm))
    }

    /// From now on, all devices except the first `wide` connect with small socket buffers.
    pub(crate) fn narrow(&mut self, wide: usize) -> Result<(), Error> {
        self.send(|part| Command::Narrow { from: part.share(wide) })?;
        self.reports::<()>().map(drop)
    }

    /// Starts the measurement for [`Crew::slow_results`].
    pub(crate) fn start_slow(&mut self, plan: &SlowPlan) -> Result<(), Error> {
        self.send(|part| {
            let until_silent = part.share(plan.healthy + plan.silent);
            let all = part.share(plan.healthy + plan.silent + plan.trickling);
            let healthy = part.share(plan.healthy);
            Command::Watch(SlowPlan {
                healthy,
                silent: until_silent - healthy,
                trickling: all - until_silent,
                ..plan.clone()
            })
        })
    }

    pub(crate) fn slow_results(&mut self) -> Result<SlowResults, Error> {
        self.results()
    }
}

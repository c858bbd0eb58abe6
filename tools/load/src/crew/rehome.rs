//! Commands for the failure of a node: devices reconnect to the other nodes, and `stored` messages are
//! tracked individually.

use std::collections::HashMap;

use super::Crew;
use crate::Error;
use crate::worker::{Command, RehomePlan, Rehomed};

impl Crew {
    /// From now on, devices that lose their connection reconnect; the plan is for all workers together.
    pub(crate) fn rehome(&mut self, plan: &RehomePlan) -> Result<(), Error> {
        self.send(|part| {
            Command::Rehome(RehomePlan {
                devices: part.share(plan.devices),
                opening_max: part.share(plan.opening_max).max(1),
                ..plan.clone()
            })
        })
    }

    /// After the node has failed: waits until all devices have reconnected.
    pub(crate) fn rehomed(&mut self) -> Result<Rehomed, Error> {
        self.send(|_| Command::End)?;
        self.results()
    }

    /// Adds the number of receptions of each `stored` message since the last call; the first call returns
    /// none.
    pub(crate) fn kept(&mut self, into: &mut HashMap<u64, u32>) -> Result<(), Error> {
        self.send(|_| Command::Kept)?;
        for stamp in self.reports::<Vec<u64>>()?.into_iter().flatten() {
            *into.entry(stamp).or_default() += 1;
        }
        Ok(())
    }
}

//! Commands for the failure of a node: devices reconnect to the other nodes, and `stored` messages are
//! tracked individually.

use std::collections::HashMap;

use super::{Crew, out_of_order, together};
use crate::Error;
use crate::worker::{Command, RehomePlan, Rehomed, Report};

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
        let part = |report| match report {
            Report::Rehomed(part) => Some(*part),
            _ => None,
        };
        together(self.reports()?, part, |whole, part: Rehomed| {
            whole.at_home += part.at_home;
            whole.lost += part.lost;
            whole.back += part.back;
            whole.back_ns = whole.back_ns.max(part.back_ns);
            whole.log_in.merge(&part.log_in);
            whole.failed_attempts.add(part.failed_attempts);
            whole.fatal = whole.fatal.take().or(part.fatal);
        })
    }

    /// Adds the number of receptions of each `stored` message since the last call; the first call returns
    /// none.
    pub(crate) fn kept(&mut self, into: &mut HashMap<u64, u32>) -> Result<(), Error> {
        self.send(|_| Command::Kept)?;
        for report in self.reports()? {
            let Report::Kept(stamps) = report else { return Err(out_of_order()) };
            stamps.into_iter().for_each(|stamp| *into.entry(stamp).or_default() += 1);
        }
        Ok(())
    }
}

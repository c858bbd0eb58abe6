//! What the crew does when one of several nodes dies: devices come back at the others, and `stored` messages are told
//! one by one.

use std::collections::HashMap;

use super::{Crew, out_of_order, together};
use crate::Error;
use crate::worker::{Command, RehomePlan, Rehomed, Report};

impl Crew {
    /// From now on devices that lose their connection come back; the plan is the whole of it.
    pub(crate) fn rehome(&mut self, plan: &RehomePlan) -> Result<(), Error> {
        self.tell(|part| {
            Command::Rehome(RehomePlan {
                devices: part.share(plan.devices),
                opening_max: part.share(plan.opening_max).max(1),
                ..plan.clone()
            })
        })
    }

    /// The node is dead: waits until all are back.
    pub(crate) fn rehomed(&mut self) -> Result<Rehomed, Error> {
        self.tell(|_| Command::End)?;
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
            whole.turned.add(part.turned);
            whole.fatal = whole.fatal.take().or(part.fatal);
        })
    }

    /// Adds how often each `stored` message was received since this was last asked; the first time there are none.
    pub(crate) fn kept(&mut self, into: &mut HashMap<u64, u32>) -> Result<(), Error> {
        self.tell(|_| Command::Kept)?;
        for report in self.reports()? {
            let Report::Kept(stamps) = report else { return Err(out_of_order()) };
            stamps.into_iter().for_each(|stamp| *into.entry(stamp).or_default() += 1);
        }
        Ok(())
    }
}

//! Commands to the crew beside the everyday ones: handshakes alone, a storm, slow devices. Plans are those
//! of the whole; here each worker gets its share of them, and reports become one again.

use std::time::Duration;

use super::member::Member;
use super::{Crew, out_of_order, together};
use crate::partition::Partition;
use crate::stats::Latency;
use crate::tls::Handshakes;
use crate::worker::{
    Command, Connected, HandshakePlan, Reasons, Report, Shaken, SlowPlan, Steadied, SteadyPlan, StormPlan,
    Stormed, Watched, add_reasons,
};
use crate::{Error, clock};

/// Its place among all workers but the first; none for the first.
fn behind_first(part: Partition) -> Option<Partition> {
    Some(Partition { index: part.index.checked_sub(1)?, count: part.count - 1 })
}

impl Crew {
    /// Makes `plan.count` TLS handshakes; all other connections are ended first.
    pub(crate) fn shake(&mut self, plan: &HandshakePlan) -> Result<Shaken, Error> {
        self.tell(|part| {
            Command::Shake(HandshakePlan {
                count: part.share(plan.count),
                opening_max: part.share(plan.opening_max).max(1),
                ..plan.clone()
            })
        })?;
        let mut whole = Shaken {
            first_open_ns: u64::MAX,
            last_ns: 0,
            latency: Latency::new(),
            handshakes: Handshakes::default(),
            failed: Reasons::new(),
        };
        for report in self.reports()? {
            let Report::Shaken(part) = report else { return Err(out_of_order()) };
            whole.first_open_ns = whole.first_open_ns.min(part.first_open_ns);
            whole.last_ns = whole.last_ns.max(part.last_ns);
            whole.latency.merge(&part.latency);
            whole.handshakes.add(part.handshakes);
            add_reasons(&mut whole.failed, part.failed);
        }
        Ok(whole)
    }

    /// Brings up `steady` devices of the first worker and `others` of all others, of which there are some.
    pub(crate) fn connect_apart(
        &mut self,
        (steady, others): (usize, usize),
        handshakes_max: usize,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let deadline_ns = clock::now_ns() + clock::ns(timeout);
        self.tell(|part| {
            let devices = behind_first(part).map_or(steady, |part| part.share(others));
            let handshakes_max = part.share(handshakes_max).max(1);
            Command::Connect { devices, handshakes_max, deadline_ns }
        })?;
        self.connected(steady + others)
    }

    /// The devices of all workers but the first lose their connection and come back; it publishes to its own
    /// meanwhile.
    pub(crate) fn storm(&mut self, steady: &SteadyPlan, storm: &StormPlan) -> Result<(), Error> {
        self.tell(|part| match behind_first(part) {
            None => Command::Steady(Box::new(steady.clone())),
            Some(part) => Command::Storm(StormPlan {
                devices: part.share(storm.devices),
                opening_max: part.share(storm.opening_max).max(1),
                ..storm.clone()
            }),
        })
    }

    /// Waits for the end of what [`Crew::storm`] began.
    pub(crate) fn stormed(&mut self) -> Result<(Steadied, Stormed), Error> {
        let (first, others) = self.members.split_first_mut().ok_or_else(out_of_order)?;
        let reports: Vec<Report> = others.iter_mut().map(Member::report).collect::<Result<_, _>>()?;
        let part = |report| match report {
            Report::Stormed(part) => Some(*part),
            _ => None,
        };
        let stormed = together(reports, part, |whole, part: Stormed| {
            whole.back += part.back;
            whole.back_ns = whole.back_ns.max(part.back_ns);
            whole.log_in.merge(&part.log_in);
            whole.handshakes.add(part.handshakes);
            whole.turned.add(part.turned);
            whole.fatal = whole.fatal.take().or(part.fatal);
        })?;
        first.tell(&Command::End)?;
        let Report::Steadied(steadied) = first.report()? else { return Err(out_of_order()) };
        Ok((*steadied, stormed))
    }

    /// All but the first `wide` devices connect as over a narrow network from now on.
    pub(crate) fn narrow(&mut self, wide: usize) -> Result<(), Error> {
        self.tell(|part| Command::Narrow { from: part.share(wide) })?;
        self.reports().map(drop)
    }

    /// Begins what [`Crew::watched`] waits for.
    pub(crate) fn watch(&mut self, plan: &SlowPlan) -> Result<(), Error> {
        self.tell(|part| {
            let until_silent = part.share(plan.healthy + plan.silent);
            let all = part.share(plan.healthy + plan.silent + plan.sipping);
            let healthy = part.share(plan.healthy);
            Command::Watch(SlowPlan {
                healthy,
                silent: until_silent - healthy,
                sipping: all - until_silent,
                ..plan.clone()
            })
        })
    }

    pub(crate) fn watched(&mut self) -> Result<Watched, Error> {
        let part = |report| match report {
            Report::Watched(part) => Some(*part),
            _ => None,
        };
        together(self.reports()?, part, |whole, part: Watched| {
            whole.deliveries += part.deliveries;
            whole.bytes += part.bytes;
            whole.latency.merge(&part.latency);
            add_reasons(&mut whole.healthy_ended, part.healthy_ended);
            add_reasons(&mut whole.slow_ended, part.slow_ended);
        })
    }
}

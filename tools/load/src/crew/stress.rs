//! Further commands: handshakes, storms, and slow devices. Plans are for all workers together; each worker
//! gets its share, and reports are merged.

use std::time::Duration;

use super::member::Member;
use super::{Crew, out_of_order, together};
use crate::partition::Partition;
use crate::stats::Latency;
use crate::tls::Handshakes;
use crate::worker::{
    Command, Connected, HandshakePlan, HandshakeResults, Reasons, Report, SlowPlan, SlowResults, SteadyPlan,
    SteadyResults, StormPlan, StormResults, add_reasons,
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
        let mut whole = HandshakeResults {
            first_open_ns: u64::MAX,
            last_ns: 0,
            latency: Latency::new(),
            handshakes: Handshakes::default(),
            failed: Reasons::new(),
        };
        for report in self.reports()? {
            let Report::HandshakeResults(part) = report else { return Err(out_of_order()) };
            whole.first_open_ns = whole.first_open_ns.min(part.first_open_ns);
            whole.last_ns = whole.last_ns.max(part.last_ns);
            whole.latency.merge(&part.latency);
            whole.handshakes.add(part.handshakes);
            add_reasons(&mut whole.failed, part.failed);
        }
        Ok(whole)
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
        let (first, others) = self.members.split_first_mut().ok_or_else(out_of_order)?;
        let reports: Vec<Report> = others.iter_mut().map(Member::report).collect::<Result<_, _>>()?;
        let part = |report| match report {
            Report::StormResults(part) => Some(*part),
            _ => None,
        };
        let storm = together(reports, part, |whole, part: StormResults| {
            whole.back += part.back;
            whole.back_ns = whole.back_ns.max(part.back_ns);
            whole.log_in.merge(&part.log_in);
            whole.handshakes.add(part.handshakes);
            whole.failed_attempts.add(part.failed_attempts);
            whole.fatal = whole.fatal.take().or(part.fatal);
        })?;
        first.send(&Command::End)?;
        let Report::SteadyResults(steady) = first.report()? else { return Err(out_of_order()) };
        Ok((*steady, storm))
    }

    /// From now on, all devices except the first `wide` connect with small socket buffers.
    pub(crate) fn narrow(&mut self, wide: usize) -> Result<(), Error> {
        self.send(|part| Command::Narrow { from: part.share(wide) })?;
        self.reports().map(drop)
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
        let part = |report| match report {
            Report::SlowResults(part) => Some(*part),
            _ => None,
        };
        together(self.reports()?, part, |whole, part: SlowResults| {
            whole.deliveries += part.deliveries;
            whole.bytes += part.bytes;
            whole.latency.merge(&part.latency);
            add_reasons(&mut whole.healthy_ended, part.healthy_ended);
            add_reasons(&mut whole.slow_ended, part.slow_ended);
        })
    }
}

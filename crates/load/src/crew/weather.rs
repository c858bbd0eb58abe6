//! Commands to the crew beside the everyday ones: handshakes alone, a storm, slow devices. Plans are those
//! of the whole; here each worker gets its share of them, and reports become one again.

use super::{Crew, out_of_order};
use crate::Error;
use crate::stats::Latency;
use crate::tls::Handshakes;
use crate::worker::{
    Command, HandshakePlan, Pace, Plan, Reasons, Report, Shaken, SlowPlan, StormPlan, Stormed, Watched,
    add_reasons,
};

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

    /// Begins what [`Crew::stormed`] waits for.
    pub(crate) fn storm(&mut self, plan: &StormPlan) -> Result<(), Error> {
        let count = self.members.len();
        let Pace::Rate(rate) = plan.publish.pace else { return Err(out_of_order()) };
        self.tell(|part| {
            let publish = Plan {
                pace: Pace::Rate(rate / count as f64),
                in_flight: part.share(plan.publish.in_flight).max(1),
                ..plan.publish.clone()
            };
            // Devices are dealt out by turns, so the shares of the first `steady` are each worker's first.
            let steady = part.share(plan.steady);
            let others = part.share(plan.steady + plan.others) - steady;
            let opening_max = part.share(plan.opening_max).max(1);
            Command::Storm(Box::new(StormPlan { publish, steady, others, opening_max, ..plan.clone() }))
        })
    }

    pub(crate) fn stormed(&mut self) -> Result<Stormed, Error> {
        let mut whole: Option<Stormed> = None;
        for report in self.reports()? {
            let Report::Stormed(part) = report else { return Err(out_of_order()) };
            match &mut whole {
                None => whole = Some(*part),
                Some(whole) => {
                    whole.back += part.back;
                    whole.back_ns = whole.back_ns.max(part.back_ns);
                    whole.log_in.merge(&part.log_in);
                    whole.handshakes.add(part.handshakes);
                    whole.turned.add(part.turned);
                    whole.fatal = whole.fatal.take().or(part.fatal);
                    whole.before.merge(&part.before);
                    whole.during.merge(&part.during);
                    whole.deliveries_during += part.deliveries_during;
                    whole.published.add(part.published);
                    add_reasons(&mut whole.steady_ended, part.steady_ended);
                }
            }
        }
        whole.ok_or_else(out_of_order)
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
        let mut whole: Option<Watched> = None;
        for report in self.reports()? {
            let Report::Watched(part) = report else { return Err(out_of_order()) };
            match &mut whole {
                None => whole = Some(*part),
                Some(whole) => {
                    whole.deliveries += part.deliveries;
                    whole.bytes += part.bytes;
                    whole.latency.merge(&part.latency);
                    add_reasons(&mut whole.healthy_ended, part.healthy_ended);
                    add_reasons(&mut whole.slow_ended, part.slow_ended);
                }
            }
        }
        whole.ok_or_else(out_of_order)
    }
}

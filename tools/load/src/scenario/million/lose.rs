//! Gateways that devices lose: one is killed, others drain and restart, one after the other.

use super::{Bench, note_reasons, progress, watch};
use crate::report::Values;
use crate::worker::{RehomePlan, Rehomed};
use crate::{Error, clock};

use super::super::usage::Sample;

/// The gateway that is killed; the next ones drain.
const ENDING: usize = 0;

/// How the devices of one gateway came back.
struct Moved {
    rehomed: Rehomed,
    /// Of the kill, or the request to drain.
    from_ns: u64,
}

impl Moved {
    fn seconds(&self) -> f64 {
        self.rehomed.recovery.back_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    fn failed(&self) -> u64 {
        self.rehomed.recovery.failed_attempts.reasons.values().sum()
    }
}

impl Bench<'_> {
    /// kill -9 of a gateway, until its devices are connected to the others. It restarts afterwards.
    pub(super) fn lose_gateway(&mut self, values: &mut Values) -> Result<(), Error> {
        progress("killing a gateway");
        self.settle();
        let from = Sample::take_from(&mut self.cell, &self.crew, ENDING + 1)?;
        let moved = self.move_devices(ENDING, |bench| bench.cell.gateways[ENDING].started.kill())?;
        let to = Sample::take_from(&mut self.cell, &self.crew, ENDING + 1)?;
        values.push("killed gateway: devices", "", moved.rehomed.at_home as f64);
        values.push("killed gateway: connections lost", "", moved.rehomed.lost as f64);
        values.push("killed gateway: time until all are back", "s", moved.seconds());
        values.push(
            "killed gateway: log-ins meanwhile",
            "1/s",
            moved.rehomed.lost as f64 / moved.seconds().max(1e-3),
        );
        let log_in = &moved.rehomed.recovery.log_in;
        values.push_latency("killed gateway: log-in latency", log_in);
        values.push("killed gateway: failed attempts", "", moved.failed() as f64);
        from.push_each(&to, "per device that came back", moved.rehomed.lost as u64, values);
        let reasons = &moved.rehomed.recovery.failed_attempts.reasons;
        note_reasons(&mut self.notes, "failed attempts after the kill", reasons);
        self.restart(ENDING)
    }

    /// Each one drains as with SIGTERM, and restarts when its devices are back at others.
    pub(super) fn drain_gateways(&mut self, values: &mut Values) -> Result<(), Error> {
        let count = self.args.drains.min(self.plan.gateways - 1);
        let (mut devices, mut lost, mut failed) = (0, 0, 0);
        let (mut seconds, mut slowest) = (0.0, 0.0_f64);
        for gateway in (1..=count).map(|number| ENDING + number) {
            progress(&format!("gateway {} of {count} drains", gateway - ENDING));
            let moved =
                self.move_devices(gateway, |bench| bench.cell.gateways[gateway].started.ask_to_stop())?;
            devices += moved.rehomed.at_home;
            lost += moved.rehomed.lost;
            failed += moved.failed();
            seconds += moved.seconds();
            slowest = slowest.max(moved.seconds());
            let reasons = &moved.rehomed.recovery.failed_attempts.reasons;
            note_reasons(&mut self.notes, "failed attempts during a drain", reasons);
            self.restart(gateway)?;
        }
        values.push("rolling drain: gateways", "", count as f64);
        values.push("rolling drain: devices", "", devices as f64);
        values.push("rolling drain: connections moved", "", lost as f64);
        values.push("rolling drain: time of a gateway, mean", "s", seconds / count as f64);
        values.push("rolling drain: time of a gateway, longest", "s", slowest);
        values.push("rolling drain: failed attempts", "", failed as f64);
        Ok(())
    }

    /// Waits until the devices of `home` are connected elsewhere, and all others too.
    fn move_devices(&mut self, home: usize, end: impl FnOnce(&Self)) -> Result<Moved, Error> {
        let now_ns = clock::now_ns();
        let patience_ns = clock::ns(self.args.patience);
        self.crew.rehome(&RehomePlan {
            devices: self.plan.devices,
            opening_max: self.args.handshakes as usize,
            home,
            first_ns: now_ns,
            deadline_ns: now_ns + patience_ns,
        })?;
        let from_ns = clock::now_ns();
        end(self);
        let crew = &mut self.crew;
        let rehomed = watch(|| crew.rehomed())?;
        rehomed.recovery.check(self.plan.devices, from_ns)?;
        Ok(Moved { rehomed, from_ns })
    }

    /// Waits for its end first.
    fn restart(&self, gateway: usize) -> Result<(), Error> {
        let node = &self.cell.gateways[gateway];
        node.started.restart()?;
        node.wait_until_ready()
    }
}

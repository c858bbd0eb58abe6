//! Log-ins: connect, upgrade, token, session, subscriptions and inbox, until `ready`.

use super::{Bench, Measurement, Sample, Subject};
use crate::Error;
use crate::args::{Connect, check};
use crate::report::{ReportDocument, Values};
use crate::worker::Connected;

pub(crate) fn run(args: &Connect) -> Result<ReportDocument, Error> {
    check(args.connections > 0, "at least one device is required")?;
    let subject = Subject {
        speech: Some(&args.speech),
        foreign: Some(&args.foreign),
        floor: args.floor,
        ..Subject::new(&args.common, args.connections)
    };
    super::run("connect", &subject, || LogIns { connections: args.connections, first: None })
}

struct LogIns {
    connections: usize,
    /// The log-ins that create the devices, if the target stores devices: log-ins per second, and the
    /// longest.
    first: Option<(f64, f64)>,
}

impl Measurement for LogIns {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let first = bench.connect(self.connections)?;
        if bench.target.keeps_devices() {
            self.first = Some((log_ins_per_second(&first), first.log_in.max_ms()));
        }
        Ok(())
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        bench.crew.disconnect()?;
        bench.settle();
        let mut values = round(bench, self.connections)?;
        if let Some((rate, max_ms)) = self.first.take() {
            values.push("first log-ins, which make the devices", "1/s", rate);
            values.push("first log-in latency max", "ms", max_ms);
        }
        Ok(values)
    }
}

fn round(bench: &mut Bench<'_>, connections: usize) -> Result<Values, Error> {
    let from = Sample::take(bench);
    let connected = bench.connect(connections)?;
    let to = Sample::take(bench);
    let mut values = Values::default();
    values.push("log-ins", "1/s", log_ins_per_second(&connected));
    values.push_latency("log-in latency", &connected.log_in);
    if connected.handshakes.total() > 0 {
        values.push("TLS handshakes resumed", "", connected.handshakes.resumed as f64);
    }
    from.push_cpu(to, "server CPU per log-in", connections as u64, &mut values);
    Ok(values)
}

fn log_ins_per_second(connected: &Connected) -> f64 {
    let ns = connected.last_log_in_ns.saturating_sub(connected.first_open_ns).max(1);
    connected.devices as f64 / (ns as f64 / 1e9)
}

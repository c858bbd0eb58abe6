//! Reports of `noroshi bench homing` (JSON): what single things cost there becomes the model's figures, and what another
//! run of it showed is compared with the model's prediction. A prediction is only one if it does not come from the same
//! report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::broadcast;
use crate::comeback;
use crate::layout::Layout;
use crate::parameter::Parameters;
use crate::publish::{self, Arrivals};

/// The prediction is good where it is off by no more.
pub const TOLERANCE_PERCENT: f64 = 25.0;
/// Requests that a simulation makes: more change the third digit.
const REQUESTS: usize = 4_000;

#[derive(Deserialize)]
struct Document {
    scenario: String,
    #[serde(default)]
    command: String,
    host: Host,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Host {
    cores: usize,
}

#[derive(Deserialize)]
struct Figure {
    key: String,
    median: f64,
}

/// A report as it is used here.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub command: String,
    cores: usize,
    figures: BTreeMap<String, f64>,
}

/// One figure that was measured, beside what the model says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    pub name: &'static str,
    pub unit: &'static str,
    pub measured: f64,
    pub predicted: f64,
    /// Of the measured one.
    pub off_percent: f64,
    /// Whether it has to be within [`TOLERANCE_PERCENT`]: latencies on a machine that is full say how long queues are.
    pub counts: bool,
}

impl Measured {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| Error::Report(error.to_string()))?;
        if document.scenario != "homing" {
            return Err(Error::Report(format!(
                "it is of `bench {}`, not of `bench homing`",
                document.scenario
            )));
        }
        let figures = document.figures.into_iter().map(|figure| (figure.key, figure.median)).collect();
        Ok(Self { command: document.command, cores: document.host.cores.max(1), figures })
    }

    fn get(&self, key: &str) -> Option<f64> {
        self.figures.get(key).copied().filter(|value| value.is_finite())
    }

    fn need(&self, key: &'static str) -> Result<f64, Error> {
        self.get(key).ok_or_else(|| Error::Report(format!("it has no figure {key}")))
    }

    /// Costs of single things become the model's. What was not measured there stays as it was.
    pub fn teach(&self, parameters: &mut Parameters) -> Result<(), Error> {
        let connected = self.need("of_them_connected")?.max(1.0);
        let per_request = |key: &str| self.get(key).map(|each| each * connected);
        let commands = self.get("redis_commands_per_delivery").filter(|commands| *commands > 0.0);
        let per_command =
            self.get("redis_cpu_per_delivery").zip(commands).map(|(cpu, commands)| cpu / commands);
        let log_in_commands = self.get("redis_commands_per_log_in");
        let broadcast = self.get("topic_message_to_all_first_to_last").map(|ms| self.broadcast_us(ms));
        let client = self.get("client_cpu_per_delivery");
        let figures = [
            ("load.users_per_request", self.get("users_of_a_request")),
            ("load.connected_per_request", Some(connected)),
            ("load.data_bytes", self.get("data_of_a_message")),
            ("gateway.cpu_per_delivery_us", self.get("gateway_cpu_per_delivery")),
            ("gateway.cpu_per_log_in_us", self.get("gateway_cpu_per_log_in")),
            (
                "gateway.cpu_per_broadcast_us",
                broadcast.map(|all| (all - client.unwrap_or_default()).max(all / 4.0)),
            ),
            ("api.cpu_per_request_us", per_request("api_cpu_per_delivery")),
            ("postgres.cpu_per_request_us", per_request("postgresql_cpu_per_delivery")),
            ("postgres.cpu_per_log_in_us", self.get("postgresql_cpu_per_log_in")),
            // Keys of a look-up are part of what a command cost on average there.
            ("redis.cpu_per_command_us", per_command),
            ("redis.cpu_per_key_us", per_command.map(|_| 0.0)),
            ("redis.commands_per_log_in", log_in_commands),
            ("device.cpu_per_delivery_us", client),
            ("device.cpu_per_log_in_us", self.get("client_cpu_per_log_in")),
        ];
        let source = format!("measured: {}", self.command);
        for (key, value) in figures {
            if let Some(value) = value {
                let wrong = |problem| Error::Report(format!("{key}: {problem}"));
                parameters
                    .set(
                        key,
                        value.max(if key.contains("cpu") && value > 0.0 { 0.001 } else { 0.0 }),
                        &source,
                    )
                    .map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// CPU of all sides for one delivery of a broadcast that kept the machine busy for so long.
    fn broadcast_us(&self, spread_ms: f64) -> f64 {
        let devices = self.get("devices_connected").unwrap_or(1.0).max(1.0);
        spread_ms * 1e3 * self.cores as f64 / devices
    }

    /// What the model says of this run, on a machine like this one, beside what was measured.
    pub fn compare(&self, parameters: &Parameters, seed: u64) -> Result<Vec<Compared>, Error> {
        let gateways = self.need("gateway_nodes")? as usize;
        let apis = self.get("api_nodes").unwrap_or(1.0) as usize;
        let devices = self.need("devices_connected")?;
        let mut parameters = parameters.clone();
        for (key, figure) in [
            ("load.users_per_request", "users_of_a_request"),
            ("load.connected_per_request", "of_them_connected"),
        ] {
            let value = self.need(figure)?;
            parameters.set(key, value.max(1.0), "the report").map_err(Error::Report)?;
        }
        let machine = || Layout::one_machine(self.cores, gateways, apis);
        let mut all = Vec::new();
        let mut push = |name, unit, measured: Option<f64>, predicted: f64, counts| {
            if let Some(measured) = measured.filter(|measured| *measured > 0.0) {
                let off_percent = (predicted / measured - 1.0) * 100.0;
                all.push(Compared { name, unit, measured, predicted, off_percent, counts });
            }
        };

        let under_way = self.get("log_ins_on_their_way_at_most").map(|count| count as usize);
        let plan = comeback::Plan {
            devices: devices as u64,
            outage_s: 0.0,
            at_once: true,
            under_way_max: under_way,
        };
        let log_ins = comeback::simulate(&parameters, machine(), plan, seed);
        push("log-ins", "1/s", self.get("log_ins"), log_ins.log_ins_per_second, true);

        let arrivals = match self.get("requests_due") {
            Some(rate) => Arrivals::Open(rate),
            None => Arrivals::Closed(self.need("requests_in_flight_at_most")? as usize),
        };
        let plan = publish::Plan { arrivals, requests: REQUESTS, stored_share: 0.0 };
        let published = publish::simulate(&parameters, machine(), plan, seed);
        push("deliveries", "1/s", self.get("deliveries"), published.deliveries_per_second, true);
        let commands = published.redis_commands_per_delivery;
        push("Redis commands per delivery", "", self.get("redis_commands_per_delivery"), commands, true);
        push("delivery latency p50", "ms", self.get("delivery_latency_p50"), published.p50_ms, false);
        push("delivery latency p99", "ms", self.get("delivery_latency_p99"), published.p99_ms, false);

        let told = broadcast::simulate(&parameters, machine(), devices as u64, 0.0, seed);
        let spread = self.get("topic_message_to_all_first_to_last");
        push("topic message to all: first to last", "ms", spread, told.last_ms - told.first_ms, true);
        let messages = self.get("topic_message_to_all_bus_messages");
        push("topic message to all: bus messages", "", messages, told.bus_messages as f64, true);

        if let Some(lost) = self.get("connections_lost").filter(|lost| *lost > 0.0) {
            let plan =
                comeback::Plan { devices: lost as u64, outage_s: 0.0, at_once: true, under_way_max: None };
            let left = Layout::one_machine(self.cores, gateways.saturating_sub(1), apis);
            let back = comeback::simulate(&parameters, left, plan, seed);
            let measured = self.get("time_until_all_are_back_from_the_first_attempt");
            push("a lost gateway: time until all are back", "s", measured, back.all_s, true);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(figures: &[(&str, f64)]) -> String {
        let figures: Vec<_> =
            figures.iter().map(|(key, median)| serde_json::json!({"key": key, "median": median})).collect();
        serde_json::json!({"scenario": "homing", "command": "c", "host": {"cores": 2}, "figures": figures})
            .to_string()
    }

    fn usual() -> Vec<(&'static str, f64)> {
        vec![
            ("gateway_nodes", 10.0),
            ("devices_connected", 20_000.0),
            ("users_of_a_request", 300.0),
            ("of_them_connected", 150.0),
            ("requests_in_flight_at_most", 64.0),
            ("log_ins_on_their_way_at_most", 400.0),
            ("gateway_cpu_per_delivery", 12.0),
            ("api_cpu_per_delivery", 2.0),
            ("client_cpu_per_delivery", 4.0),
            ("redis_cpu_per_delivery", 0.5),
            ("redis_commands_per_delivery", 0.05),
            ("deliveries", 100_000.0),
        ]
    }

    #[test]
    fn what_things_cost_is_learned_and_its_source_told() {
        let mut parameters = Parameters::default();
        Measured::parse(&report(&usual())).unwrap().teach(&mut parameters).unwrap();
        assert_eq!(parameters.gateway.cpu_per_delivery_us, 12.0);
        assert_eq!(parameters.api.cpu_per_request_us, 300.0);
        assert!((parameters.redis.cpu_per_command_us - 10.0).abs() < 1e-9);
        let taught = parameters.all().into_iter().filter(|one| one.source.starts_with("measured: c")).count();
        assert!(taught >= 6, "{taught}");
    }

    #[test]
    fn a_prediction_stands_beside_what_was_measured() {
        let mut parameters = Parameters::default();
        let measured = Measured::parse(&report(&usual())).unwrap();
        measured.teach(&mut parameters).unwrap();
        let compared = measured.compare(&parameters, 1).unwrap();
        let deliveries = compared.iter().find(|one| one.name == "deliveries").unwrap();
        // Two cores at some 20 µs a delivery.
        assert!((80_000.0..110_000.0).contains(&deliveries.predicted), "{deliveries:?}");
        assert!((deliveries.off_percent - (deliveries.predicted / 1e5 - 1.0) * 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_report_of_something_else_is_refused() {
        for text in ["", "{}", r#"{"scenario":"direct","host":{"cores":1},"figures":[]}"#] {
            assert!(Measured::parse(text).is_err(), "{text}");
        }
        let measured = Measured::parse(&report(&[("deliveries", 1.0)])).unwrap();
        assert!(measured.compare(&Parameters::default(), 1).is_err());
        assert!(measured.teach(&mut Parameters::default()).is_err());
    }
}

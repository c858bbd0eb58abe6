//! Reports of `noroshi bench homing` (JSON): measured costs replace the model's parameters, and the figures
//! of another run are compared with the model's predictions. A comparison is meaningful only if the costs
//! come from a different report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::broadcast;
use crate::layout::Layout;
use crate::parameter::Parameters;
use crate::publish::{self, Arrivals};
use crate::recovery;
use crate::sizing::idle_commands;
use crate::{Error, REQUESTS};

/// Largest deviation of a good prediction.
pub const TOLERANCE_PERCENT: f64 = 25.0;
/// A cost below the resolution of the measurement is not zero.
const CPU_MIN_US: f64 = 0.001;
/// Almost twice as many devices, as a power of ten.
const TENFOLDS_MIN: f64 = 0.29;

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

/// The parts of a report that are used here.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub command: String,
    cores: usize,
    figures: BTreeMap<String, f64>,
}

/// A measured figure and the model's prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    pub name: &'static str,
    pub unit: &'static str,
    pub measured: f64,
    pub predicted: f64,
    /// Relative to the measured value.
    pub off_percent: f64,
    /// Whether it must be within [`TOLERANCE_PERCENT`]; latencies on a saturated machine only show the length
    /// of queues.
    pub counts: bool,
}

impl Measured {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| Error::Report(error.to_string()))?;
        if document.scenario != "homing" {
            return Err(Error::Report(format!(
                "it is a report of `bench {}`, not of `bench homing`",
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
        self.get(key).ok_or_else(|| Error::Report(format!("it lacks the figure {key}")))
    }

    /// Replaces the model's costs by measured ones. Parameters without a measurement keep their values.
    pub fn apply_costs_to(&self, parameters: &mut Parameters) -> Result<(), Error> {
        let connected = self.need("of_them_connected")?.max(1.0);
        let cpu = |key: &str| self.get(key).map(|us| us.max(CPU_MIN_US));
        let per_request = |key: &str| cpu(key).map(|each| each * connected);
        let figures = [
            ("load.users_per_request", self.get("users_of_a_request")),
            ("load.connected_per_request", Some(connected)),
            ("load.data_bytes", self.get("data_of_a_message")),
            ("load.costs_at_devices", self.get("devices_connected")),
            ("gateway.cpu_per_delivery_us", cpu("gateway_cpu_per_delivery")),
            ("gateway.cpu_per_log_in_us", cpu("gateway_cpu_per_log_in")),
            ("gateway.cpu_per_broadcast_us", self.broadcast_us()),
            ("api.cpu_per_request_us", per_request("api_cpu_per_delivery")),
            ("postgres.cpu_per_request_us", per_request("postgresql_cpu_per_delivery")),
            ("postgres.cpu_per_log_in_us", cpu("postgresql_cpu_per_log_in")),
            ("redis.cpu_per_key_us", self.per_key_us(parameters)),
            ("redis.commands_per_idle_node", self.per_idle_node(parameters)),
            ("redis.cpu_per_log_in_us", cpu("redis_cpu_per_log_in")),
            ("redis.commands_per_log_in", self.get("redis_commands_per_log_in")),
            ("device.cpu_per_delivery_us", cpu("client_cpu_per_delivery")),
            ("device.cpu_per_log_in_us", cpu("client_cpu_per_log_in")),
        ];
        let source = format!("measured: {}", self.command);
        for (key, value) in figures {
            if let Some(value) = value {
                let wrong = |problem| Error::Report(format!("{key}: {problem}"));
                parameters.set(key, value, &source).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Sets the growth of costs with the number of devices, from another run on a machine of the same kind.
    pub fn apply_growth_to(&self, other: &Measured, parameters: &mut Parameters) -> Result<(), Error> {
        let (here, there) = (self.need("devices_connected")?, other.need("devices_connected")?);
        let tenfolds = (there.max(1.0) / here.max(1.0)).log10();
        if tenfolds.abs() < TENFOLDS_MIN {
            return Err(Error::Report(format!(
                "it has {there} devices and the first report {here}: the growth of costs needs a run with at least twice as many, or half"
            )));
        }
        let growth = (other.cpu_per_delivery()? / self.cpu_per_delivery()? - 1.0) / tenfolds;
        let source = format!("measured: {} and {}", self.command, other.command);
        let wrong = |problem| Error::Report(format!("load.cost_growth: {problem}"));
        parameters.set("load.cost_growth", growth.clamp(0.0, 1.0), &source).map_err(wrong)
    }

    /// Of all processes together.
    fn cpu_per_delivery(&self) -> Result<f64, Error> {
        let optional = |key| self.get(key).unwrap_or_default();
        let ours = self.need("gateway_cpu_per_delivery")? + self.need("api_cpu_per_delivery")?;
        let engines = optional("postgresql_cpu_per_delivery") + optional("redis_cpu_per_delivery");
        Ok((ours + engines + optional("client_cpu_per_delivery")).max(CPU_MIN_US))
    }

    /// The fixed cost of a command is a small part of a look-up of many keys; the rest is the cost of the
    /// keys.
    fn per_key_us(&self, parameters: &Parameters) -> Option<f64> {
        let commands_us = self.get("redis_commands_per_delivery")? * parameters.redis.cpu_per_command_us;
        let keys_us = (self.get("redis_cpu_per_delivery")? - commands_us).max(0.0);
        Some(keys_us * self.get("of_them_connected")? / self.get("users_of_a_request")?.max(1.0))
    }

    /// Redis commands per node while nothing is published.
    fn per_idle_node(&self, parameters: &Parameters) -> Option<f64> {
        let of_devices = idle_commands(parameters, 0.0, self.get("devices_connected")?);
        let of_nodes = self.get("redis_commands_while_nothing_is_published")? - of_devices;
        Some(of_nodes.max(0.0) / self.nodes().ok()?)
    }

    fn nodes(&self) -> Result<f64, Error> {
        Ok(self.need("gateway_nodes")? + self.get("api_nodes").unwrap_or(1.0))
    }

    /// Gateway CPU per delivery of a broadcast: the machine was busy for its whole duration; the load
    /// generator's share is subtracted.
    fn broadcast_us(&self) -> Option<f64> {
        let spread_us = self.get("topic_message_to_all_first_to_last")? * 1e3;
        let all_us = spread_us * self.cores as f64 / self.get("devices_connected")?.max(1.0);
        let client_us = self.get("client_cpu_per_delivery").unwrap_or_default();
        Some((all_us - client_us).max(all_us / 4.0).max(CPU_MIN_US))
    }

    /// Compares the model's result for this run, on a machine of this kind, with the measurement.
    pub fn compare(&self, parameters: &Parameters, seed: u64) -> Result<Vec<Compared>, Error> {
        let mut parameters = parameters.clone();
        for (key, figure) in [
            ("load.users_per_request", "users_of_a_request"),
            ("load.connected_per_request", "of_them_connected"),
        ] {
            let value = self.need(figure)?;
            parameters.set(key, value.max(1.0), "the report").map_err(Error::Report)?;
        }
        let devices = self.need("devices_connected")? as u64;
        let parameters = parameters.with_devices_per_machine(devices as f64);
        let gateways = self.need("gateway_nodes")? as usize;
        let apis = self.get("api_nodes").unwrap_or(1.0) as usize;
        let machine = |gateways| Layout::one_machine(self.cores, gateways, apis);
        let mut all = vec![self.compare_log_ins(&parameters, machine(gateways), devices, seed)];
        all.extend(self.compare_deliveries(&parameters, machine(gateways), seed)?);
        all.extend(self.compare_broadcast(&parameters, machine(gateways), devices, seed));
        all.push(self.compare_lost_gateway(&parameters, machine(gateways.saturating_sub(1)), seed));
        Ok(all.into_iter().flatten().collect())
    }

    fn compare_log_ins(
        &self,
        parameters: &Parameters,
        machine: Layout,
        devices: u64,
        seed: u64,
    ) -> Option<Compared> {
        let plan = recovery::Plan {
            devices,
            outage_s: 0.0,
            at_once: true,
            concurrent_max: self.get("log_ins_on_their_way_at_most").map(|count| count as usize),
        };
        let log_ins = recovery::simulate(parameters, machine, plan, seed);
        self.comparison("log-ins", "1/s", "log_ins", log_ins.log_ins_per_second)
    }

    fn compare_deliveries(
        &self,
        parameters: &Parameters,
        machine: Layout,
        seed: u64,
    ) -> Result<[Option<Compared>; 4], Error> {
        let arrivals = match self.get("requests_due") {
            Some(rate) => Arrivals::Open(rate),
            None => Arrivals::Closed(self.need("requests_in_flight_at_most")? as usize),
        };
        let idle_commands = idle_commands(parameters, self.nodes()?, self.need("devices_connected")?);
        let plan = publish::Plan { arrivals, requests: REQUESTS, stored_share: 0.0, idle_commands };
        let published = publish::simulate(parameters, machine, plan, seed);
        let latency =
            |name, key, ms| Some(Compared { counts: false, ..self.comparison(name, "ms", key, ms)? });
        Ok([
            self.comparison("deliveries", "1/s", "deliveries", published.deliveries_per_second),
            self.comparison(
                "Redis commands per delivery",
                "",
                "redis_commands_per_delivery",
                published.redis_commands_per_delivery,
            ),
            latency("delivery latency p50", "delivery_latency_p50", published.p50_ms),
            latency("delivery latency p99", "delivery_latency_p99", published.p99_ms),
        ])
    }

    fn compare_broadcast(
        &self,
        parameters: &Parameters,
        machine: Layout,
        devices: u64,
        seed: u64,
    ) -> [Option<Compared>; 2] {
        let told = broadcast::simulate(parameters, machine, devices, 0.0, seed);
        [
            self.comparison(
                "topic message to all: first to last",
                "ms",
                "topic_message_to_all_first_to_last",
                told.last_ms - told.first_ms,
            ),
            self.comparison(
                "topic message to all: bus messages",
                "",
                "topic_message_to_all_bus_messages",
                told.bus_messages as f64,
            ),
        ]
    }

    fn compare_lost_gateway(&self, parameters: &Parameters, left: Layout, seed: u64) -> Option<Compared> {
        let lost = self.get("connections_lost").filter(|lost| *lost > 0.0)?;
        let plan =
            recovery::Plan { devices: lost as u64, outage_s: 0.0, at_once: true, concurrent_max: None };
        let back = recovery::simulate(parameters, left, plan, seed);
        self.comparison(
            "a lost gateway: time until all are back",
            "s",
            "time_until_all_are_back_from_the_first_attempt",
            back.all_s,
        )
    }

    /// `None` if `key` was not measured.
    fn comparison(
        &self,
        name: &'static str,
        unit: &'static str,
        key: &str,
        predicted: f64,
    ) -> Option<Compared> {
        let measured = self.get(key).filter(|measured| *measured > 0.0)?;
        let off_percent = (predicted / measured - 1.0) * 100.0;
        Some(Compared { name, unit, measured, predicted, off_percent, counts: true })
    }
}

impl Compared {
    /// `None` if the deviation does not matter.
    pub fn is_good(&self) -> Option<bool> {
        self.counts.then_some(self.off_percent.abs() <= TOLERANCE_PERCENT)
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
            ("redis_commands_while_nothing_is_published", 121.0),
            ("deliveries", 100_000.0),
        ]
    }

    #[test]
    fn measured_costs_are_applied_with_their_source() {
        let mut parameters = Parameters::default();
        Measured::parse(&report(&usual())).unwrap().apply_costs_to(&mut parameters).unwrap();
        assert_eq!(parameters.gateway.cpu_per_delivery_us, 12.0);
        assert_eq!(parameters.api.cpu_per_request_us, 300.0);
        // 0.5 µs per delivery, of which 0.2 for 0.05 commands; two keys per delivery.
        assert!((parameters.redis.cpu_per_key_us - 0.15).abs() < 1e-9);
        // 121 per second, of which 11.67 for 20,000 devices once an hour.
        assert!(
            (parameters.redis.commands_per_idle_node - (121.0 - 20_000.0 * 2.1 / 3_600.0) / 11.0).abs()
                < 1e-9
        );
        let taught = parameters.all().into_iter().filter(|one| one.source.starts_with("measured: c")).count();
        assert!(taught >= 6, "{taught}");
    }

    #[test]
    fn cost_growth_is_taken_from_a_run_with_more_devices() {
        let changed = |key: &str, value: f64| {
            let mut figures = usual();
            figures.iter_mut().filter(|(name, _)| *name == key).for_each(|(_, old)| *old = value);
            figures
        };
        let small = Measured::parse(&report(&usual())).unwrap();
        let mut more = changed("devices_connected", 200_000.0);
        // 18.5 µs of all processes become 20.35.
        more.iter_mut().filter(|(key, _)| *key == "gateway_cpu_per_delivery").for_each(|(_, us)| *us += 1.85);
        let large = Measured::parse(&report(&more)).unwrap();
        let mut parameters = Parameters::default();
        small.apply_costs_to(&mut parameters).unwrap();
        small.apply_growth_to(&large, &mut parameters).unwrap();
        assert!((parameters.load.cost_growth - 0.1).abs() < 1e-9, "{}", parameters.load.cost_growth);
        let there = parameters.with_devices_per_machine(2_000_000.0);
        assert!((there.gateway.cpu_per_delivery_us - 12.0 * 1.2).abs() < 1e-9);
        let as_many = Measured::parse(&report(&changed("devices_connected", 25_000.0))).unwrap();
        assert!(small.apply_growth_to(&as_many, &mut parameters).is_err());
    }

    #[test]
    fn predictions_are_compared_with_measurements() {
        let mut parameters = Parameters::default();
        let measured = Measured::parse(&report(&usual())).unwrap();
        measured.apply_costs_to(&mut parameters).unwrap();
        let compared = measured.compare(&parameters, 1).unwrap();
        let deliveries = compared.iter().find(|one| one.name == "deliveries").unwrap();
        // Two cores at about 20 µs per delivery.
        assert!((80_000.0..110_000.0).contains(&deliveries.predicted), "{deliveries:?}");
        assert!((deliveries.off_percent - (deliveries.predicted / 1e5 - 1.0) * 100.0).abs() < 1e-9);
    }

    #[test]
    fn other_reports_are_rejected() {
        for text in ["", "{}", r#"{"scenario":"direct","host":{"cores":1},"figures":[]}"#] {
            assert!(Measured::parse(text).is_err(), "{text}");
        }
        let measured = Measured::parse(&report(&[("deliveries", 1.0)])).unwrap();
        assert!(measured.compare(&Parameters::default(), 1).is_err());
        assert!(measured.apply_costs_to(&mut Parameters::default()).is_err());
    }
}

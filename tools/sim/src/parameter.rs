//! The parameters of the model: one table with value, unit, range and source of each. A TOML file changes
//! some of them; a report of `noroshi bench homing` provides measured values ([`crate::measured`]).

use serde::Serialize;

use crate::Error;

/// A parameter with its current value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// `section.name`
    pub key: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub range: (f64, f64),
    /// Where the value comes from.
    pub source: String,
    pub help: &'static str,
}

macro_rules! parameters {
    ($($section:ident { $($name:ident = $value:expr, $unit:literal, $range:expr, $source:literal, $help:literal;)* })*) => {
        #[derive(Debug, Clone, PartialEq)]
        pub struct Parameters {
            $(pub $section: $section::Figures,)*
            sources: std::collections::BTreeMap<&'static str, String>,
        }

        $(pub mod $section {
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub struct Figures { $(#[doc = concat!($help, " (", $unit, ")")] pub $name: f64,)* }
        })*

        impl Default for Parameters {
            fn default() -> Self {
                Self {
                    $($section: $section::Figures { $($name: $value,)* },)*
                    sources: std::collections::BTreeMap::new(),
                }
            }
        }

        impl Parameters {
            /// All parameters, in the order of the sections.
            pub fn all(&self) -> Vec<Parameter> {
                vec![$($(Parameter {
                    key: concat!(stringify!($section), ".", stringify!($name)),
                    value: self.$section.$name,
                    unit: $unit,
                    range: $range,
                    source: self
                        .sources
                        .get(concat!(stringify!($section), ".", stringify!($name)))
                        .cloned()
                        .unwrap_or_else(|| $source.to_owned()),
                    help: $help,
                },)*)*]
            }

            fn place(&mut self, key: &str) -> Option<(&'static str, &mut f64, (f64, f64))> {
                match key {
                    $($(concat!(stringify!($section), ".", stringify!($name)) => Some((
                        concat!(stringify!($section), ".", stringify!($name)),
                        &mut self.$section.$name,
                        $range,
                    )),)*)*
                    _ => None,
                }
            }
        }
    };
}

const MEASURED: (f64, f64) = (0.001, 1e6);
const COUNT: (f64, f64) = (1.0, 1e9);

parameters! {
    load {
        away_per_connected = 1.0, "devices", (0.0, 1e3), "assumed", "Registered offline devices per connected device";
        deliveries_per_device_hour = 12.0, "1/h", (0.0, 1e5), "assumed", "Messages to a connected device in a busy hour";
        peak_to_busy_hour = 3.0, "", (1.0, 100.0), "assumed", "Load of the busiest minute relative to the mean of the busy hour";
        users_per_request = 300.0, "users", (1.0, 1e4), "assumed, as in `bench homing`", "Target users per request";
        connected_per_request = 150.0, "devices", (1.0, 1e4), "assumed, as in `bench homing`: half of them", "Connected devices of these users";
        stored_share = 0.3, "", (0.0, 1.0), "assumed", "Share of `stored` requests";
        log_ins_per_device_day = 24.0, "1/day", (0.0, 1e4), "assumed", "Reconnects of a device: network changes, node upgrades";
        costs_at_devices = 20000.0, "devices", COUNT, "docs/performance.md", "Devices connected to the machine on which the costs of a delivery were measured";
        cost_growth = 0.13, "", (0.0, 1.0), "docs/performance.md: 20,000 and 60,000 devices on one machine", "Relative increase of the CPU cost of a delivery for ten times as many devices on the machine, as its caches hold less of them";
        data_bytes = 200.0, "bytes", (0.0, 1048576.0), "assumed, as in `bench homing`", "Size of a message's `data`";
    }
    gateway {
        cores = 8.0, "cores", (1.0, 1e3), "assumed", "Of one gateway node";
        memory_gib = 16.0, "GiB", (0.1, 1e4), "assumed", "Of one gateway node";
        connections_max = 500000.0, "connections", COUNT, "policy: connections lost with one node", "Maximum connections of one gateway node";
        cpu_per_delivery_us = 9.2, "µs", MEASURED, "docs/performance.md: 10.8 µs in `bench direct` minus 1.6 µs for HTTP", "Gateway CPU per delivery to a user";
        cpu_per_broadcast_us = 7.4, "µs", MEASURED, "docs/performance.md: `bench broadcast`", "Gateway CPU per delivery of a topic message";
        cpu_per_log_in_us = 52.0, "µs", MEASURED, "docs/performance.md: `bench connect`", "Gateway CPU per log-in";
        cpu_per_idle_second_us = 0.067, "µs/s", (0.0, 1e3), "docs/performance.md: 0.10 % of a core for 15,000", "Gateway CPU per idle connection";
        bytes_per_connection = 4500.0, "bytes", COUNT, "docs/performance.md: 698 bytes plus 3.8 KB in the kernel", "Memory per connection";
        bytes_base = 536870912.0, "bytes", COUNT, "assumed", "Memory of a node without connections and of the operating system";
        connects_per_second = 20000.0, "1/s", COUNT, "gateway.connects_per_second", "Connection rate that a gateway admits";
        slice = 256.0, "devices", COUNT, "gateway::fanout", "Connections that a shard writes to before it handles other work";
    }
    api {
        cores = 8.0, "cores", (1.0, 1e3), "assumed", "Of one API node";
        cpu_per_request_us = 350.0, "µs", MEASURED, "docs/performance.md: 1.6 µs per delivery for HTTP, JSON and the look-up", "API node CPU per request of the usual size";
        round_ms = 0.2, "ms", (0.0, 1e3), "assumed", "Dispatcher time per round in addition to waiting for Redis";
    }
    redis {
        cpu_per_command_us = 4.0, "µs", MEASURED, "assumed: a small command and its network calls", "Redis CPU per command";
        cpu_per_key_us = 0.33, "µs", (0.0, 1e3), "docs/cluster.md: 140 µs for 300 keys and 10 messages", "Redis CPU per key of a look-up";
        cpu_per_log_in_us = 6.0, "µs", MEASURED, "docs/cluster.md", "Redis CPU per log-in, all commands together";
        commands_per_log_in = 4.2, "", (0.0, 1e3), "two scripts per batch, each with two commands per device", "Commands per log-in, including those called by scripts";
        commands_per_idle_node = 9.0, "1/s", (0.0, 1e3), "docs/cluster.md", "Commands of an idle node (lease, membership), including those called by scripts";
        commands_per_device_hour = 2.1, "1/h", (0.0, 1e5), "delivery::cluster: once an hour, two scripts per batch", "Commands per connected device for directory reconciliation";
        bytes_per_device = 213.0, "bytes", COUNT, "docs/cluster.md: a device with a user, both entries", "Directory memory per device";
        utilization_max = 0.6, "", (0.05, 0.95), "policy", "Maximum utilization of a shard (one thread)";
    }
    postgres {
        cores = 16.0, "cores", (1.0, 1e3), "assumed", "Of the PostgreSQL machine of a cell";
        cpu_per_log_in_us = 120.0, "µs", MEASURED, "assumed until measured", "PostgreSQL CPU per log-in";
        cpu_per_row_us = 30.0, "µs", MEASURED, "assumed until measured", "PostgreSQL CPU per inbox row, written and acknowledged";
        cpu_per_request_us = 150.0, "µs", MEASURED, "assumed until measured", "PostgreSQL CPU per request for its trace";
        log_in_batch_max = 256.0, "log-ins", COUNT, "gateway::login", "Maximum log-ins per read";
        log_in_batch_ms = 3.0, "ms", (0.0, 1e4), "assumed", "Duration of that read in addition to CPU: round trip and waiting for buffers";
        log_in_batches_at_once = 16.0, "", COUNT, "store.connections", "Maximum concurrent reads per gateway";
        commit_ms = 2.0, "ms", (0.01, 1e4), "assumed: an fsync of a server's disk", "Time a commit waits for the disk";
        hand_over_ms = 1.0, "ms", (0.0, 300.0), "assumed: one round trip to Redis and its work", "Time the order lock is held after the commit";
        rows_per_group_max = 8192.0, "rows", COUNT, "store::PostgresOptions", "Maximum inbox rows per group commit";
        bytes_per_row = 100.0, "bytes", COUNT, "91 bytes each for 12,000 rows of 40 requests", "Size of an inbox row with its index and its share of the notification, without WAL";
        bytes_per_device = 900.0, "bytes", COUNT, "510 bytes each for 20,000 devices with a user and a topic; the rest assumed for a push token and its index", "Size of a device with its user, subscriptions and indexes";
    }
    network {
        one_way_ms = 0.25, "ms", (0.0, 1e3), "assumed: one data centre", "One-way delay between two machines of a cell";
    }
    device {
        first_pause_s = 1.0, "s", (0.0, 3600.0), "the clients' back-off", "First pause after a failed attempt; doubles with each further failure";
        pause_max_s = 30.0, "s", (0.1, 3600.0), "the clients' back-off", "Longest pause";
        jitter = 0.5, "", (0.0, 1.0), "the clients' back-off", "Random share of a pause";
        cpu_per_delivery_us = 3.0, "µs", (0.0, 1e4), "assumed; only if the load generator shares the machine", "Load generator CPU per delivery";
        cpu_per_log_in_us = 30.0, "µs", (0.0, 1e4), "assumed; only if the load generator shares the machine", "Load generator CPU per log-in";
    }
    cell {
        devices_max = 2000000.0, "devices", COUNT, "policy: devices lost with one cell", "Maximum connected devices per cell";
        utilization_max = 0.5, "", (0.05, 0.95), "policy: room for a lost node and for log-ins", "Maximum utilization of machines in the busiest minute";
        outage_s = 60.0, "s", (0.0, 86400.0), "assumed", "Duration of a cell's outage";
    }
}

/// The lowest factor, for few devices.
const COST_FACTOR_MIN: f64 = 0.5;

impl Parameters {
    /// With the cost of a delivery for this many devices connected to one machine.
    pub(crate) fn with_devices_per_machine(&self, devices: f64) -> Self {
        let tenfolds = (devices.max(1.0) / self.load.costs_at_devices).log10();
        let factor = (1.0 + self.load.cost_growth * tenfolds).max(COST_FACTOR_MIN);
        let mut there = self.clone();
        for cost in [
            &mut there.gateway.cpu_per_delivery_us,
            &mut there.gateway.cpu_per_broadcast_us,
            &mut there.redis.cpu_per_key_us,
            &mut there.postgres.cpu_per_request_us,
            &mut there.api.cpu_per_request_us,
            &mut there.device.cpu_per_delivery_us,
        ] {
            *cost *= factor;
        }
        there
    }

    /// Reads `section.name = 1.5` or `section.name = { value = 1.5, source = "…" }`; the error lists all
    /// problems.
    pub fn read(&mut self, text: &str, file: &str) -> Result<(), Error> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            Error::Parameters(vec![format!("{file}: {}", error.message())])
        })?;
        let mut problems = Vec::new();
        for (section, entries) in &table {
            let Some(entries) = entries.as_table() else {
                problems.push(format!("{section}: parameters belong in sections such as [gateway]"));
                continue;
            };
            for (name, value) in entries {
                let key = format!("{section}.{name}");
                let result = figure(value).and_then(|(value, source)| {
                    self.set(&key, value, &source.unwrap_or_else(|| file.to_owned()))
                });
                problems.extend(result.err().map(|problem| format!("{key}: {problem}")));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Parameters(problems)) }
    }

    /// Sets one parameter; the error states the valid range.
    pub fn set(&mut self, key: &str, value: f64, source: &str) -> Result<(), String> {
        let Some((key, place, (min, max))) = self.place(key) else {
            return Err("unknown parameter (see noroshi sim --print-parameters)".to_owned());
        };
        if !(min..=max).contains(&value) {
            return Err(format!("{value} is outside {min} to {max}"));
        }
        *place = value;
        self.sources.insert(key, source.to_owned());
        Ok(())
    }

    /// As a file for [`Parameters::read`].
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for Parameter { key, value, unit, source, help, .. } in self.all() {
            let (in_section, name) = key.split_once('.').unwrap_or(("", key));
            if in_section != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                text.push_str(&format!("{gap}[{in_section}]\n"));
                section = in_section;
            }
            let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
            let source = toml::Value::String(source);
            text.push_str(&format!("# {help}{unit}\n{name} = {{ value = {value:?}, source = {source} }}\n"));
        }
        text
    }
}

fn figure(value: &toml::Value) -> Result<(f64, Option<String>), String> {
    let number =
        |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
    let rule = "a number, or { value = 1.5, source = \"…\" }";
    match value.as_table() {
        None => Ok((number(value).ok_or(rule)?, None)),
        Some(table) => {
            if table.keys().any(|key| !matches!(key.as_str(), "value" | "source")) {
                return Err(rule.to_owned());
            }
            let source = table.get("source").and_then(|source| source.as_str()).map(str::to_owned);
            Ok((table.get("value").and_then(number).ok_or(rule)?, source))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_parameters_and_their_sources() {
        let mut parameters = Parameters::default();
        let text = "[gateway]\ncores = 4\ncpu_per_log_in_us = { value = 61.5, source = \"measured\" }\n";
        parameters.read(text, "site.toml").unwrap();
        assert_eq!((parameters.gateway.cores, parameters.gateway.cpu_per_log_in_us), (4.0, 61.5));
        let all = parameters.all();
        let source = |key: &str| all.iter().find(|one| one.key == key).unwrap().source.clone();
        assert_eq!(
            (source("gateway.cores"), source("gateway.cpu_per_log_in_us")),
            ("site.toml".into(), "measured".into())
        );
    }

    #[test]
    fn all_mistakes_are_reported() {
        let mut parameters = Parameters::default();
        let text = "[gateway]\ncore = 4\ncores = 0\nslice = \"many\"\n[nothing]\na = 1\n";
        let Err(Error::Parameters(problems)) = parameters.read(text, "f") else { panic!("it is wrong") };
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(parameters.read("a = 1", "f").is_err());
        assert!(parameters.read("[", "f").is_err());
    }

    #[test]
    fn printed_parameters_can_be_read_back() {
        let mut parameters = Parameters::default();
        parameters.set("redis.cpu_per_command_us", 3.25, "a \"quoted\" run").unwrap();
        let mut read = Parameters::default();
        read.read(&parameters.to_toml(), "f").unwrap();
        assert_eq!(read.redis, parameters.redis);
        assert_eq!(read.to_toml(), parameters.to_toml());
    }

    #[test]
    fn defaults_are_within_their_ranges() {
        for Parameter { key, value, range, .. } in Parameters::default().all() {
            assert!((range.0..=range.1).contains(&value), "{key}");
        }
    }
}

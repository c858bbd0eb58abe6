//! Results for people and for programs: named figures with their units, one value a repetition, the
//! median shown with the range, under the command, the machine and the versions they belong to.

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use crate::host::Host;
use crate::stats::{Latency, PERCENTILES, median};

/// One measured value of one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Value {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

/// The figures of one repetition, in the order they are shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(Vec<Value>);

impl Values {
    pub(crate) fn push(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.0.push(Value { name, unit, value });
    }

    pub(crate) fn push_some(&mut self, name: &'static str, unit: &'static str, value: Option<f64>) {
        if let Some(value) = value {
            self.push(name, unit, value);
        }
    }

    /// The percentiles and the maximum, in milliseconds, under names that begin alike.
    pub(crate) fn push_latency(&mut self, names: &LatencyNames, latency: &Latency) {
        if latency.is_empty() {
            return;
        }
        for (name, (_, percentile)) in names.percentiles.iter().zip(PERCENTILES) {
            self.push(name, "ms", latency.percentile_ms(percentile));
        }
        self.push(names.max, "ms", latency.max_ms());
    }
}

/// What a latency's figures are called; the percentiles are those of [`PERCENTILES`].
pub(crate) struct LatencyNames {
    percentiles: [&'static str; PERCENTILES.len()],
    max: &'static str,
}

pub(crate) const DELIVERY: LatencyNames = LatencyNames {
    percentiles: [
        "delivery latency p50",
        "delivery latency p90",
        "delivery latency p99",
        "delivery latency p99.9",
    ],
    max: "delivery latency max",
};
pub(crate) const ACCEPT: LatencyNames = LatencyNames {
    percentiles: ["accept latency p50", "accept latency p90", "accept latency p99", "accept latency p99.9"],
    max: "accept latency max",
};
pub(crate) const LOG_IN: LatencyNames = LatencyNames {
    percentiles: ["log-in latency p50", "log-in latency p90", "log-in latency p99", "log-in latency p99.9"],
    max: "log-in latency max",
};

/// A figure over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The name as programs write it.
    pub(crate) key: String,
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    /// In the order they were taken.
    pub(crate) values: Vec<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReportDocument {
    pub(crate) scenario: &'static str,
    /// As typed, without secrets.
    pub(crate) command: String,
    pub(crate) version: &'static str,
    /// False for a debug build, whose figures say nothing.
    pub(crate) optimized: bool,
    pub(crate) host: Host,
    pub(crate) server: String,
    pub(crate) figures: Vec<Figure>,
    /// What the reader has to know to believe the figures.
    pub(crate) notes: Vec<String>,
}

/// Joins the repetitions by name. A figure that not every repetition has keeps the values it has.
pub(crate) fn figures(repetitions: &[Values]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for value in repetitions.iter().flat_map(|values| &values.0) {
        match figures.iter_mut().find(|figure| figure.name == value.name) {
            Some(figure) => figure.values.push(value.value),
            None => figures.push(Figure {
                key: key(value.name),
                name: value.name,
                unit: value.unit,
                median: f64::NAN,
                values: vec![value.value],
            }),
        }
    }
    for figure in &mut figures {
        figure.median = median(&figure.values);
    }
    figures
}

/// `delivery latency p99.9` is `delivery_latency_p99_9`.
fn key(name: &str) -> String {
    let words: Vec<_> = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_").to_lowercase()
}

impl ReportDocument {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and finite numbers are JSON")
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let several = self.figures.iter().any(|figure| figure.values.len() > 1);
        let mut header = vec!["figure", if several { "median" } else { "value" }];
        if several {
            header.extend(["min", "max"]);
        }
        header.push("unit");
        table.set_header(header);
        for figure in &self.figures {
            let mut row = vec![Cell::new(figure.name), number(figure.median)];
            if several {
                row.push(number(figure.values.iter().copied().fold(f64::INFINITY, f64::min)));
                row.push(number(figure.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
            }
            row.push(Cell::new(figure.unit));
            table.add_row(row);
        }
        let Host { cores, memory_mib, kernel, cpu } = &self.host;
        let build = if self.optimized { "" } else { ", DEBUG BUILD: figures say nothing" };
        let mut text = format!(
            "noroshi bench {} · version {}{build}\n{}\nserver: {}\nhost: {cores} cores ({cpu}), {memory_mib} MiB, \
             Linux {kernel}\n{table}",
            self.scenario, self.version, self.command, self.server
        );
        for note in &self.notes {
            text.push_str("\n• ");
            text.push_str(note);
        }
        text
    }
}

fn number(value: f64) -> Cell {
    Cell::new(show(value)).set_alignment(CellAlignment::Right)
}

/// Three or four digits that matter, thousands apart.
fn show(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        let digits = format!("{size:.0}");
        let mut text = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        return if value < 0.0 { format!("-{text}") } else { text };
    }
    let decimals = if size >= 10.0 { 1 } else { 2 };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ReportDocument {
        let repetition = |deliveries, lost: Option<f64>| {
            let mut values = Values::default();
            values.push("deliveries", "1/s", deliveries);
            values.push_some("lost", "messages", lost);
            values
        };
        ReportDocument {
            scenario: "direct",
            command: "noroshi bench direct".to_owned(),
            version: "0.1.0",
            optimized: true,
            host: Host { cores: 2, memory_mib: 1, kernel: "6.1".to_owned(), cpu: "c".to_owned() },
            server: "http://127.0.0.1:1".to_owned(),
            figures: figures(&[
                repetition(61_234.5, Some(0.0)),
                repetition(50_000.0, None),
                repetition(70_000.0, Some(2.0)),
            ]),
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn figures_are_joined_by_name() {
        let figures = report().figures;
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].median, figures[0].values.len()), (61_234.5, 3));
        assert_eq!((figures[1].median, figures[1].unit), (1.0, "messages"));
    }

    #[test]
    fn people_see_medians_ranges_and_units_and_programs_every_value() {
        let report = report();
        let table = report.table();
        for part in ["61,234", "50,000", "70,000", "1/s", "a note", "6.1", "0.1.0"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
        let value: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(value["figures"][0]["values"][1], 50_000.0);
        assert_eq!(value["host"]["cores"], 2);
        assert_eq!(key("delivery latency p99.9"), "delivery_latency_p99_9");
        assert_eq!(key("server CPU per log-in, kernel"), "server_cpu_per_log_in_kernel");
    }

    #[test]
    fn a_debug_build_says_so() {
        let report = ReportDocument { optimized: false, ..report() };
        assert!(report.table().contains("DEBUG"));
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, shown) in [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1_500.0, "-1,500"),
        ] {
            assert_eq!(show(value), shown);
        }
    }
}

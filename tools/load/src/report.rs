//! Results for people and programs: named figures with units, one value per repetition, displayed as median
//! and range below the command, machine and versions. If the floor was measured too, its figures and the
//! ratio to it are included: each repetition is compared with the adjacent repetition of the floor, since the
//! machine drifts, and the median of these ratios is displayed.

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use crate::host::Host;
use crate::stats::{Latency, PERCENTILES, median};

/// The smallest divisor in any unit: values that are displayed as 0.00 have no ratio.
const DIVISOR_MIN: f64 = 0.01;

/// One value of one repetition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
}

/// The figures of one repetition, in display order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    all: Vec<Value>,
    /// The smallest CPU time of the server that a value is based on.
    cpu_us_min: Option<f64>,
}

impl Values {
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.all.iter().find(|value| value.name == name).map(|value| value.value)
    }

    pub(crate) fn push(&mut self, name: impl Into<String>, unit: impl Into<String>, value: f64) {
        self.all.push(Value { name: name.into(), unit: unit.into(), value });
    }

    pub(crate) fn push_some(&mut self, name: &str, unit: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.push(name, unit, value);
        }
    }

    /// Records that a value is based on this much CPU time of the server.
    pub(crate) fn count_cpu(&mut self, us: f64) {
        self.cpu_us_min = Some(self.cpu_us_min.map_or(us, |least| least.min(us)));
    }

    /// Pushes the percentiles and the maximum in milliseconds: `<what> p50` and so on.
    pub(crate) fn push_latency(&mut self, what: &str, latency: &Latency) {
        if latency.is_empty() {
            return;
        }
        for (name, percentile) in PERCENTILES {
            self.push(format!("{what} {name}"), "ms", latency.percentile_ms(percentile));
        }
        self.push(format!("{what} max"), "ms", latency.max_ms());
    }
}

/// A figure over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The name in machine-readable output.
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) median: f64,
    /// In the order of measurement.
    pub(crate) values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<Column>,
    /// The ratio to the floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<Column>,
}

/// An additional column of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Column {
    pub(crate) median: f64,
    pub(crate) values: Vec<f64>,
}

impl Column {
    /// `None` without values.
    fn new(values: Vec<f64>) -> Option<Self> {
        (!values.is_empty()).then(|| Self { median: median(&values), values })
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReportDocument {
    pub(crate) scenario: &'static str,
    /// As typed, without secrets.
    pub(crate) command: String,
    pub(crate) version: &'static str,
    /// False for a debug build, whose figures are meaningless.
    pub(crate) optimized: bool,
    pub(crate) host: Host,
    pub(crate) server: String,
    /// The description of the floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<String>,
    pub(crate) figures: Vec<Figure>,
    /// Caveats that the reader needs to interpret the figures.
    pub(crate) notes: Vec<String>,
}

/// Joins the repetitions by name. A figure missing in some repetitions keeps its other values. `floor` is
/// empty, or has as many repetitions, each adjacent to its counterpart.
pub(crate) fn figures(repetitions: &[Values], floor: &[Values]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for value in repetitions.iter().flat_map(|values| &values.all) {
        match figures.iter_mut().find(|figure| figure.name == value.name) {
            Some(figure) => figure.values.push(value.value),
            None => figures.push(Figure {
                key: key(&value.name),
                name: value.name.clone(),
                unit: value.unit.clone(),
                median: f64::NAN,
                values: vec![value.value],
                floor: Column::new(floor.iter().filter_map(|values| values.get(&value.name)).collect()),
                ratio: ratio(value, repetitions, floor),
            }),
        }
    }
    for figure in &mut figures {
        figure.median = median(&figure.values);
    }
    figures
}

/// A note about the precision of CPU times if it is low: the kernel counts ticks of 10 ms.
pub(crate) fn cpu_note(repetitions: &[Values]) -> Option<String> {
    let least_us = repetitions.iter().filter_map(|values| values.cpu_us_min).reduce(f64::min)?;
    let ticks = "CPU time is counted in ticks of 10 ms";
    match least_us / 1e6 {
        seconds if seconds >= 1.0 => None,
        seconds if seconds < 0.01 => {
            Some(format!("{ticks}: in one repetition the server used less than one tick"))
        }
        seconds => {
            let percent = (1.0 / seconds).ceil();
            Some(format!("{ticks}: over {seconds:.2} s per repetition the precision is {percent:.0} %"))
        }
    }
}

/// Figures in cores describe the conditions of a repetition and are not compared.
fn ratio(value: &Value, repetitions: &[Values], floor: &[Values]) -> Option<Column> {
    if value.unit == "cores" {
        return None;
    }
    let pairs = repetitions.iter().zip(floor);
    let pairs = pairs.filter_map(|(of, to)| of.get(&value.name).zip(to.get(&value.name)));
    Column::new(pairs.filter(|(_, to)| *to >= DIVISOR_MIN).map(|(of, to)| of / to).collect())
}

/// `delivery latency p99.9` becomes `delivery_latency_p99_9`.
fn key(name: &str) -> String {
    let words: Vec<_> = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_").to_lowercase()
}

impl ReportDocument {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and finite numbers serialize to JSON")
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let several = self.figures.iter().any(|figure| figure.values.len() > 1);
        let compared = self.floor.is_some();
        let mut header = vec!["figure", if several { "median" } else { "value" }];
        header.extend(several.then_some(["min", "max"]).into_iter().flatten());
        header.push("unit");
        if compared {
            header.push("floor");
            header.extend(several.then_some(["floor min", "floor max"]).into_iter().flatten());
            header.push("ratio");
        }
        table.set_header(header);
        for figure in &self.figures {
            let mut row = vec![Cell::new(&figure.name)];
            push_cells(&mut row, Some((figure.median, &figure.values)), &figure.unit, several);
            row.push(Cell::new(&figure.unit));
            if compared {
                let floor = figure.floor.as_ref().map(|floor| (floor.median, floor.values.as_slice()));
                push_cells(&mut row, floor, &figure.unit, several);
                let ratio = figure.ratio.as_ref();
                row.push(ratio.map_or_else(|| Cell::new(""), |ratio| number(show(ratio.median))));
            }
            table.add_row(row);
        }
        let server = match &self.floor {
            Some(floor) => format!("{}\nfloor: {floor}", self.server),
            None => self.server.clone(),
        };
        let Host { cores, memory_mib, kernel, cpu } = &self.host;
        let build = if self.optimized { "" } else { ", DEBUG BUILD: figures are meaningless" };
        let mut text = format!(
            "noroshi bench {} · version {}{build}\n{}\nserver: {}\nhost: {cores} cores ({cpu}), {memory_mib} MiB, \
             Linux {kernel}\n{table}",
            self.scenario, self.version, self.command, server
        );
        for note in &self.notes {
            text.push_str("\n• ");
            text.push_str(note);
        }
        text
    }
}

/// The median, and the range of several values.
fn push_cells(row: &mut Vec<Cell>, column: Option<(f64, &[f64])>, unit: &str, several: bool) {
    let Some((median, values)) = column else {
        return row.extend((0..if several { 3 } else { 1 }).map(|_| Cell::new("")));
    };
    let cell = |value| number(show_in(unit, value));
    row.push(cell(median));
    if several {
        row.push(cell(values.iter().copied().fold(f64::INFINITY, f64::min)));
        row.push(cell(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
    }
}

fn number(shown: String) -> Cell {
    Cell::new(shown).set_alignment(CellAlignment::Right)
}

/// Values without unit are counts, displayed without decimals unless they lie between two integers.
fn show_in(unit: &str, value: f64) -> String {
    if unit.is_empty() && value.fract() == 0.0 { show_whole(value) } else { show(value) }
}

/// Three or four significant digits.
fn show(value: f64) -> String {
    match value.abs() {
        100.0.. => show_whole(value),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// With thousands separators.
pub(crate) fn show_whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repetition(deliveries: f64, lost: Option<f64>) -> Values {
        let mut values = Values::default();
        values.push("deliveries", "1/s", deliveries);
        values.push_some("lost", "messages", lost);
        values
    }

    fn report() -> ReportDocument {
        ReportDocument {
            scenario: "direct",
            command: "noroshi bench direct".to_owned(),
            version: "0.1.0",
            optimized: true,
            host: Host { cores: 2, memory_mib: 1, kernel: "6.1".to_owned(), cpu: "c".to_owned() },
            server: "http://127.0.0.1:1".to_owned(),
            floor: None,
            figures: figures(
                &[
                    repetition(61_234.5, Some(0.0)),
                    repetition(50_000.0, None),
                    repetition(70_000.0, Some(2.0)),
                ],
                &[],
            ),
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn figures_are_joined_by_name() {
        let figures = report().figures;
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].median, figures[0].values.len()), (61_234.5, 3));
        assert_eq!((figures[1].median, figures[1].unit.as_str()), (1.0, "messages"));
    }

    #[test]
    fn table_shows_medians_and_ranges_and_json_every_value() {
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
    fn repetitions_are_compared_with_the_adjacent_floor() {
        let floor = [
            repetition(100_000.0, Some(0.0)),
            repetition(50_000.0, Some(1.0)),
            repetition(100_000.0, Some(1.0)),
        ];
        let figures = figures(
            &[repetition(60_000.0, Some(0.0)), repetition(50_000.0, None), repetition(80_000.0, Some(3.0))],
            &floor,
        );
        let ratio = figures[0].ratio.as_ref().unwrap();
        assert_eq!((ratio.values.as_slice(), ratio.median), (&[0.6, 1.0, 0.8][..], 0.8));
        assert_eq!(figures[0].floor.as_ref().unwrap().median, 100_000.0);
        // There is no ratio to zero, or for figures that only one side has.
        assert_eq!(figures[1].ratio.as_ref().unwrap().values, [3.0]);

        let report = ReportDocument { floor: Some("a loop".to_owned()), figures, ..report() };
        let table = report.table();
        let line = table.lines().find(|line| line.contains("deliveries")).unwrap();
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let expected = ["60,000", "50,000", "80,000", "1/s", "100,000", "50,000", "100,000", "0.80"];
        assert_eq!(cells[2..10], expected, "{table}");
        let value: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(value["figures"][0]["ratio"]["median"], 0.8);
        assert_eq!(value["figures"][0]["floor"]["values"][1], 50_000.0);
        assert!(serde_json::to_value(self::report()).unwrap()["figures"][0].get("ratio").is_none());
    }

    #[test]
    fn cores_and_tiny_values_are_not_compared() {
        let repetition = |others: f64, cpu: f64| {
            let mut values = Values::default();
            values.push("CPU of everything else on this machine", "cores", others);
            values.push("CPU", "µs", cpu);
            values
        };
        let of = [repetition(0.5, 3.0), repetition(0.5, 3.0)];
        for (cpu_of_floor, ratios) in [(0.009, None), (1.5, Some(vec![2.0; 2]))] {
            let floor = [repetition(0.2, cpu_of_floor), repetition(1e-10, cpu_of_floor)];
            let figures = figures(&of, &floor);
            assert_eq!(figures[0].ratio, None);
            assert_eq!(figures[0].floor.as_ref().map(|floor| floor.values.len()), Some(2));
            assert_eq!(figures[1].ratio.as_ref().map(|ratio| ratio.values.clone()), ratios);
        }
    }

    #[test]
    fn imprecise_cpu_times_are_noted() {
        let repetition = |us: f64| {
            let mut values = Values::default();
            values.count_cpu(5e6);
            values.count_cpu(us);
            values
        };
        let note = |us| cpu_note(&[repetition(3e6), repetition(us), repetition(2e6)]);
        assert!(note(200_000.0).is_some_and(|note| note.contains("0.20 s") && note.contains(" 5 %")));
        assert!(note(0.0).is_some_and(|note| note.contains("less than one")));
        assert_eq!((note(1e6), cpu_note(&[Values::default()])), (None, None));
    }

    #[test]
    fn debug_build_is_marked() {
        let report = ReportDocument { optimized: false, ..report() };
        assert!(report.table().contains("DEBUG"));
    }

    #[test]
    fn numbers_have_significant_digits() {
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

    #[test]
    fn counts_are_integers_unless_between_two() {
        for (value, unit, shown) in [
            (0.0, "", "0"),
            (20.0, "", "20"),
            (12_345.0, "", "12,345"),
            (1.5, "", "1.50"),
            (0.0, "ms", "0.00"),
            (20.0, "µs", "20.0"),
        ] {
            assert_eq!(show_in(unit, value), shown);
        }
        let mut values = Values::default();
        values.push("slow peers", "", 20.0);
        let report = ReportDocument { figures: figures(&[values], &[]), ..report() };
        assert!(report.table().contains(" 20 |"), "{}", report.table());
    }
}

//! `noroshi sim`: the capacity model of the crate `sim`. Reads parameter files and writes a page. Measures nothing and uses no
//! server.

use std::fs;
use std::path::{Path, PathBuf};

use noroshi_sim::measured::TOLERANCE_PERCENT;
use noroshi_sim::{Compared, DEVICES_MAX, Measured, Model, Outcome, Parameters, page};
use serde_json::json;

use crate::failure::Failure;
use crate::output;

/// Maximum number of device counts.
const SIZES_MAX: usize = 20;
/// The costs of operations, and their growth.
const REPORTS_MAX: usize = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Figures are in force in this order: built in, --measured, --parameters, --set. A prediction is one only if --validate is another run
than those of --measured:

  noroshi bench homing --gateways 10 --devices 2000 --json > small.json
  noroshi bench homing --gateways 10 --devices 6000 --json > more.json
  noroshi bench homing --gateways 10 --devices 18000 --json > large.json
  noroshi sim --measured small.json --measured more.json --validate large.json --out sim.html")]
pub(crate) struct Arguments {
    /// Numbers of connected devices to model: 180k, 10M
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = count, default_value = "1M,10M,100M")]
    devices: Vec<u64>,
    /// Page to write (self-contained HTML with plots)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Report of `noroshi bench homing --json` with the costs of single operations. A second report with a different number of
    /// devices on the same machine shows how costs grow
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Another report, to compare the model's prediction with measurements
    #[arg(long, value_name = "FILE")]
    validate: Option<PathBuf>,
    /// Your own parameters (TOML)
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// One parameter (repeatable)
    #[arg(long, value_name = "KEY=NUMBER", value_parser = parameter)]
    set: Vec<(String, f64)>,
    /// Seed; equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only print the effective parameters, as a file for --parameters
    #[arg(long)]
    print_parameters: bool,
    #[command(flatten)]
    format: output::Format,
}

/// `1500`, `180k`, `10M`, `1G`
fn count(text: &str) -> Result<u64, String> {
    let rule = || format!("{text:?} is not a number of devices such as 1500, 180k or 10M, at most 10G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let times: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return Err(rule()),
    };
    let number: u64 = digits.parse().map_err(|_| rule())?;
    number.checked_mul(times).filter(|count| (1..=DEVICES_MAX).contains(count)).ok_or_else(rule)
}

fn parameter(text: &str) -> Result<(String, f64), String> {
    let (key, value) = text.split_once('=').ok_or("a parameter must be KEY=NUMBER")?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is not a number"))?;
    Ok((key.trim().to_owned(), value))
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.devices.len() > SIZES_MAX {
            return Err(Failure::Usage(format!("--devices takes at most {SIZES_MAX} numbers")));
        }
        if self.measured.len() > REPORTS_MAX {
            return Err(Failure::Usage(format!("--measured takes at most {REPORTS_MAX} reports")));
        }
        let learned: Vec<Measured> =
            self.measured.iter().map(|path| measured(path)).collect::<Result<_, _>>()?;
        let parameters = self.parameters(&learned)?;
        if self.print_parameters {
            return output::line(parameters.to_toml().trim_end());
        }
        let mut model = noroshi_sim::model(&parameters, &self.devices, self.seed);
        if let Some(path) = &self.validate {
            model.validate(&parameters, &learned, &measured(path)?).map_err(|error| in_file(path, &error))?;
            if model.is_compared_with_own {
                eprintln!(
                    "noroshi sim: --validate names a report of --measured, so the comparison is no validation"
                );
            }
        }
        if let Some(path) = &self.out {
            fs::write(path, page::html(&model))
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
        match self.format.json {
            true => output::line(json!(model))?,
            false => show(&model)?,
        }
        if let Some(path) = &self.out {
            eprintln!("noroshi sim: {}", path.display());
        }
        Ok(())
    }

    fn parameters(&self, learned: &[Measured]) -> Result<Parameters, Failure> {
        let mut parameters = Parameters::default();
        for (at, (report, path)) in learned.iter().zip(&self.measured).enumerate() {
            let taught = match at {
                0 => report.apply_costs_to(&mut parameters),
                _ => learned[0].apply_growth_to(report, &mut parameters),
            };
            taught.map_err(|error| in_file(path, &error))?;
        }
        if let Some(path) = &self.parameters {
            let name = path
                .file_name()
                .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
            parameters.read(&read(path)?, &name).map_err(|error| in_file(path, &error))?;
        }
        for (key, value) in &self.set {
            parameters
                .set(key, *value, "--set")
                .map_err(|problem| Failure::Usage(format!("--set {key}={value}: {problem}")))?;
        }
        Ok(parameters)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

fn measured(path: &Path) -> Result<Measured, Failure> {
    Measured::parse(&read(path)?).map_err(|error| in_file(path, &error))
}

fn in_file(path: &Path, error: &noroshi_sim::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

fn show(model: &Model) -> Result<(), Failure> {
    let number = page::number;
    let row = |one: &Outcome| {
        let cell = &one.sizing.cell;
        vec![
            page::short(one.sizing.devices),
            number(one.sizing.cells as f64),
            number(one.sizing.nodes as f64),
            format!("{} + {}", cell.gateways.nodes, cell.apis),
            number(cell.demand.deliveries * one.sizing.cells as f64),
            number(one.published.p99_ms),
            format!("{} of {}", number(cell.redis.cores), cell.redis.shards),
            number(cell.postgres.cores),
            number(one.gateway_lost.all_s),
            number(one.cell_lost.all_s),
            number(one.broadcast.last_ms),
        ]
    };
    output::table(
        &[
            "devices",
            "cells",
            "nodes",
            "gateways + api of a cell",
            "deliveries/s",
            "p99 ms",
            "redis cores of a cell",
            "postgresql cores",
            "lost gateway back s",
            "lost cell back s",
            "broadcast ms",
        ],
        model.outcomes.iter().map(row).collect(),
    )?;
    if model.compared.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let row = |one: &Compared| {
        vec![
            one.name.to_owned(),
            one.unit.to_owned(),
            number(one.measured),
            number(one.predicted),
            format!("{:+.0} %", one.off_percent),
            match one.is_good() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "not counted",
            }
            .to_owned(),
        ]
    };
    let aim = format!("within {TOLERANCE_PERCENT:.0} %");
    output::table(
        &["quantity", "unit", "measured", "predicted", "difference", &aim],
        model.compared.iter().map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_abbreviated() {
        for (text, number) in [("1500", 1_500), ("180k", 180_000), ("10M", 10_000_000), ("1G", 1_000_000_000)]
        {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for text in ["", "0", "M", "1.5M", "-1", "10T", "99G", "18446744073709551615k"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_parameter_is_a_key_and_a_number() {
        assert_eq!(parameter("gateway.cores = 4"), Ok(("gateway.cores".to_owned(), 4.0)));
        assert!(parameter("gateway.cores").is_err() && parameter("a=b").is_err());
    }
}

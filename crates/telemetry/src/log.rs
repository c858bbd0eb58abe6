//! Structured logs on standard error: text for people, JSON for machines. Levels are chosen per
//! target (`info`, `noroshi_gateway=debug`); tokens and keys are never passed to a log call.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log level must be a list of level or target=level, such as \"info,noroshi_gateway=debug\"")]
    Level,
    #[error("a logger is already installed")]
    Installed,
}

/// Whether [`init`] would accept this level.
pub fn check(level: &str) -> Result<(), Error> {
    parse(level).map(|_| ())
}

/// A part without `=` must be a level: `Targets` would accept any word as a target.
fn parse(level: &str) -> Result<Targets, Error> {
    let known = |part: &str| part.contains('=') || LevelFilter::from_str(part.trim()).is_ok();
    match level.split(',').all(known) {
        true => Targets::from_str(level).map_err(|_| Error::Level),
        false => Err(Error::Level),
    }
}

/// Installs the logger of the process; a second call is an error.
pub fn init(level: &str, format: Format) -> Result<(), Error> {
    let targets = parse(level)?;
    let registry = tracing_subscriber::registry().with(targets);
    let layer = fmt::layer().with_writer(std::io::stderr);
    match format {
        Format::Text => registry.with(layer.with_ansi(std::io::stderr().is_terminal())).try_init(),
        Format::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    }
    .map_err(|_| Error::Installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_checked() {
        for good in ["info", "warn,noroshi_gateway=debug", "off"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["loud", "a=b=c", "noroshi=loud"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}

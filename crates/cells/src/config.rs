//! The configuration of a front and its cells.

use std::time::Duration;

use noroshi_types::limits;
use rustls_pki_types::CertificateDer;

/// One cell.
#[derive(Clone, PartialEq, Eq)]
pub struct CellConfig {
    /// Its permanent name: devices are assigned to the name, not to the address.
    pub name: String,
    /// Base URLs of its provider API, at least one; requests go to the first that answers.
    pub urls: Vec<String>,
    /// Base URL of its admin address, for apps and keys.
    pub admin_url: String,
    pub operator_token: String,
    /// Where devices connect, such as `https://c1.push.example.com`; none: the first of `urls`. Only sent to clients
    /// that try to connect to the front.
    pub public_url: Option<String>,
    /// Its share of new devices, relative to the others; 0: none.
    pub weight: u32,
}

impl std::fmt::Debug for CellConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CellConfig")
            .field("name", &self.name)
            .field("urls", &self.urls)
            .field("admin_url", &self.admin_url)
            .field("public_url", &self.public_url)
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}

/// The configuration of a front.
#[derive(Debug, Clone)]
pub struct Config {
    pub cells: Vec<CellConfig>,
    /// Trusted for cells, in addition to the public roots.
    pub ca: Vec<CertificateDer<'static>>,
    /// Queued parts per cell; further messages for the cell are rejected.
    pub outbox_parts_max: u64,
    /// Timeout of one request to a cell.
    pub request_timeout: Duration,
    /// Between two probes of a cell.
    pub probe_interval: Duration,
    /// How long the outcome of a message can be queried.
    pub retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cells: Vec::new(),
            ca: Vec::new(),
            // 1 GiB at 1 KiB each: a day of 10 per second for a cell that is down.
            outbox_parts_max: 1_000_000,
            request_timeout: Duration::from_secs(30),
            probe_interval: Duration::from_secs(2),
            retention: limits::TRACE_RETENTION,
        }
    }
}

/// The maximum number of cells of one front: a topic message has a part for each.
pub const CELLS_MAX: usize = 64;
pub const CELL_NAME_BYTES_MAX: usize = 32;

impl Config {
    /// All problems, each with its path in the configuration.
    pub fn problems(&self) -> Vec<(String, &'static str)> {
        let mut wrong = Vec::new();
        if self.cells.is_empty() || self.cells.len() > CELLS_MAX {
            wrong.push(("cells".to_owned(), "must have 1 to 64 cells"));
        }
        for (i, cell) in self.cells.iter().enumerate() {
            let mut say = |field: &str, rule| wrong.push((format!("cells[{i}].{field}"), rule));
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if !(1..=CELL_NAME_BYTES_MAX).contains(&cell.name.len()) || !cell.name.bytes().all(plain) {
                say("name", "must have 1 to 32 characters of a-z, 0-9 and '-'");
            }
            if self.cells[..i].iter().any(|other| other.name == cell.name) {
                say("name", "must be unique: another cell has this name");
            }
            if cell.urls.is_empty() || !cell.urls.iter().all(|url| is_base(url)) {
                say("urls", "must have at least one http or https URL without a path");
            }
            if !is_base(&cell.admin_url) {
                say("admin_url", "must be an http or https URL without a path");
            }
            if cell.public_url.as_ref().is_some_and(|url| !is_base(url)) {
                say("public_url", "must be an http or https URL without a path");
            }
            if cell.operator_token.is_empty() {
                say("operator_token", "must not be empty");
            }
        }
        wrong
    }
}

fn is_base(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest))
        .is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str) -> CellConfig {
        CellConfig {
            name: name.to_owned(),
            urls: vec!["https://c1.example".to_owned()],
            admin_url: "http://127.0.0.1:9090/".to_owned(),
            operator_token: "no_x".to_owned(),
            public_url: None,
            weight: 1,
        }
    }

    #[test]
    fn all_problems_are_reported() {
        let check = |cells: Vec<CellConfig>, expected: &[&str]| {
            let problems = Config { cells, ..Config::default() }.problems();
            assert_eq!(problems.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), expected);
        };
        check(vec![cell("c1"), cell("c-2")], &[]);
        check(vec![], &["cells"]);
        check(vec![cell("c1"), cell("c1")], &["cells[1].name"]);
        check(vec![cell("C 1")], &["cells[0].name"]);
        let wrong = CellConfig {
            urls: vec!["https://a/path".to_owned()],
            admin_url: "ftp://a".to_owned(),
            public_url: Some("https://".to_owned()),
            operator_token: String::new(),
            ..cell("c1")
        };
        check(
            vec![wrong],
            &["cells[0].urls", "cells[0].admin_url", "cells[0].public_url", "cells[0].operator_token"],
        );
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", cell("c1")).contains("no_x"));
    }
}

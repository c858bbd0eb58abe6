//! Problems of a configuration. All of them are collected, so that an operator fixes a file once.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from, lowest precedence first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    /// Lines count from 1. 0: the file as a whole.
    File {
        path: PathBuf,
        line: usize,
    },
    Environment {
        name: String,
    },
    Flag {
        name: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { path, line: 0 } => write!(f, "{}", path.display()),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
            Source::Environment { name } => f.write_str(name),
            Source::Flag { name } => f.write_str(name),
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `gateway.ping_interval`. Empty for the file as a whole.
    pub key: String,
    pub source: Source,
    /// The found and the expected value, with its unit.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.is_empty() {
            true => write!(f, "{}: {}", self.source, self.text),
            false => write!(f, "{} ({}): {}", self.key, self.source, self.text),
        }
    }
}

/// All problems, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "the configuration has {count} problem{}", if count == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}

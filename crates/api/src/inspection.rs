//! The interface to what a node knows about its machine and its configuration. The node implements [`Inspection`].

use std::sync::Arc;

use noroshi_types::names;
use tokio::sync::Mutex;
use tokio::task::JoinError;

/// Examines this node.
pub trait Inspection: Send + Sync {
    /// The node's name.
    fn node(&self) -> &str;

    /// Checks the machine for this number of devices; None: the configured number. Reads and writes files, so it may block
    /// for seconds.
    fn examine(&self, connections: Option<u64>) -> Diagnosis;

    /// Every key of the configuration, by section. No value contains a secret.
    fn settings(&self) -> Vec<Setting>;
}

/// An [`Inspection`] that one request at a time uses.
pub struct Inspector {
    inspection: Arc<dyn Inspection>,
    /// Held during an examination. No other lock is taken under it.
    turn: Mutex<()>,
}

impl Inspector {
    pub fn new(inspection: Arc<dyn Inspection>) -> Self {
        Self { inspection, turn: Mutex::new(()) }
    }

    pub(crate) fn node(&self) -> &str {
        self.inspection.node()
    }

    pub(crate) fn settings(&self) -> Vec<Setting> {
        self.inspection.settings()
    }

    /// Waits for the examination in progress. Cancel-safe: an examination that has started runs to its end.
    pub(crate) async fn examine(&self, connections: Option<u64>) -> Result<Diagnosis, JoinError> {
        let _turn = self.turn.lock().await;
        let inspection = self.inspection.clone();
        tokio::task::spawn_blocking(move || inspection.examine(connections)).await
    }
}

/// The results of all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub verdict: &'static str,
    pub connections: u64,
    pub tls: bool,
    pub checks: Vec<Check>,
    /// Kernel settings to change.
    pub sysctl: Vec<(&'static str, String)>,
    /// The required hard limit of open files, if it must be raised.
    pub limit_nofile: Option<u64>,
    /// The number of devices that the tightest limit allows, and that limit.
    pub room: Option<(u64, String)>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// `ok`, `warn` or `fail`.
    pub verdict: &'static str,
    pub found: String,
    pub wanted: String,
    /// Empty if nothing is to do.
    pub advice: String,
}

/// A key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// `gateway.ping_interval`
    pub key: &'static str,
    pub help: &'static str,
    pub unit: &'static str,
    /// Minimum and maximum, or the possible values.
    pub range: String,
    /// As TOML. None: unset.
    pub value: Option<String>,
    pub default: Option<String>,
    /// A part of the value, or all of it, is not shown.
    pub is_masked: bool,
    pub source: SourceKind,
    /// The file with the line, the variable or the flag. None: the default.
    pub place: Option<String>,
}

names! {
    /// Where the value of a key comes from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SourceKind {
        Default => "default",
        File => "file",
        Environment => "environment",
        Flag => "flag",
    }
}

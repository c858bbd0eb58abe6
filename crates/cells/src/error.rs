//! Why a front cannot start.

/// Reported before the first request is accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", .0.iter().map(|(path, rule)| format!("{path}: {rule}")).collect::<Vec<_>>().join("; "))]
    Config(Vec<(String, &'static str)>),
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
    #[error(transparent)]
    Egress(#[from] noroshi_egress::ConfigError),
    #[error("the system has no randomness")]
    Randomness,
}

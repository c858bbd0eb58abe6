//! Failures of commands, by what the caller can do about them, and their exit codes.

use std::fmt;
use std::time::Duration;

use noroshi_node::config::Problems;

/// Shown by `--help`. Scripts rely on these codes.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   the command failed, or the server returned an error
  2   invalid usage
  64  invalid configuration (all problems are listed)
  69  the server is unreachable
  70  serve: a thread of the node failed or stalled; restart it
  77  the credential was rejected";

#[derive(Debug)]
pub(crate) enum Failure {
    /// An invalid combination of arguments.
    Usage(String),
    Configuration(Problems),
    /// No response from the server.
    Unreachable {
        server: String,
        cause: String,
    },
    /// 401 and 403, or a close reason of that kind.
    Refused(String),
    /// The server responded with a problem (RFC 9457).
    Answered {
        status: u16,
        code: String,
        detail: String,
        /// The earliest time to retry.
        retry_after: Option<Duration>,
    },
    /// The reader of the output is gone (`| head`). Not reported.
    OutputGone,
    /// Any other failure, as a message for the user.
    Failed(String),
}

impl Failure {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Failure::Failed(text.into())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Configuration(_) => 64,
            Failure::Unreachable { .. } => 69,
            Failure::Refused(_) => 77,
            Failure::Answered { .. } | Failure::OutputGone | Failure::Failed(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Refused(text) | Failure::Failed(text) => f.write_str(text),
            Failure::OutputGone => f.write_str("the reader of the output is gone"),
            Failure::Configuration(problems) => problems.fmt(f),
            Failure::Unreachable { server, cause } => write!(f, "{server} cannot be reached: {cause}"),
            Failure::Answered { status, code, detail, .. } => write!(f, "{detail} ({code}, {status})"),
        }
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Failure::Configuration(problems)
    }
}

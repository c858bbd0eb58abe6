//! Why a measurement failed, grouped by what the user does next. A slow server is a result, not an error.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line needs another value.
    #[error("{0}")]
    Usage(String),
    #[error(
        "{wanted} connections need as many open files, and a process may have {files_max} (of which {reserved} are \
         kept for other things): spread them over more processes (--processes), raise the hard limit \
         (`ulimit -Hn`), or ask for fewer"
    )]
    Files { wanted: usize, files_max: u64, reserved: u64 },
    #[error(
        "a gateway would have {wanted} connections when one of them has ended (all of them, with --no-kill), and may have \
         {files_max} open files (of which {reserved} are kept for other things): ask for more --gateways, for --spare ones, \
         or for fewer --devices"
    )]
    NodeFiles { wanted: usize, files_max: u64, reserved: u64 },
    /// The started server failed, with the end of its log.
    #[error("the server did not start: {why}\n{log}")]
    Start { why: String, log: String },
    #[error("cannot prepare the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("cannot reach {url}: {source}")]
    Unreachable { url: String, source: std::io::Error },
    /// A response that makes the measurement pointless.
    #[error("{request} was answered with {status}: {body}")]
    Refused { request: String, status: u16, body: String },
    #[error("the answer to {request} is not HTTP/1.1 as expected: {what}")]
    Malformed { request: String, what: &'static str },
    #[error("{connected} of {wanted} devices are connected after {seconds:.0} s. {reasons}{advice}")]
    NotConnected { wanted: usize, connected: usize, seconds: f64, reasons: String, advice: String },
    #[error("{missing} of {expected} messages did not arrive within {seconds:.0} s: {hint}")]
    NotDelivered { missing: u64, expected: u64, seconds: f64, hint: String },
    #[error(
        "the server still holds {left} of {connections} connections {seconds:.0} s after they were closed"
    )]
    NotClean { left: u64, connections: usize, seconds: f64 },
    #[error("only {kept} of {accepted} accepted inbox rows are stored: see the server's log")]
    NotKept { kept: u64, accepted: u64 },
    #[error("no request was accepted during the measurement. {reasons}")]
    NothingAccepted { reasons: String },
    #[error("the publishing connection ended: {0}")]
    Ended(String),
    #[error("process {0} does not exist or is not readable: is --pid the server's?")]
    NoProcess(u32),
    /// The kernel rejected a client operation: epoll, a timer, a thread.
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    /// The result exceeds the requested margin.
    #[error("{0}")]
    NotWithin(String),
    /// The engine failed while the floor was measured.
    #[error("the floor: {0}")]
    Floor(String),
    #[error("the event log: {0}")]
    Events(String),
    /// A client process failed, with its standard error.
    #[error("the client failed: {why}{stderr}")]
    Worker { why: String, stderr: String },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}

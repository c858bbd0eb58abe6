//! Why a measurement could not be made, by what the person at the terminal does next. A server that is
//! merely slow is no error: that is a result.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line: another value is needed.
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
    /// The server that was started here, with its last words.
    #[error("the server did not start: {why}\n{log}")]
    Start { why: String, log: String },
    #[error("cannot prepare the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("cannot reach {url}: {source}")]
    Unreachable { url: String, source: std::io::Error },
    /// An answer that makes the measurement pointless.
    #[error("{request} was answered with {status}: {body}")]
    Refused { request: String, status: u16, body: String },
    #[error("the answer to {request} is not HTTP/1.1 as expected: {what}")]
    Malformed { request: String, what: &'static str },
    #[error("{connected} of {wanted} devices are connected after {seconds:.0} s. {reasons}{advice}")]
    NotConnected { wanted: usize, connected: usize, seconds: f64, reasons: String, advice: String },
    #[error("{missing} of {expected} messages did not arrive within {seconds:.0} s: {hint}")]
    NotDelivered { missing: u64, expected: u64, seconds: f64, hint: String },
    #[error(
        "{left} of {connections} connections are still held by the server {seconds:.0} s after they were closed"
    )]
    NotClean { left: u64, connections: usize, seconds: f64 },
    #[error("{kept} inbox rows are kept of {accepted} that were accepted: see the server's log")]
    NotKept { kept: u64, accepted: u64 },
    #[error("no request was accepted during the measurement. {reasons}")]
    NothingAccepted { reasons: String },
    #[error("the connection to publish on ended: {0}")]
    Ended(String),
    #[error("process {0} is gone or may not be read: is --pid the server's?")]
    NoProcess(u32),
    /// The kernel refused something a client needs: epoll, a timer, a thread.
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    /// What was measured is not within what was asked for.
    #[error("{0}")]
    NotWithin(String),
    #[error("the event log: {0}")]
    Events(String),
    /// One of our own processes, with what it wrote to standard error.
    #[error("the client failed: {why}{said}")]
    Worker { why: String, said: String },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}

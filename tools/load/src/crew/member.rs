//! One worker process from the crew's view: our own executable, controlled by lines on its standard input,
//! with reports on its standard output. It ends with its input, so it outlives neither this value nor the
//! measuring program.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::Error;
use crate::process::Process;
use crate::server::SMALL_PAGES;
use crate::worker::{self, Message, Start};

/// A worker without a report for this long is considered dead: every task has an earlier deadline of its own.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3_600);
/// The kept part of a worker's standard error.
const STDERR_LINES_MAX: usize = 20;
const STDERR_LINE_BYTES_MAX: u64 = 1_000;

pub(crate) struct Member {
    index: usize,
    child: Child,
    /// `None` after the request to end.
    commands: Option<ChildStdin>,
    reports: Receiver<String>,
    /// Ends with the process, and returns its standard error.
    stderr: Option<JoinHandle<VecDeque<String>>>,
}

impl Member {
    /// `small_pages`: [`SMALL_PAGES`], for many of them.
    pub(crate) fn start(start: &Start, small_pages: bool) -> Result<Self, Error> {
        let (name, value) = SMALL_PAGES;
        let mut child = program()?
            .envs(small_pages.then_some((name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::system("starting a worker process"))?;
        let (reports_end, reports) = sync_channel(1);
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        spawn("load-reports", move || stdout.into_iter().for_each(|stdout| forward(stdout, &reports_end)))?;
        let stderr = spawn("load-stderr", move || stderr.map(last_lines).unwrap_or_default())?;
        let commands = child.stdin.take();
        let index = start.partition.index;
        let mut member = Self { index, child, commands, reports, stderr: Some(stderr) };
        member.write(start)?;
        Ok(member)
    }

    /// Waits until it has started; it accepts no commands before.
    pub(crate) fn wait_until_started(&mut self) -> Result<(), Error> {
        match self.read()? {
            Message::Started => Ok(()),
            Message::Report(_) | Message::Failed(_) => {
                Err(self.failed("its first message is not the start message".to_owned()))
            }
        }
    }

    pub(crate) fn send(&mut self, command: &worker::Command) -> Result<(), Error> {
        self.write(command)
    }

    /// Waits for the results of a command.
    pub(crate) fn report<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        match self.read()? {
            Message::Report(results) => serde_json::from_value(results)
                .map_err(|error| self.failed(format!("its report does not match the command ({error})"))),
            Message::Started | Message::Failed(_) => {
                Err(self.failed("it sent two start messages".to_owned()))
            }
        }
    }

    pub(crate) fn process(&self) -> Process {
        Process { pid: self.child.id() }
    }

    fn write(&mut self, line: &impl serde::Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string(line).expect("commands are plain values");
        text.push('\n');
        let written = match &mut self.commands {
            Some(commands) => commands.write_all(text.as_bytes()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        // It may have reported the reason before it exited.
        written.or_else(|error| self.read().map(|_| ()).and(Err(self.failed(error.to_string()))))
    }

    fn read(&mut self) -> Result<Message, Error> {
        match self.reports.recv_timeout(REPORT_TIMEOUT) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Message::Failed(why)) => Err(self.failed(why)),
                Ok(message) => Ok(message),
                Err(error) => Err(self.failed(format!("it wrote an invalid report ({error})"))),
            },
            Err(RecvTimeoutError::Timeout) => Err(self.failed("it sent no report for an hour".to_owned())),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait();
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(self.failed(format!("it exited early with {status}")))
            }
        }
    }

    /// Ends a failed worker and returns the error with its standard error.
    fn failed(&mut self, why: String) -> Error {
        self.end();
        let lines = self.stderr.take().and_then(|stderr| stderr.join().ok()).unwrap_or_default();
        let stderr: String = lines.iter().map(|line| format!("\n{line}")).collect();
        Error::Worker { why: format!("worker {}: {why}", self.index + 1), stderr }
    }

    /// Ends it without cleanup, since it holds no state.
    fn end(&mut self) {
        self.commands = None;
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait(); // as above
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
    }
}

/// Forwards lines until either end closes.
fn forward(from: impl Read, to: &SyncSender<String>) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        if to.send(line).is_err() {
            return;
        }
    }
}

fn last_lines(from: impl Read) -> VecDeque<String> {
    let mut from = BufReader::new(from);
    let mut lines = VecDeque::new();
    let mut line = Vec::new();
    while matches!(from.by_ref().take(STDERR_LINE_BYTES_MAX).read_until(b'\n', &mut line), Ok(1..)) {
        if lines.len() == STDERR_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    lines
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(Error::system("a thread"))
}

#[cfg(not(test))]
fn program() -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::system("own executable"))?);
    command.args(["bench", "worker"]);
    Ok(command)
}

/// In tests the executable is the test harness, which writes to standard output itself.
#[cfg(test)]
fn program() -> Result<Command, Error> {
    let mut command = Command::new("sh");
    let worker =
        r#"exec "$0" tests::worker_process_for_other_tests --exact --ignored --nocapture 3>&1 1>/dev/null"#;
    command.args(["-c", worker]);
    command.arg(std::env::current_exe().map_err(Error::system("own executable"))?);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::dialect::Dialect;
    use crate::engine::Setup;
    use crate::http::Origin;
    use crate::jwt::Signer;
    use crate::partition::Partition;
    use crate::payload::Names;

    fn start() -> Member {
        let setup = Setup {
            origin: Origin::parse("http://127.0.0.1:1").unwrap(),
            homes: Vec::new(),
            spare_homes: 0,
            providers: Vec::new(),
            names: Names { prefix: "b".to_owned() },
            signer: Signer::new("s", "dev"),
            api_key: String::new(),
            topic: None,
            dialect: Dialect::Native,
            sources_start: 0,
        };
        let partition = Partition { index: 1, count: 2 };
        let mut member = Member::start(&Start { setup, partition }, false).unwrap();
        member.wait_until_started().unwrap();
        member
    }

    #[test]
    fn worker_ends_with_its_input_during_a_task() {
        for busy in [false, true] {
            let mut member = start();
            if busy {
                // Nothing listens there, so it would retry forever.
                let (devices, deadline_ns) = (1, u64::MAX);
                member.send(&worker::Command::Connect { devices, handshakes_max: 1, deadline_ns }).unwrap();
            }
            member.commands = None;
            let deadline = Instant::now() + Duration::from_secs(30);
            while member.child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "it still runs");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn dead_worker_is_reported_with_its_standard_error() {
        let mut member = start();
        member.child.kill().unwrap();
        let error = member.report::<()>().unwrap_err().to_string();
        assert!(error.contains("worker 2") && error.contains("signal: 9"), "{error}");

        let mut member = start();
        member.commands.as_mut().unwrap().write_all(b"nonsense\n").unwrap();
        let error = member.report::<()>().unwrap_err().to_string();
        assert!(error.contains("invalid command") && error.contains("nonsense"), "{error}");
    }

    #[test]
    fn only_the_end_of_standard_error_is_kept() {
        let text: String = (0..1_000).map(|number| format!("line {number}\n")).collect();
        let lines = last_lines(text.as_bytes());
        assert_eq!((lines.len(), lines[19].as_str()), (STDERR_LINES_MAX, "line 999"));
        let long = last_lines(&vec![b'x'; 5_000][..]);
        assert_eq!(long.iter().map(String::len).max(), Some(1_000));
    }
}

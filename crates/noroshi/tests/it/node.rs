//! A running node and commands against it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous: only a hanging node takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

/// The binary, with an environment without our variables.
pub(crate) fn noroshi() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_noroshi"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NOROSHI") {
            command.env_remove(name);
        }
    }
    command
}

/// Retries until there is a result.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(since.elapsed() < DEADLINE, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) struct Node {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) http: String,
    pub(crate) admin: String,
}

impl Node {
    /// On a data folder, with ports chosen by the system.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, |_| {})
    }

    pub(crate) fn start_with(folder: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let screen = std::fs::File::create(folder.with_extension("screen")).expect("screen");
        let log = std::fs::File::create(folder.with_extension("log")).expect("log");
        let mut command = noroshi();
        command.args(["serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]).arg(folder);
        command.current_dir(folder.parent().expect("a parent")).stdout(screen).stderr(log);
        change(&mut command);
        // Left by a killed node.
        let _ = std::fs::remove_file(folder.join("addresses.json"));
        let mut child = command.spawn().expect("the binary");
        let addresses = until("addresses.json", || {
            if let Some(status) = child.try_wait().expect("the child") {
                let log = std::fs::read_to_string(folder.with_extension("log")).unwrap_or_default();
                panic!("the node ended with {status}: {log}");
            }
            let text = std::fs::read_to_string(folder.join("addresses.json")).ok()?;
            serde_json::from_str::<Value>(&text).ok()
        });
        let text = |name: &str| addresses[name].as_str().expect("an address").to_owned();
        let node = Self { child, folder: folder.to_owned(), http: text("http"), admin: text("admin") };
        if node.admin.starts_with("http://") {
            until("readyz", || (get(&node.admin, "/readyz").0 == 200).then_some(()));
        }
        until("the screen", || node.screen().contains("is ready.").then_some(()));
        node
    }

    /// Its standard output.
    pub(crate) fn screen(&self) -> String {
        std::fs::read_to_string(self.folder.with_extension("screen")).expect("screen")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.with_extension("log")).expect("log")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.expect("kill").success());
    }

    /// Sends SIGTERM; returns the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        until("the node to end", || self.child.try_wait().expect("the child")).code()
    }

    /// Runs a command against this node.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = noroshi();
        command.args(arguments).env("NOROSHI_DATA", &self.folder).stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed; returns its standard output.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the binary");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Runs a command with `--json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Runs a command that must fail with this exit code; returns its output.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the binary");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A failed test leaves no node behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Standard output and error, for assertion messages.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Status and body of a GET over plain HTTP/1.1.
pub(crate) fn get(base: &str, path: &str) -> (u16, String) {
    let address = base.strip_prefix("http://").expect("plain HTTP");
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
    stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    if stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.read_to_string(&mut answer).map(drop))
        .is_err()
    {
        return (0, answer);
    }
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

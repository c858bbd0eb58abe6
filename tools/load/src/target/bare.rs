//! The floor as a process: our own executable as `noroshi bench floor` ([`crate::floor`]), on its own port. It
//! inherits the raised limit of open files.

use std::process::Command;

use rustix::process::Signal;

use super::{Kind, Target};
use crate::Error;
use crate::dialect::Dialect;
use crate::http::{Client, Origin, Request};
use crate::program::{Owned, Signals};
use crate::server::{START_TIMEOUT, free_port, random_hex};

impl Target {
    /// Starts the floor, which writes a request to users to `deliveries` sockets.
    pub(crate) fn floor(deliveries: usize) -> Result<Self, Error> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let folder = std::env::temp_dir().join(format!("noroshi-bench-floor-{}", random_hex(8)?));
        let signals = Signals { stop: Signal::KILL, end: Signal::KILL }; // it stores nothing
        let started = Owned::start(&folder, signals, || program(&listen, deliveries))?;
        let origin = Origin::parse(&format!("http://{listen}"))?;
        let mut client = Client::new(origin.clone())?;
        let ask = Request::json("GET", "/connections", "");
        started.wait_until(START_TIMEOUT, || client.request(ask, b"").is_ok())?;
        Ok(Self {
            origin,
            devices: None,
            dialect: Dialect::Native,
            key: String::new(),
            jwt_secret: String::new(),
            process: Some(started.process()),
            admin: None,
            description: "a bare epoll loop (noroshi bench floor)".to_owned(),
            kind: Kind::Floor,
            started: Some(started),
        })
    }
}

#[cfg(not(test))]
fn program(listen: &str, deliveries: usize) -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::system("own executable"))?);
    command.args(["bench", "floor", "--listen", listen, "--deliveries", &deliveries.to_string()]);
    Ok(command)
}

/// In tests the executable is the test harness.
#[cfg(test)]
fn program(listen: &str, deliveries: usize) -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::system("own executable"))?);
    command.args(["tests::floor_process_for_other_tests", "--exact", "--ignored", "--nocapture"]);
    command.env("NOROSHI_BENCH_FLOOR", format!("{listen} {deliveries}"));
    Ok(command)
}

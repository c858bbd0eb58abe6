//! The floor as a process: our own executable as `noroshi bench floor` ([`crate::floor`]), on its own port,
//! stopped when dropped. It inherits the raised limit of open files.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::http::{Client, Origin, Request};
use crate::process::Process;
use crate::server::free_port;
use crate::{Error, clock};

const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

pub(crate) struct BareLoop {
    pub(crate) origin: Origin,
    child: Child,
}

impl BareLoop {
    pub(crate) fn start(deliveries: usize) -> Result<Self, Error> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let child = program(&listen, deliveries)?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(Error::system("starting the floor"))?;
        let mut bare = Self { origin: Origin::parse(&format!("http://{listen}"))?, child };
        bare.wait_until_ready()?;
        Ok(bare)
    }

    pub(crate) fn process(&self) -> Process {
        Process { pid: self.child.id() }
    }

    pub(crate) fn exited(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let deadline_ns = clock::now_ns() + clock::ns(START_TIMEOUT);
        let mut client = Client::new(self.origin.clone())?;
        let connections =
            Request { method: "GET", path: "/connections", key: "", content_type: "text/plain" };
        while client.request(connections, b"").is_err() {
            let why = match self.exited() {
                Some(status) => format!("the floor exited with {status}"),
                None if clock::now_ns() > deadline_ns => "the floor does not answer".to_owned(),
                None => {
                    std::thread::sleep(POLL);
                    continue;
                }
            };
            return Err(Error::Start { why, log: String::new() });
        }
        Ok(())
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it stores nothing, and may have exited already
        let _ = self.child.wait(); // as above
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

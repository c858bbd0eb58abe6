//! The worker processes of a measurement: sends them commands and merges their reports, so that scenarios see
//! a single client. Each worker gets its share of devices and requests.

mod member;
mod rehome;
mod stress;

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::engine::Setup;
use crate::partition::Partition;
use crate::process::{Cpu, Process};
use crate::worker::{
    Command, Connected, Pace, Plan, Published, Received, Results, Start, add_reasons, show_reasons,
};
use crate::{Error, clock};
use member::Member;

pub(crate) struct Crew {
    members: Vec<Member>,
}

impl Crew {
    pub(crate) fn start(processes: usize, setup: &Setup) -> Result<Self, Error> {
        Self::start_with(processes, setup, false)
    }

    /// As many processes as possible fit into memory.
    pub(crate) fn start_many(processes: usize, setup: &Setup) -> Result<Self, Error> {
        Self::start_with(processes, setup, true)
    }

    fn start_with(processes: usize, setup: &Setup, small_pages: bool) -> Result<Self, Error> {
        let start = |partition| Member::start(&Start { setup: setup.clone(), partition }, small_pages);
        let members = partitions(processes).map(start).collect::<Result<_, _>>()?;
        let mut crew = Self { members };
        crew.members.iter_mut().try_for_each(Member::wait_until_started)?;
        Ok(crew)
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = Process> + '_ {
        self.members.iter().map(Member::process)
    }

    /// CPU time of all workers so far; `None` if one has exited.
    pub(crate) fn cpu(&self) -> Option<Cpu> {
        self.members.iter().map(|member| member.process().cpu()).sum()
    }

    fn send(&mut self, command: impl Fn(Partition) -> Command) -> Result<(), Error> {
        let count = self.members.len();
        partitions(count).zip(&mut self.members).try_for_each(|(part, member)| member.send(&command(part)))
    }

    fn reports<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, Error> {
        self.members.iter_mut().map(Member::report).collect()
    }

    /// The results of all workers together.
    fn results<T: Results>(&mut self) -> Result<T, Error> {
        together(&mut self.members)
    }

    /// Connects devices until there are `devices` in total.
    pub(crate) fn connect(
        &mut self,
        devices: usize,
        handshakes_max: usize,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let deadline_ns = clock::now_ns() + clock::ns(timeout);
        self.send(|partition| Command::Connect {
            devices: partition.share(devices),
            handshakes_max: partition.share(handshakes_max).max(1),
            deadline_ns,
        })?;
        self.connected(devices)
    }

    fn connected(&mut self, devices: usize) -> Result<Connected, Error> {
        let whole: Connected = self.results()?;
        if whole.devices < devices {
            return Err(not_connected(devices, &whole));
        }
        Ok(whole)
    }

    /// Starts to publish; the plan is for all workers together.
    pub(crate) fn publish(&mut self, plan: &Plan) -> Result<(), Error> {
        let count = self.members.len();
        self.send(|partition| {
            let pace = match plan.pace {
                Pace::Rate(per_second) => Pace::Rate(per_second / count as f64),
                pace @ (Pace::Max | Pace::Answered) => pace,
            };
            let in_flight = partition.share(plan.in_flight).max(1);
            let requests = plan.requests.map(|requests| partition.share(requests));
            Command::Publish(Plan { pace, in_flight, requests, ..plan.clone() })
        })
    }

    /// Waits for the result of [`Crew::publish`].
    pub(crate) fn published(&mut self) -> Result<Published, Error> {
        let mut whole: Published = self.results()?;
        if whole.deliveries_ever < whole.expected_ever && self.members.len() > 1 {
            // A finished worker may have received messages of another worker's requests.
            self.receive(0, Duration::ZERO)?;
            let late = self.received()?;
            whole.deliveries_ever += late.deliveries;
            add_reasons(&mut whole.disconnected, late.disconnected);
        }
        Ok(whole)
    }

    /// Starts to wait until every device has received `each` messages since it connected.
    pub(crate) fn receive(&mut self, each: u32, timeout: Duration) -> Result<(), Error> {
        let deadline_ns = clock::now_ns() + clock::ns(timeout);
        self.send(|_| Command::Receive { each, deadline_ns })
    }

    /// Waits for the result of [`Crew::receive`].
    pub(crate) fn received(&mut self) -> Result<Received, Error> {
        self.results()
    }

    /// From now on, devices keep their acknowledgements until [`Crew::send_acks`]; only with the native protocol.
    pub(crate) fn hold_acks(&mut self) -> Result<(), Error> {
        self.send(|_| Command::HoldAcks)?;
        self.reports::<()>().map(drop)
    }

    /// Every device acknowledges with one frame what it received since the last call.
    pub(crate) fn send_acks(&mut self) -> Result<(), Error> {
        self.send(|_| Command::SendAcks)?;
        self.reports::<()>().map(drop)
    }

    pub(crate) fn disconnect(&mut self) -> Result<(), Error> {
        self.send(|_| Command::Disconnect)?;
        self.reports::<()>().map(drop)
    }
}

fn partitions(count: usize) -> impl Iterator<Item = Partition> {
    (0..count).map(move |index| Partition { index, count })
}

/// Merges the reports of several workers.
fn together<T: Results>(members: &mut [Member]) -> Result<T, Error> {
    let mut parts = members.iter_mut().map(Member::report);
    let mut whole: T = parts.next().ok_or_else(no_worker)??;
    for part in parts {
        whole.add(part?);
    }
    Ok(whole)
}

fn no_worker() -> Error {
    Error::Worker { why: "there is none for this command".to_owned(), stderr: String::new() }
}

fn not_connected(wanted: usize, connected: &Connected) -> Error {
    let seconds = (clock::now_ns() - connected.first_open_ns.min(clock::now_ns())) as f64 / 1e9;
    let reasons = match connected.failed.is_empty() {
        true => "The others got no response. ".to_owned(),
        false => format!("Failed attempts: {}. ", show_reasons(&connected.failed)),
    };
    let failed_with = |text: &str| connected.failed.keys().any(|reason| reason.contains(text));
    let advice = if failed_with("HTTP 401") || failed_with("HTTP 403") {
        "The server rejects the tokens: is --jwt-secret the secret of the app in --app?"
    } else if failed_with("HTTP 503 unavailable") {
        "The server is starting, stopping or draining: see its log"
    } else if failed_with("HTTP 429") || failed_with("HTTP 503") {
        "The server admits fewer log-ins at a time (lower --handshakes, or raise its connects per second), or has no \
         room for more connections (see its log)"
    } else if failed_with("connection refused") {
        "The connection was refused: is the server running?"
    } else if failed_with("connection reset")
        || failed_with("connection closed")
        || connected.failed.is_empty()
    {
        "The server may be at its limit of open files or connections: see its log and `ulimit -Hn`, or ask for \
         fewer with --connections"
    } else {
        ""
    };
    Error::NotConnected { wanted, connected: connected.devices, seconds, reasons, advice: advice.to_owned() }
}

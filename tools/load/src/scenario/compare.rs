//! Runs a scenario: prepares a target, measures it repeatedly, and finishes. With the floor, both are
//! measured alternately, each with its own clients whose connections stay open, so that drift of the machine
//! affects both.

use super::{Bench, Compared, Outcome, progress, report};
use crate::args::{Common, Foreign, Speech};
use crate::payload::When;
use crate::report::{ReportDocument, Values};
use crate::target::Target;
use crate::{Error, host};

/// One scenario against one target, which the scenario does not know.
pub(crate) trait Measurement {
    /// Runs before the first repetition: connections, devices, warm-up.
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error>;
    /// Runs repetition `number`, counted from 1.
    fn measure(&mut self, bench: &mut Bench<'_>, number: u32) -> Result<Values, Error>;
    /// Runs checks after the last repetition.
    fn finish(&mut self, _bench: &mut Bench<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// The target and conditions of a scenario.
#[derive(Clone)]
pub(crate) struct Subject<'a> {
    pub(crate) common: &'a Common,
    /// The protocol of the devices; `None`: the native one.
    pub(crate) speech: Option<&'a Speech>,
    /// A foreign server instead of a node.
    pub(crate) foreign: Option<&'a Foreign>,
    /// Whether to alternate with the floor.
    pub(crate) floor: bool,
    /// The maximum number of concurrent connections.
    pub(crate) connections: usize,
    /// The topic that devices subscribe to, if any.
    pub(crate) topic: Option<String>,
    /// Sockets that the floor writes per request to users.
    pub(crate) deliveries: usize,
    /// The policy of published messages.
    pub(crate) when: When,
}

impl<'a> Subject<'a> {
    /// A node with devices of the native protocol.
    pub(crate) fn new(common: &'a Common, connections: usize) -> Self {
        Self {
            common,
            speech: None,
            foreign: None,
            floor: false,
            connections,
            topic: None,
            deliveries: 0,
            when: When::Connected,
        }
    }

    /// The checks that need no server.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.common.check()?;
        if let Some(speech) = self.speech {
            if let Some(foreign) = self.foreign {
                foreign.check(speech, self.when)?;
            }
            speech.check(self.common.server.is_some(), self.when)?;
        }
        host::make_room_for(self.connections, usize::from(self.common.processes))
    }

    pub(crate) fn open(&self) -> Result<Bench<'a>, Error> {
        let native = Speech::default();
        let speech = self.speech.unwrap_or(&native);
        let target = match self.foreign {
            Some(foreign) if foreign.is_given() => Target::foreign(foreign, self.common, speech)?,
            _ => Target::node(self.common, speech)?,
        };
        Bench::new(self.common, target, self.topic.clone())
    }

    /// `None` if the floor is not requested.
    pub(crate) fn open_floor(&self) -> Result<Option<Bench<'a>>, Error> {
        if !self.floor {
            return Ok(None);
        }
        let target = Target::floor(self.deliveries)?;
        let mut bench = Bench::new(self.common, target, self.topic.clone())?;
        if self.common.tls {
            bench.notes.push("the floor does not use TLS".to_owned());
        }
        Ok(Some(bench))
    }
}

pub(crate) fn run<M: Measurement>(
    scenario: &'static str,
    subject: &Subject<'_>,
    make: impl Fn() -> M,
) -> Result<ReportDocument, Error> {
    subject.check()?;
    let mut sides = vec![Side::new("", subject.open()?, make())];
    if let Some(floor) = subject.open_floor()? {
        sides.push(Side::new(" (floor)", floor, make()));
    }
    for side in &mut sides {
        side.attempt(M::prepare)?;
    }
    let repeat = subject.common.repeat;
    for number in 1..=repeat {
        for side in &mut sides {
            progress(&format!("measuring {number} of {repeat}{}", side.name));
            let values = side.attempt(|measurement, bench| measurement.measure(bench, number))?;
            side.repetitions.push(values);
        }
    }
    for side in &mut sides {
        side.attempt(M::finish)?;
    }
    let mut sides = sides.into_iter();
    let first = sides.next().map(Side::close);
    let (repetitions, mut outcome) = first.expect("the subject was added first");
    if let Some((repetitions, floor)) = sides.next().map(Side::close) {
        outcome.add_floor(repetitions, floor);
    }
    Ok(report(scenario, &repetitions, outcome))
}

struct Side<'a, M> {
    /// Appended to progress messages.
    name: &'static str,
    bench: Bench<'a>,
    measurement: M,
    repetitions: Vec<Values>,
}

impl<'a, M> Side<'a, M> {
    fn new(name: &'static str, bench: Bench<'a>, measurement: M) -> Self {
        Self { name, bench, measurement, repetitions: Vec::new() }
    }

    fn attempt<T>(
        &mut self,
        act: impl FnOnce(&mut M, &mut Bench<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        act(&mut self.measurement, &mut self.bench).map_err(|error| self.bench.explain(error))
    }

    fn close(self) -> (Vec<Values>, Outcome) {
        (self.repetitions, self.bench.close())
    }
}

impl Outcome {
    pub(crate) fn add_floor(&mut self, repetitions: Vec<Values>, floor: Outcome) {
        self.notes.extend(floor.notes.into_iter().map(|note| format!("floor: {note}")));
        self.floor = Some(Compared { server: floor.server, repetitions });
    }
}

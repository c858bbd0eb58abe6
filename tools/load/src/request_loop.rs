//! Sends prepared requests as fast as they are answered, from one thread, over several connections with one
//! request each. Every response must be a success or a 304.

use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::http::Origin;
use crate::sender::{Pending, Sender};
use crate::stats::Latency;
use crate::{Error, clock};

/// Without a response for this long, the measurement fails.
const STALL: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Schedule {
    /// Each request once.
    Each,
    /// Repeats all requests for this long.
    For(Duration),
}

/// The results.
pub(crate) struct Results {
    pub(crate) answered: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Latency,
}

pub(crate) fn ask(
    origin: &Origin,
    requests: &[Vec<u8>],
    in_flight: usize,
    asking: Schedule,
) -> Result<Results, Error> {
    let connector = origin.connector()?;
    let mut poll = Poll::new().map_err(unreachable(origin))?;
    let sender = |at| Sender::new(origin.address, connector.clone(), Token(at));
    let mut senders: Vec<Sender> = (0..in_flight.min(requests.len())).map(sender).collect();
    let started_ns = clock::now_ns();
    let until_ns = match asking {
        Schedule::Each => u64::MAX,
        Schedule::For(time) => started_ns + clock::ns(time),
    };
    let mut work = Work { requests, next: 0, until_ns, asking };
    let mut asked = Results { answered: 0, seconds: 0.0, latency: Latency::default() };
    let mut open = 0;
    for sender in &mut senders {
        open += usize::from(work.give(&poll, sender)?);
    }
    let mut events = Events::with_capacity(1_024);
    while open > 0 {
        poll.poll(&mut events, Some(STALL)).map_err(unreachable(origin))?;
        if events.is_empty() {
            return Err(Error::NothingAccepted { reasons: "No response arrived in time.".to_owned() });
        }
        for event in &events {
            let sender = &mut senders[event.token().0];
            let Some(answer) = sender.handle_ready() else { continue };
            answer.result.map_err(|reasons| Error::NothingAccepted { reasons })?;
            asked.answered += 1;
            asked.latency.record(answer.pending.due_ns, answer.at_ns);
            open -= usize::from(!work.give(&poll, sender)?);
        }
    }
    asked.seconds = (clock::now_ns() - started_ns) as f64 / 1e9;
    Ok(asked)
}

/// The remaining requests.
struct Work<'a> {
    requests: &'a [Vec<u8>],
    next: usize,
    until_ns: u64,
    asking: Schedule,
}

impl Work<'_> {
    /// Returns false if no request remains.
    fn give(&mut self, poll: &Poll, sender: &mut Sender) -> Result<bool, Error> {
        let now_ns = clock::now_ns();
        let request = match self.asking {
            Schedule::Each => self.requests.get(self.next),
            Schedule::For(_) if now_ns >= self.until_ns => None,
            Schedule::For(_) => self.requests.get(self.next % self.requests.len().max(1)),
        };
        let Some(request) = request else { return Ok(false) };
        self.next += 1;
        let pending = Pending { due_ns: now_ns, connected: 0 };
        match sender.send(poll.registry(), pending, |out| out.extend_from_slice(request)) {
            None => Ok(true),
            Some(answer) => {
                let reasons = answer.result.err().unwrap_or_default();
                Err(Error::NothingAccepted { reasons })
            }
        }
    }
}

fn unreachable(origin: &Origin) -> impl Fn(std::io::Error) -> Error + '_ {
    |source| Error::Unreachable { url: origin.url(), source }
}

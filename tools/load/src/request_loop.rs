//! Requests that are written out already, asked as fast as they are answered: over a number of connections with one
//! request each, by one thread. Every answer has to be a success or a 304.

use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::http::Origin;
use crate::sender::{Pending, Sender};
use crate::stats::Latency;
use crate::{Error, clock};

/// Without an answer for so long there will be none.
const STALL: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Asking {
    /// Each request once.
    Each,
    /// One after the other and from the beginning again, for so long.
    For(Duration),
}

/// What came of it.
pub(crate) struct Asked {
    pub(crate) answered: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Latency,
}

pub(crate) fn ask(
    origin: &Origin,
    requests: &[Vec<u8>],
    in_flight: usize,
    asking: Asking,
) -> Result<Asked, Error> {
    let connector = origin.connector()?;
    let mut poll = Poll::new().map_err(unreachable(origin))?;
    let sender = |at| Sender::new(origin.address, connector.clone(), Token(at));
    let mut senders: Vec<Sender> = (0..in_flight.min(requests.len())).map(sender).collect();
    let started_ns = clock::now_ns();
    let until_ns = match asking {
        Asking::Each => u64::MAX,
        Asking::For(time) => started_ns + clock::ns(time),
    };
    let mut work = Work { requests, next: 0, until_ns, asking };
    let mut asked = Asked { answered: 0, seconds: 0.0, latency: Latency::new() };
    let mut open = 0;
    for sender in &mut senders {
        open += usize::from(work.give(&poll, sender)?);
    }
    let mut events = Events::with_capacity(1_024);
    while open > 0 {
        poll.poll(&mut events, Some(STALL)).map_err(unreachable(origin))?;
        if events.is_empty() {
            return Err(Error::NothingAccepted { reasons: "None was answered in time.".to_owned() });
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

/// What is still to be asked.
struct Work<'a> {
    requests: &'a [Vec<u8>],
    next: usize,
    until_ns: u64,
    asking: Asking,
}

impl Work<'_> {
    /// False if nothing is left.
    fn give(&mut self, poll: &Poll, sender: &mut Sender) -> Result<bool, Error> {
        let now_ns = clock::now_ns();
        let request = match self.asking {
            Asking::Each => self.requests.get(self.next),
            Asking::For(_) if now_ns >= self.until_ns => None,
            Asking::For(_) => self.requests.get(self.next % self.requests.len().max(1)),
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

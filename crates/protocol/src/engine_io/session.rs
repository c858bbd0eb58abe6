//! One session (EIO "Protocol"): heartbeat, long polling with one GET and one POST at a time, the move to a
//! WebSocket, and every way it ends. It owns no socket and no clock: each input comes with the time, and what
//! is to be done is appended to the caller's list of [`Output`]s.
//!
//! Invariants: [`Output::Answer`] is only for a poll that waits, at most one; [`Output::Ended`] comes once and
//! nothing is heard from the client after it; what waits for a poll is bounded, except for what the caller
//! pushes unbounded. On a WebSocket, where nearly all sessions spend their lives, a session is 24 bytes and
//! holds nothing: callers may write frames themselves then, [`Session::push`] is for who polls.
//!
//! A session that ended may still have last words for the next polls: it stays until [`Session::is_gone`].

use noroshi_types::CloseReason;

use super::handshake::Config;
use super::packet::{Data, Outgoing, Packet, PacketError};
use super::payload::Payload;
use super::request::RequestError;

/// What the owner of the connections has to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Answer the poll that waits.
    Answer(Payload),
    /// Send on the session's WebSocket.
    Frame(Outgoing),
    /// Send on the WebSocket that probes.
    Probe(Outgoing),
    /// The WebSocket that probes is the session's from here on.
    Upgraded,
    /// Close the WebSocket that probes; the session goes on without it.
    EndProbe,
    /// The session is over: close its WebSocket, if it has one, and tell the layer above.
    Ended(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A ping is due at the deadline.
    Quiet,
    /// Its answer is due at the deadline.
    Pinged,
    /// Over, with last words for polls that come before the deadline.
    Lingering,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    /// A WebSocket came.
    Open,
    /// It was heard and answered: polls end at once, since the client stops polling.
    Answered,
}

/// What a session has while it polls.
#[derive(Debug)]
struct Polling {
    queue: Payload,
    /// A GET waits.
    poll: bool,
    /// A POST is under way.
    post: bool,
    probe: Probe,
    /// What a session that lingers says when the rest is said.
    last: Option<Outgoing>,
}

#[derive(Debug)]
pub struct Session {
    deadline_ms: u64,
    polling: Option<Box<Polling>>,
    phase: Phase,
    ended: Option<CloseReason>,
    /// Ended by a mistake or by silence, so a request under way is refused.
    broken: bool,
}

// With the conversation on top it has 64 bytes in a connection.
const _: () = assert!(size_of::<Session>() <= 24);

type Outputs = Vec<Output>;

impl Session {
    /// A session that begins on a WebSocket. The first ping may be early, so that not all are due at once.
    pub fn websocket(first_ping_at_ms: u64) -> Self {
        Self { deadline_ms: first_ping_at_ms, polling: None, phase: Phase::Quiet, ended: None, broken: false }
    }

    /// A session that begins with long polling; the GET that opened it is answered by the caller.
    pub fn polling(first_ping_at_ms: u64) -> Self {
        let polling =
            Polling { queue: Payload::new(), poll: false, post: false, probe: Probe::None, last: None };
        Self { polling: Some(Box::new(polling)), ..Self::websocket(first_ping_at_ms) }
    }

    /// Whether frames go to a WebSocket.
    pub fn is_websocket(&self) -> bool {
        self.polling.is_none() && self.phase != Phase::Gone
    }

    /// Nothing is left of it: its id is unknown from now on.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Whether a poll waits for something to be pushed.
    pub fn is_polled(&self) -> bool {
        self.polling.as_ref().is_some_and(|polling| polling.poll)
    }

    /// Bytes that wait for a poll.
    pub fn queued_bytes(&self) -> usize {
        self.polling.as_ref().map_or(0, |polling| polling.queue.body_bytes())
    }

    /// When [`Session::handle_time`] wants to be called at the latest.
    pub fn deadline_ms(&self) -> Option<u64> {
        (self.phase != Phase::Gone).then_some(self.deadline_ms)
    }

    /// Pings, and finds out that nothing was heard. Every other input does the same first, so a client that
    /// is late is late however coarse the caller's timers are.
    pub fn handle_time(&mut self, now_ms: u64, config: &Config, out: &mut Outputs) {
        if self.phase == Phase::Quiet && now_ms >= self.deadline_ms {
            self.phase = Phase::Pinged;
            self.deadline_ms += config.ping_timeout_ms;
            if self.polling.as_ref().is_none_or(|polling| polling.poll) {
                // If it leaves late that is our fault: half of the time is left for the answer.
                self.deadline_ms = self.deadline_ms.max(now_ms + config.ping_timeout_ms / 2);
            }
            self.push_unbounded(Outgoing::PING, out);
            self.flush(out);
        }
        if now_ms >= self.deadline_ms {
            match self.phase {
                Phase::Pinged => self.end(CloseReason::PingTimeout, out),
                Phase::Lingering => self.vanish(out),
                Phase::Quiet | Phase::Gone => {}
            }
        }
    }

    /// A GET came. `Ok`: it waits, until an [`Output::Answer`], which may be in `out` already; an answer in
    /// `out` beside an error is for the GET that waited before.
    pub fn handle_poll(
        &mut self,
        now_ms: u64,
        config: &Config,
        out: &mut Outputs,
    ) -> Result<(), RequestError> {
        self.handle_time(now_ms, config, out);
        match (self.phase, &mut self.polling) {
            (Phase::Gone, _) => Err(RequestError::UnknownSid),
            (_, None) => Err(RequestError::BadRequest), // it has moved to a WebSocket
            (_, Some(polling)) if polling.poll => {
                // "Receiving data": an error status, and the session is closed.
                self.end(CloseReason::BadMessage, out);
                Err(RequestError::BadRequest)
            }
            (phase, Some(polling)) => {
                polling.poll = true;
                match phase {
                    Phase::Lingering => self.say_last(out),
                    _ => {
                        if polling.probe == Probe::Answered && polling.queue.is_empty() {
                            polling.queue.push(Outgoing::NOOP);
                        }
                        self.flush(out);
                    }
                }
                Ok(())
            }
        }
    }

    /// The client went away while its GET waited.
    pub fn handle_poll_gone(&mut self, out: &mut Outputs) {
        if let Some(polling) = &mut self.polling {
            polling.poll = false;
            self.end(CloseReason::PeerReset, out);
        }
    }

    /// A POST came; its packets follow by [`Session::handle_packet`], and [`Session::end_post`].
    pub fn handle_post(
        &mut self,
        now_ms: u64,
        config: &Config,
        out: &mut Outputs,
    ) -> Result<(), RequestError> {
        self.handle_time(now_ms, config, out);
        if self.ended.is_some() {
            return Err(RequestError::UnknownSid);
        }
        let polling = self.polling.as_mut().ok_or(RequestError::BadRequest)?;
        if polling.post {
            // "Sending data": an error status, and the session is closed.
            self.end(CloseReason::BadMessage, out);
            return Err(RequestError::BadRequest);
        }
        polling.post = true;
        Ok(())
    }

    /// The body of a POST ended, or could not be read on. `Ok` is answered with `ok`.
    pub fn end_post(
        &mut self,
        result: Result<(), PacketError>,
        out: &mut Outputs,
    ) -> Result<(), RequestError> {
        if let Some(polling) = &mut self.polling {
            polling.post = false;
        }
        if let Err(error) = result {
            self.end(error.reason(), out);
            let too_big = error == PacketError::TooBig;
            return Err(if too_big { RequestError::TooBig } else { RequestError::BadRequest });
        }
        // One that led to an orderly end was heard all the same.
        match self.broken {
            false => Ok(()),
            true => Err(RequestError::BadRequest),
        }
    }

    /// The client went away in the middle of a POST.
    pub fn handle_post_gone(&mut self, out: &mut Outputs) {
        if self.polling.is_some() {
            self.end(CloseReason::PeerReset, out);
        }
    }

    /// A packet by POST or on the session's WebSocket. What it carries for the layer above is returned.
    pub fn handle_packet<'a>(
        &mut self,
        packet: Packet<'a>,
        now_ms: u64,
        config: &Config,
        out: &mut Outputs,
    ) -> Option<Data<'a>> {
        self.handle_time(now_ms, config, out);
        if self.ended.is_some() {
            return None;
        }
        match packet {
            Packet::Message(data) => return Some(data),
            Packet::Pong(_) if self.phase == Phase::Pinged => {
                self.phase = Phase::Quiet;
                self.deadline_ms = now_ms + config.ping_interval_ms;
            }
            // One more than was asked for moves nothing.
            Packet::Pong(_) | Packet::Noop => {}
            Packet::Close => self.end_by_peer(now_ms, config, out),
            // "Heartbeat", "Handshake", "Upgrade": the server's, or not the time.
            Packet::Ping(_) | Packet::Open(_) | Packet::Upgrade => self.end(CloseReason::BadMessage, out),
        }
        None
    }

    /// The session's WebSocket ended without a packet.
    pub fn handle_websocket_gone(&mut self, reason: CloseReason, out: &mut Outputs) {
        if self.is_websocket() {
            self.end(reason, out);
        }
    }

    /// A WebSocket came with this session's id. If it is not accepted its handshake is finished nevertheless
    /// and it is closed ("WebSocket": not more than one for each session).
    pub fn accept_probe(&mut self, now_ms: u64, config: &Config, out: &mut Outputs) -> bool {
        self.handle_time(now_ms, config, out);
        match &mut self.polling {
            Some(polling) if self.ended.is_none() && polling.probe == Probe::None => {
                polling.probe = Probe::Open;
                true
            }
            _ => false,
        }
    }

    /// The WebSocket that probed is gone, or took too long: the session goes on polling.
    pub fn handle_probe_gone(&mut self) {
        if let Some(polling) = &mut self.polling {
            polling.probe = Probe::None;
        }
    }

    /// A packet on the WebSocket that probes ("Upgrade"); anything but `2probe` and then `5` ends it.
    pub fn handle_probe_packet(
        &mut self,
        packet: Packet<'_>,
        now_ms: u64,
        config: &Config,
        out: &mut Outputs,
    ) {
        self.handle_time(now_ms, config, out);
        let Some(polling) = self.polling.as_mut().filter(|polling| polling.probe != Probe::None) else {
            return;
        };
        match (packet, polling.probe) {
            (Packet::Ping("probe"), _) => {
                polling.probe = Probe::Answered;
                out.push(Output::Probe(Outgoing::PROBE_ANSWER));
                if polling.poll && polling.queue.is_empty() {
                    polling.queue.push(Outgoing::NOOP);
                }
                self.flush(out);
            }
            (Packet::Upgrade, Probe::Answered) if self.phase == Phase::Lingering => self.say_rest(out),
            (Packet::Upgrade, Probe::Answered) => self.upgrade(out),
            _ => {
                polling.probe = Probe::None;
                out.push(Output::EndProbe);
            }
        }
    }

    /// What waited for a poll leaves on the WebSocket, before anything that comes later.
    fn upgrade(&mut self, out: &mut Outputs) {
        let Some(polling) = self.polling.take() else { return };
        if polling.poll {
            out.push(Output::Answer(Payload::of(Outgoing::NOOP)));
        }
        out.push(Output::Upgraded);
        out.extend(polling.queue.into_packets().map(Output::Frame));
    }

    /// Sends a packet, or keeps it for a poll: [`Session::flush`] answers one that waits already. A client
    /// that polls too slowly is let go.
    pub fn push(&mut self, packet: Outgoing, config: &Config, out: &mut Outputs) {
        if let Some(polling) = &self.polling
            && (polling.queue.packets() >= config.queue_packets_max
                || polling.queue.body_bytes() + packet.held_bytes() > config.queue_bytes_max)
            && self.ended.is_none()
        {
            return self.end(CloseReason::SlowConsumer, out);
        }
        self.push_unbounded(packet, out);
    }

    /// [`Session::push`] without the limit: for a page of a backlog, sent only when nothing waits.
    pub fn push_unbounded(&mut self, packet: Outgoing, out: &mut Outputs) {
        if self.ended.is_some() {
            return;
        }
        match &mut self.polling {
            Some(polling) => polling.queue.push(packet),
            None => out.push(Output::Frame(packet)),
        }
    }

    /// Answers a poll that waits with all there is: called once everything of one turn was pushed.
    pub fn flush(&mut self, out: &mut Outputs) {
        if let Some(polling) =
            self.polling.as_mut().filter(|polling| polling.poll && !polling.queue.is_empty())
        {
            polling.poll = false;
            out.push(Output::Answer(std::mem::take(&mut polling.queue)));
        }
    }

    /// Ends the session from this side: what was pushed and a `close` packet are left for polls.
    pub fn close(&mut self, reason: CloseReason, now_ms: u64, config: &Config, out: &mut Outputs) {
        if self.ended.is_none() {
            self.linger(Outgoing::CLOSE, reason, now_ms, config, out);
        }
    }

    /// The client said `close`. A poll that waits, or that was sent at the same time, ends with a `noop`.
    fn end_by_peer(&mut self, now_ms: u64, config: &Config, out: &mut Outputs) {
        if let Some(polling) = &mut self.polling {
            polling.queue = Payload::new();
        }
        self.linger(Outgoing::NOOP, CloseReason::PeerClosed, now_ms, config, out);
    }

    fn linger(
        &mut self,
        last: Outgoing,
        reason: CloseReason,
        now_ms: u64,
        config: &Config,
        out: &mut Outputs,
    ) {
        self.ended = Some(reason);
        self.phase = Phase::Lingering;
        self.deadline_ms = now_ms + config.ping_timeout_ms;
        let polls = self.is_polled();
        let mut moves = false;
        match &mut self.polling {
            Some(polling) => {
                polling.last = Some(last);
                moves = polling.probe == Probe::Answered;
            }
            None => self.vanish(out),
        }
        if polls {
            self.say_last(out);
        }
        // A client whose probe was answered polls no more, and looks for what is left on its WebSocket.
        if !moves {
            self.end_probe(out);
        }
        out.push(Output::Ended(reason));
    }

    /// Answers the poll that waits with what was pushed, or if that is all said, with the last word. The two
    /// are not one answer: a client library acts on `close` before it looks at the messages that came with it.
    fn say_last(&mut self, out: &mut Outputs) {
        let Some(polling) = &mut self.polling else { return };
        if polling.queue.is_empty() {
            out.extend(polling.last.take().map(|last| Output::Answer(Payload::of(last))));
            self.vanish(out);
        } else {
            self.flush(out);
        }
    }

    /// The same on the WebSocket of a client that moved there too late.
    fn say_rest(&mut self, out: &mut Outputs) {
        let Some(polling) = &mut self.polling else { return };
        if std::mem::take(&mut polling.poll) {
            out.push(Output::Answer(Payload::of(Outgoing::NOOP)));
        }
        let rest = std::mem::take(&mut polling.queue).into_packets().chain(polling.last.take());
        out.extend(rest.map(Output::Probe));
        self.vanish(out);
    }

    /// Ends the session at once: it cannot be talked to any more.
    fn end(&mut self, reason: CloseReason, out: &mut Outputs) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason);
        self.broken = true;
        if self.is_polled() {
            out.push(Output::Answer(Payload::of(Outgoing::CLOSE)));
        }
        self.end_probe(out);
        out.push(Output::Ended(reason));
        self.vanish(out);
    }

    fn end_probe(&mut self, out: &mut Outputs) {
        if let Some(polling) = self.polling.as_mut().filter(|polling| polling.probe != Probe::None) {
            polling.probe = Probe::None;
            out.push(Output::EndProbe);
        }
    }

    /// Nothing is left to say, on a WebSocket that probes neither.
    fn vanish(&mut self, out: &mut Outputs) {
        self.end_probe(out);
        self.polling = None;
        self.phase = Phase::Gone;
    }
}

#[cfg(test)]
mod tests;

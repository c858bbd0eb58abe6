//! One session (EIO "Protocol"): heartbeat, long polling with one GET and one POST at a time, the upgrade to
//! a WebSocket, and every way it ends. It owns neither socket nor clock: each input carries the time, and
//! actions are appended to the caller's list of [`Output`]s.
//!
//! Invariants: [`Output::Answer`] is emitted only for the one pending poll; [`Output::Ended`] is emitted
//! once, and no input of the client has an effect after it; the queue for polls is bounded, except for
//! `push_unbounded`. On a WebSocket, where nearly all sessions spend their lives, a session takes 24 bytes
//! and no heap; callers may then write frames themselves, [`Session::push`] is for polling sessions.
//!
//! An ended session may still hold packets for the next polls: keep it until [`Session::is_gone`].

use noroshi_types::CloseReason;

use super::handshake::Config;
use super::packet::{Data, Outgoing, Packet, PacketError};
use super::payload::Payload;
use super::request::RequestError;

/// Actions for the owner of the connections, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Answer the pending poll.
    Answer(Payload),
    /// Send on the session's WebSocket.
    Frame(Outgoing),
    /// Send on the probing WebSocket.
    Probe(Outgoing),
    /// The probing WebSocket becomes the session's WebSocket.
    Upgraded,
    /// Close the probing WebSocket; the session continues without it.
    EndProbe,
    /// The session ended: close its WebSocket, if any, and notify the layer above.
    Ended(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A ping is due at the deadline.
    Quiet,
    /// The pong is due at the deadline.
    Pinged,
    /// Ended, but holds packets for polls before the deadline.
    Lingering,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    /// A WebSocket connected.
    Open,
    /// The probe was answered. Polls end at once, since the client stops polling.
    Answered,
}

/// The state of a session while it polls.
#[derive(Debug)]
struct Polling {
    queue: Payload,
    /// A GET is pending.
    poll: bool,
    /// A POST is in progress.
    post: bool,
    probe: Probe,
    /// The last packet of a lingering session, sent when the queue is empty.
    last: Option<Outgoing>,
}

#[derive(Debug)]
pub struct Session {
    deadline_ms: u64,
    polling: Option<Box<Polling>>,
    phase: Phase,
    ended: Option<CloseReason>,
    /// Ended by a protocol error or a timeout, so a request in progress is rejected.
    broken: bool,
}

// Together with the conversation above, it has 64 bytes in a connection.
const _: () = assert!(size_of::<Session>() <= 24);

type Outputs = Vec<Output>;

impl Session {
    /// Starts a session on a WebSocket. The first ping may be early, to spread the pings of many sessions.
    pub fn websocket(first_ping_at_ms: u64) -> Self {
        Self { deadline_ms: first_ping_at_ms, polling: None, phase: Phase::Quiet, ended: None, broken: false }
    }

    /// Starts a session with long polling; the caller answers the GET that opened it.
    pub fn polling(first_ping_at_ms: u64) -> Self {
        let polling =
            Polling { queue: Payload::new(), poll: false, post: false, probe: Probe::None, last: None };
        Self { polling: Some(Box::new(polling)), ..Self::websocket(first_ping_at_ms) }
    }

    /// Whether frames go to a WebSocket.
    pub fn is_websocket(&self) -> bool {
        self.polling.is_none() && self.phase != Phase::Gone
    }

    /// Whether nothing remains of the session, so that its id is unknown from now on.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Whether a poll is pending.
    pub fn is_polled(&self) -> bool {
        self.polling.as_ref().is_some_and(|polling| polling.poll)
    }

    /// Bytes queued for a poll.
    pub fn queued_bytes(&self) -> usize {
        self.polling.as_ref().map_or(0, |polling| polling.queue.body_bytes())
    }

    /// The latest time for the next call of [`Session::handle_time`].
    pub fn deadline_ms(&self) -> Option<u64> {
        (self.phase != Phase::Gone).then_some(self.deadline_ms)
    }

    /// Sends pings and detects timeouts. Every other input does the same first, so coarse timers of the
    /// caller do not extend a client's deadline.
    pub fn handle_time(&mut self, now_ms: u64, config: &Config, out: &mut Outputs) {
        if self.phase == Phase::Quiet && now_ms >= self.deadline_ms {
            self.phase = Phase::Pinged;
            self.deadline_ms += config.ping_timeout_ms;
            if self.polling.as_ref().is_none_or(|polling| polling.poll) {
                // A delayed ping is the server's fault: the client keeps half of the time for its answer.
                self.deadline_ms = self.deadline_ms.max(now_ms + config.ping_timeout_ms / 2);
            }
            self.push_unbounded(Outgoing::PING, out);
            self.flush(out);
        }
        if now_ms >= self.deadline_ms {
            match self.phase {
                Phase::Pinged => self.end(CloseReason::PingTimeout, out),
                Phase::Lingering => self.finish(out),
                Phase::Quiet | Phase::Gone => {}
            }
        }
    }

    /// Handles a GET. `Ok`: it is pending until an [`Output::Answer`], which `out` may already contain. If an
    /// error is returned, an answer in `out` is for the previous GET.
    pub fn handle_poll(
        &mut self,
        now_ms: u64,
        config: &Config,
        out: &mut Outputs,
    ) -> Result<(), RequestError> {
        self.handle_time(now_ms, config, out);
        match (self.phase, &mut self.polling) {
            (Phase::Gone, _) => Err(RequestError::UnknownSid),
            (_, None) => Err(RequestError::BadRequest), // upgraded to a WebSocket
            (_, Some(polling)) if polling.poll => {
                // "Receiving data": an error status, and the session is closed.
                self.end(CloseReason::BadMessage, out);
                Err(RequestError::BadRequest)
            }
            (phase, Some(polling)) => {
                polling.poll = true;
                match phase {
                    Phase::Lingering => self.answer_last(out),
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

    /// The client disconnected while its GET was pending.
    pub fn handle_poll_disconnect(&mut self, out: &mut Outputs) {
        if let Some(polling) = &mut self.polling {
            polling.poll = false;
            self.end(CloseReason::PeerReset, out);
        }
    }

    /// Handles a POST; its packets follow through [`Session::handle_packet`], then [`Session::end_post`].
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

    /// The body of a POST ended or was invalid. `Ok` is answered with `ok`.
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
        // A POST that led to an orderly end succeeded.
        match self.broken {
            false => Ok(()),
            true => Err(RequestError::BadRequest),
        }
    }

    /// The client disconnected during a POST.
    pub fn handle_post_disconnect(&mut self, out: &mut Outputs) {
        if self.polling.is_some() {
            self.end(CloseReason::PeerReset, out);
        }
    }

    /// Handles a packet from a POST or the session's WebSocket. Returns its data for the layer above.
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
            // An unsolicited pong has no effect.
            Packet::Pong(_) | Packet::Noop => {}
            Packet::Close => self.end_by_peer(now_ms, config, out),
            // "Heartbeat", "Handshake", "Upgrade": sent by servers only, or at the wrong time.
            Packet::Ping(_) | Packet::Open(_) | Packet::Upgrade => self.end(CloseReason::BadMessage, out),
        }
        None
    }

    /// The session's WebSocket ended without a `close` packet.
    pub fn handle_websocket_disconnect(&mut self, reason: CloseReason, out: &mut Outputs) {
        if self.is_websocket() {
            self.end(reason, out);
        }
    }

    /// Handles a WebSocket that carries this session's id. If it is not accepted, its handshake is still
    /// completed before it is closed ("WebSocket": at most one per session).
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

    /// The probing WebSocket disconnected or timed out: the session continues polling.
    pub fn handle_probe_disconnect(&mut self) {
        if let Some(polling) = &mut self.polling {
            polling.probe = Probe::None;
        }
    }

    /// Handles a packet on the probing WebSocket ("Upgrade"): only `2probe` followed by `5` is valid.
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
            (Packet::Upgrade, Probe::Answered) if self.phase == Phase::Lingering => self.send_rest(out),
            (Packet::Upgrade, Probe::Answered) => self.upgrade(out),
            _ => {
                polling.probe = Probe::None;
                out.push(Output::EndProbe);
            }
        }
    }

    /// Sends the queued packets on the WebSocket, before anything newer.
    fn upgrade(&mut self, out: &mut Outputs) {
        let Some(polling) = self.polling.take() else { return };
        if polling.poll {
            out.push(Output::Answer(Payload::of(Outgoing::NOOP)));
        }
        out.push(Output::Upgraded);
        out.extend(polling.queue.into_packets().map(Output::Frame));
    }

    /// Sends a packet, or queues it for a poll; [`Session::flush`] answers a pending poll. Closes the session
    /// of a client that polls too slowly.
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

    /// [`Session::push`] without the limit: for one page of a backlog, only while the queue is empty.
    pub fn push_unbounded(&mut self, packet: Outgoing, out: &mut Outputs) {
        if self.ended.is_some() {
            return;
        }
        match &mut self.polling {
            Some(polling) => polling.queue.push(packet),
            None => out.push(Output::Frame(packet)),
        }
    }

    /// Answers a pending poll with the whole queue. Call it once after all pushes of a turn.
    pub fn flush(&mut self, out: &mut Outputs) {
        if let Some(polling) =
            self.polling.as_mut().filter(|polling| polling.poll && !polling.queue.is_empty())
        {
            polling.poll = false;
            out.push(Output::Answer(std::mem::take(&mut polling.queue)));
        }
    }

    /// Ends the session from the server's side: queued packets and a `close` packet remain for polls.
    pub fn close(&mut self, reason: CloseReason, now_ms: u64, config: &Config, out: &mut Outputs) {
        if self.ended.is_none() {
            self.linger(Outgoing::CLOSE, reason, now_ms, config, out);
        }
    }

    /// The client sent `close`. A pending poll, or one sent at the same time, is answered with a `noop`.
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
            None => self.finish(out),
        }
        if polls {
            self.answer_last(out);
        }
        // A client whose probe was answered stops polling and expects the remaining packets on its WebSocket.
        if !moves {
            self.end_probe(out);
        }
        out.push(Output::Ended(reason));
    }

    /// Answers the pending poll with the queue, or with the last packet if the queue is empty. They are
    /// separate responses, because a client library acts on `close` before it reads messages of the same
    /// payload.
    fn answer_last(&mut self, out: &mut Outputs) {
        let Some(polling) = &mut self.polling else { return };
        if polling.queue.is_empty() {
            out.extend(polling.last.take().map(|last| Output::Answer(Payload::of(last))));
            self.finish(out);
        } else {
            self.flush(out);
        }
    }

    /// Sends the remaining packets on the WebSocket of a client that upgraded too late.
    fn send_rest(&mut self, out: &mut Outputs) {
        let Some(polling) = &mut self.polling else { return };
        if std::mem::take(&mut polling.poll) {
            out.push(Output::Answer(Payload::of(Outgoing::NOOP)));
        }
        let rest = std::mem::take(&mut polling.queue).into_packets().chain(polling.last.take());
        out.extend(rest.map(Output::Probe));
        self.finish(out);
    }

    /// Ends the session immediately: the client cannot receive anything more.
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
        self.finish(out);
    }

    fn end_probe(&mut self, out: &mut Outputs) {
        if let Some(polling) = self.polling.as_mut().filter(|polling| polling.probe != Probe::None) {
            polling.probe = Probe::None;
            out.push(Output::EndProbe);
        }
    }

    /// Nothing remains to be sent, including on a probing WebSocket.
    fn finish(&mut self, out: &mut Outputs) {
        self.end_probe(out);
        self.polling = None;
        self.phase = Phase::Gone;
    }
}

#[cfg(test)]
mod tests;

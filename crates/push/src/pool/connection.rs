//! One HTTP/2 connection to a push service: the loop that takes pushes, writes them, and handles answers in the order
//! of their arrival.
//!
//! One task, one timer, one buffer each way. Each round reads what has arrived, handles it, takes as many pushes as
//! there are free streams, and writes them together; it allocates, locks and schedules nothing for a single push except
//! the push itself. The task wakes for bytes, for room in the socket, for the pool (a push, an authorization, the end),
//! and for the timer (timeouts, pings, a quota).
//!
//! However the connection ends, each of its pushes is answered or returned to the queue.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_egress::Stream;
use noroshi_egress::fetch::retry_after;
use noroshi_protocol::http2::{self, Event, Field, Head, Headers, Key, code};
use slab::Slab;
use smallvec::SmallVec;
use tokio::io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;

use super::growth::Place;
use super::pending::Pending;
use super::verdict::{InFlight, Next, prepare, resend, settle};
use super::{Pool, Take, wall_clock};
use crate::exchange::Response;
use crate::push::Reason;

mod health;

/// Answers of push services are a few hundred bytes.
const HTTP2: http2::Config = http2::Config {
    stream_window: 64 << 10,
    // 4,096 streams of 256 B, twice.
    connection_window: 2 << 20,
    response_body_bytes_max: 16 << 10,
    header_list_bytes_max: 16 << 10,
};
/// A server that a client named may start a response on each stream and finish none; its bodies are not read. 1,500
/// streams then hold at most 13 MiB instead of 48.
const HTTP2_OF_STRANGERS: http2::Config =
    http2::Config { response_body_bytes_max: 1 << 10, header_list_bytes_max: 8 << 10, ..HTTP2 };
/// The most that rustls returns of one record (RFC 8446 §5.1).
const READ_BYTES: usize = 16 << 10;
/// Reads before their answers are handled and their streams are reused.
const READS_MAX: usize = 16;
/// Pushes taken under one lock.
const BATCH_MAX: usize = 64;
/// Unsent bytes at which no more pushes are taken: four TLS records.
const BACKLOG_BYTES_MAX: usize = 64 << 10;
/// How long the peer may take to receive our GOAWAY.
const FAREWELL: Duration = Duration::from_secs(1);
/// A connection that closes this soon without an answer counts as rejected.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

pub(super) struct Connection {
    pool: Arc<Pool>,
    /// Its id in the pool, once it is open.
    id: u32,
    stream: Stream,
    http: http2::Connection,
    /// By stream.
    in_flight: Slab<InFlight>,
    /// The value of `in_flight` that the pool knows.
    counted: usize,
    read_buffer: Box<[u8]>,
    /// How much of the output the socket accepted.
    written: usize,
    batch: Vec<Pending>,
    again: Vec<Pending>,
    /// Whether more than one stream is allowed: with token authentication not before the first authorized answer.
    authorized: bool,
    /// The number of streams that we open; smaller after the peer rejected some.
    streams: usize,
    sent: u64,
    answered: u64,
    opened_at: Instant,
    /// Timed-out requests since the last answer.
    timeouts_in_a_row: u32,
    received_at: Instant,
    used_at: Instant,
    pinged_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    tick_at: Instant,
    /// Nothing may be sent before this time.
    wait_until: Option<Instant>,
    /// Accepts no new push, and why; closes when the open ones are answered.
    retiring: Option<Reason>,
    /// The socket or the peer's HTTP has ended.
    lost: Option<Reason>,
    /// We close it regardless of open streams.
    aborted: Option<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    All,
    /// The socket is full.
    Some,
    Failed,
}

impl Connection {
    pub(super) fn new(pool: Arc<Pool>, stream: Stream) -> Self {
        let now = Instant::now();
        let streams = pool.account.context.config.streams_max.max(1);
        let strangers = pool.account.has_origins_from_devices();
        let mut connection = Self {
            id: 0,
            authorized: !pool.account.client.one_until_authorised(),
            stream,
            http: http2::Connection::new(if strangers { HTTP2_OF_STRANGERS } else { HTTP2 }),
            in_flight: Slab::new(),
            counted: 0,
            read_buffer: vec![0; READ_BYTES].into(),
            written: 0,
            batch: Vec::with_capacity(BATCH_MAX),
            again: Vec::new(),
            streams,
            sent: 0,
            answered: 0,
            opened_at: now,
            timeouts_in_a_row: 0,
            received_at: now,
            used_at: now,
            pinged_at: None,
            timer: Box::pin(tokio::time::sleep_until(now.into())),
            tick_at: now,
            wait_until: None,
            retiring: None,
            lost: None,
            aborted: None,
            pool,
        };
        connection.limit();
        connection
    }

    /// Reads until the peer's first SETTINGS. The caller sets the timeout.
    pub(super) async fn settings_received(&mut self) -> Result<(), Reason> {
        poll_fn(|cx| {
            loop {
                let written = self.write(cx);
                let more = self.read(cx);
                if written == Written::Failed {
                    self.lost.get_or_insert("connection_lost");
                }
                while let Some(event) = self.http.poll_event() {
                    match event {
                        Event::SettingsChanged => return Poll::Ready(Ok(())),
                        Event::GoAway { debug, .. } => {
                            return Poll::Ready(Err(self.pool.account.client.goaway(&debug)));
                        }
                        _ => {}
                    }
                }
                match self.lost {
                    Some(reason) => return Poll::Ready(Err(reason)),
                    None if more => {}
                    None => return Poll::Pending,
                }
            }
        })
        .await
    }

    pub(super) async fn run(mut self: Box<Self>, id: u32) {
        self.id = id;
        let _place = Place { pool: self.pool.clone(), id };
        let reason = poll_fn(|cx| self.poll(cx)).await;
        let refused = self.lost.is_some()
            && self.answered == 0
            && (self.sent > 0 || self.opened_at.elapsed() < SETTLED_AFTER);
        self.pool.retire(id, refused.then_some(reason));
        let pool = self.pool.clone();
        pool.account.counters.connection_closed(reason);
        for in_flight in self.in_flight.drain() {
            in_flight.unanswered(&pool, reason);
        }
        self.count();
        if self.lost.is_none() {
            self.http.go_away();
        }
        let farewell = async {
            let ready_unless_blocked =
                |written| if written == Written::Some { Poll::Pending } else { Poll::Ready(()) };
            poll_fn(|cx| ready_unless_blocked(self.write(cx))).await;
            let _ = self.stream.shutdown().await;
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    /// Repeats reading, handling, taking and writing until nothing is left to do. Ready with the reason when the
    /// connection ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Reason> {
        loop {
            let unread = self.read(cx);
            self.settle();
            let unsent = self.lost.is_none() && self.fill(cx);
            let written = self.write(cx);
            if written == Written::Failed {
                // Handles what it sent before it closed.
                self.read(cx);
                self.settle();
                self.lost.get_or_insert("connection_lost");
            }
            let ticked = self.poll_timer(cx);
            self.count();
            if let Some(reason) = self.lost.or(self.aborted) {
                return Poll::Ready(reason);
            }
            if let Some(reason) = self.retiring
                && self.in_flight.is_empty()
            {
                return Poll::Ready(reason);
            }
            if !(unread || ticked || (unsent && written == Written::All)) {
                return Poll::Pending;
            }
        }
    }

    /// True if more may be readable at once.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..READS_MAX {
            if self.lost.is_some() {
                return false;
            }
            let mut buffer = ReadBuf::new(&mut self.read_buffer);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => self.lost = Some("connection_lost"),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => self.lost = Some("connection_lost"),
                Poll::Ready(Ok(())) => {
                    self.received_at = Instant::now();
                    if let Err(error) = self.http.receive(buffer.filled()) {
                        tracing::warn!(origin = %self.pool.origin(), %error, "a push service violated the protocol");
                        self.lost = Some("protocol_error");
                    }
                }
            }
        }
        true
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Written {
        let output = self.http.output();
        while self.written < output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &output[self.written..]) {
                Poll::Pending => {
                    output.drain(..self.written);
                    self.written = 0;
                    return Written::Some;
                }
                Poll::Ready(Ok(n)) if n > 0 => self.written += n,
                Poll::Ready(_) => return Written::Failed,
            }
        }
        self.written = 0;
        match output.capacity() > 4 * BACKLOG_BYTES_MAX {
            true => *output = Vec::new(),
            false => output.clear(),
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => Written::Some,
            Poll::Ready(Ok(())) => Written::All,
            Poll::Ready(Err(_)) => Written::Failed,
        }
    }

    /// Handles answers and other events.
    fn settle(&mut self) {
        let mut now = None;
        while let Some(event) = self.http.poll_event() {
            let now = *now.get_or_insert_with(Instant::now);
            match event {
                Event::Response { key, status, headers, body, .. } => {
                    self.answer(key, status, &headers, &body, now);
                }
                Event::Reset { key, code, processed } => self.reset(key, code, processed),
                Event::GoAway { code, debug } => {
                    let reason = self.pool.account.client.goaway(&debug);
                    let (origin, code) = (self.pool.origin(), code::name(code));
                    tracing::info!(%origin, code, reason, "a push service closes a connection");
                    // Before any answer: counts as rejected.
                    let failed = (self.answered == 0).then_some(reason);
                    self.retire_as(reason, failed);
                }
                Event::Pong => self.pinged_at = None,
                Event::SettingsChanged => {}
            }
        }
        self.pool.put_back(&mut self.again);
    }

    fn answer(&mut self, key: Key, status: u16, headers: &Headers, body: &Bytes, now: Instant) {
        let Some(in_flight) = self.in_flight.try_remove(key.0 as usize) else { return };
        self.answered += 1;
        self.timeouts_in_a_row = 0;
        if self.answered == 1 {
            self.pool.answered_first();
        }
        let retry_after = headers.get("retry-after").and_then(retry_after);
        let header =
            self.pool.account.client.answer_header().and_then(|name| headers.get(name)).unwrap_or_default();
        let response = Response { status, retry_after, header, body, now: wall_clock() };
        match settle(&self.pool, in_flight, &response, now, &mut self.again) {
            Next::Continue if self.authorized => {}
            Next::Continue => {
                self.authorized = true;
                self.limit();
            }
            Next::Unauthorized => {}
            Next::Retire(reason) => self.retire(reason),
        }
    }

    fn reset(&mut self, key: Key, code: u32, processed: bool) {
        let Some(in_flight) = self.in_flight.try_remove(key.0 as usize) else { return };
        if processed {
            return in_flight.unanswered(&self.pool, "stream_reset");
        }
        if code == code::REFUSED_STREAM && !self.http.is_closing() {
            // The peer rejects more streams than this, whatever its SETTINGS say.
            self.streams = self.http.open().clamp(1, self.streams);
            self.limit();
        }
        let reason = if self.http.is_closing() { "goaway" } else { "refused_stream" };
        resend(&self.pool, in_flight.pending, reason, &mut self.again);
    }

    /// Takes as many pushes as there are free streams. True if more may be taken after these are written.
    fn fill(&mut self, cx: &mut Context<'_>) -> bool {
        self.wait_until = None;
        loop {
            if self.http.is_closing() {
                self.retire("closing");
            }
            if self.retiring.is_some() {
                return false;
            }
            if self.http.output().len() - self.written >= BACKLOG_BYTES_MAX {
                return true;
            }
            let room = self.http.room();
            if room == 0 {
                match self.pool.queued() {
                    0 if self.pool.is_ended() => self.retire("closed"),
                    0 => {}
                    _ => self.pool.grow(),
                }
                return false;
            }
            let account = &self.pool.account;
            let (authorization, room) = match account.authorization(self.pool.origin()) {
                Ok(authorization) => (authorization, room.min(BATCH_MAX)),
                Err(until) => {
                    self.wait_until = Some(until);
                    (None, 0)
                }
            };
            match self.pool.take(self.id, room, cx.waker(), &mut self.batch) {
                Take::Some { probe } => self.send(authorization.as_ref(), probe),
                Take::Parked => {
                    // Without a push to send, no timer is needed.
                    self.wait_until = None;
                    return false;
                }
                Take::Wait(until) => {
                    self.wait_until = Some(until);
                    return false;
                }
                Take::Close => {
                    self.retire("closed");
                    return false;
                }
            }
            if room == 0 {
                return false;
            }
        }
    }

    fn send(&mut self, authorization: Option<&Bytes>, probe: bool) {
        let now = Instant::now();
        self.used_at = now;
        let (taken, before) = (self.batch.len(), self.sent);
        for pending in self.batch.drain(..) {
            let Some(prepared) = prepare(&self.pool, pending, authorization, now) else { continue };
            let request = &prepared.request;
            let fields: SmallVec<[Field<'_>; 16]> = request
                .headers
                .iter()
                .map(|header| Field { name: header.name, value: &header.value, indexed: header.shared })
                .collect();
            let head = Head {
                method: "POST",
                authority: &self.pool.authority,
                path: &request.path,
                headers: &fields,
            };
            let slot = self.in_flight.vacant_entry();
            let written = self.http.request(Key(slot.key() as u64), &head, request.body.clone());
            drop(fields);
            match written {
                Ok(()) => {
                    self.sent += 1;
                    slot.insert(InFlight::new(prepared, now, authorization));
                }
                Err(http2::Closed) => self.again.push(prepared.pending),
            }
        }
        let sent = (self.sent - before) as usize;
        self.pool.account.counters.sent.inc_by(sent as u64);
        self.pool.account.unsent(taken - sent, probe && sent == 0);
        self.pool.put_back(&mut self.again);
    }

    /// How many streams we open at most.
    fn limit(&mut self) {
        self.http.limit(Some(if self.authorized { self.streams } else { 1 }));
    }

    fn retire(&mut self, reason: Reason) {
        self.retire_as(reason, None);
    }

    fn retire_as(&mut self, reason: Reason, failed: Option<Reason>) {
        if self.retiring.is_none() {
            self.retiring = Some(reason);
            self.pool.retire(self.id, failed);
        }
    }

    fn count(&mut self) {
        if self.counted != self.in_flight.len() {
            self.pool.count_in_flight(self.counted, self.in_flight.len());
            self.counted = self.in_flight.len();
        }
    }
}

/// Corrects the pool's counts if the connection ends by a panic or with its runtime. Its pushes answer `Later` when
/// they are dropped.
impl Drop for Connection {
    fn drop(&mut self) {
        self.pool.count_in_flight(self.counted, 0);
    }
}

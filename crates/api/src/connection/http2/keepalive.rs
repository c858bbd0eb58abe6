//! Keepalive of an HTTP/2 connection: PING and its timeout, idle timeout, and the time to leave after GOAWAY.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection::handle::Handle;
use crate::connection::pool::Http2Close;
use crate::connection::serving::Http2;

/// Extra time to read what the socket holds when an acknowledgement is late: the node itself may have been slow.
const LATE_GRACE: Duration = Duration::from_millis(10);

/// Detects an unresponsive client and an idle connection.
pub(super) struct Keepalive {
    ping: PingPong,
    handle: Handle,
    idle: Duration,
    leave_timeout: Duration,
    interval: Duration,
    timeout: Duration,
    /// When the next PING is due, or the acknowledgement of the outstanding one.
    ping_at: Instant,
    is_outstanding: bool,
    /// The acknowledgement is late.
    is_late: bool,
    used_at: Instant,
    /// After GOAWAY: why it was sent, and until when new streams are served.
    pub(super) goaway: Option<(Http2Close, Instant)>,
    timer: Pin<Box<Sleep>>,
}

pub(super) enum Due {
    /// A PING was sent.
    Ping,
    Idle,
    /// The connection must close.
    Close(Http2Close),
}

impl Keepalive {
    pub(super) fn new(ping: PingPong, http2: &Http2, handle: &Handle) -> Self {
        let now = Instant::now();
        let ping_at = now + http2.ping_interval;
        Self {
            ping,
            handle: handle.clone(),
            idle: http2.idle,
            leave_timeout: http2.leave_timeout,
            interval: http2.ping_interval,
            timeout: http2.ping_timeout,
            ping_at,
            is_outstanding: false,
            is_late: false,
            used_at: now,
            goaway: None,
            timer: Box::pin(sleep_until(ping_at)),
        }
    }

    pub(super) fn set_used(&mut self) {
        self.used_at = Instant::now();
    }

    /// Keeps the first reason, unless this one is a flood.
    pub(super) fn set_goaway(&mut self, why: Http2Close) {
        let until = Instant::now() + self.leave_timeout;
        let (reason, _) = self.goaway.get_or_insert((why, until));
        if why == Http2Close::Flood {
            *reason = why;
        }
    }

    /// Whether the client's time to leave is over. `h2` accepts streams until the client acknowledges GOAWAY's PING.
    pub(super) fn is_over(&self) -> bool {
        self.goaway.is_some_and(|(_, until)| Instant::now() >= until)
    }

    /// Resolves with the next action. `is_idle`: no request is in progress. Cancel-safe.
    pub(super) async fn due(&mut self, is_idle: bool) -> Due {
        loop {
            let leave_at = match self.goaway {
                // After the last response, the client gets the same time again.
                Some((_, until)) => until.max(self.used_at + self.leave_timeout),
                None => self.used_at + self.idle,
            };
            let at = if is_idle { self.ping_at.min(leave_at) } else { self.ping_at };
            if self.timer.deadline() != at {
                self.timer.as_mut().reset(at);
            }
            let (ping, is_outstanding, timer) = (&mut self.ping, self.is_outstanding, self.timer.as_mut());
            tokio::select! {
                ponged = poll_fn(|context| ping.poll_pong(context)), if is_outstanding => {
                    if ponged.is_err() {
                        return Due::Close(Http2Close::Error);
                    }
                    self.is_outstanding = false;
                    self.ping_at = Instant::now() + self.interval;
                    continue;
                }
                () = timer => {}
            }
            let now = Instant::now();
            if is_idle && now >= leave_at {
                return self.goaway.map_or(Due::Idle, |(reason, _)| Due::Close(reason));
            }
            if now < self.ping_at {
                continue;
            }
            // A client that sends, or reads what precedes the PING, is alive.
            let was_active = self.handle.take_active();
            if self.is_outstanding && !was_active {
                if self.is_late {
                    return Due::Close(Http2Close::Unresponsive);
                }
                (self.is_late, self.ping_at) = (true, now + LATE_GRACE);
                continue;
            }
            self.is_outstanding |= self.ping.send_ping(Ping::opaque()).is_ok();
            (self.is_late, self.ping_at) = (false, now + self.timeout);
            return Due::Ping;
        }
    }
}

//! The timers of a connection: requests time out, a silent peer gets a ping and is given up, an unused connection to a
//! Web Push origin closes.

use std::task::Context;
use std::time::Instant;

use noroshi_protocol::http2::Key;
use smallvec::SmallVec;

use super::Connection;

/// A peer that answers pings but not this many requests: another connection may reach a working one.
const TIMEOUTS_MAX: u32 = 3;

impl Connection {
    /// True if the timer fired and something was done.
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let due = self.wait_until.map_or(self.tick_at, |until| until.min(self.tick_at));
        if self.timer.deadline().into_std() != due {
            self.timer.as_mut().reset(due.into());
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        let now = Instant::now();
        if now >= self.tick_at {
            self.tick(now);
        }
        true
    }

    /// Once a second: timeouts, the peer's health, and idle connections.
    fn tick(&mut self, now: Instant) {
        let pool = self.pool.clone();
        let config = &pool.account.context.config;
        self.tick_at = now + config.tick();
        if pool.is_aborted() {
            self.aborted = Some("drain");
            return;
        }
        if self.streams < config.streams_max {
            self.streams = (self.streams + self.streams / 4 + 1).min(config.streams_max);
            self.limit();
        }
        let late: SmallVec<[usize; 16]> = self
            .in_flight
            .iter()
            .filter(|(_, in_flight)| {
                now.saturating_duration_since(in_flight.sent_at) >= config.request_timeout
            })
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.http.cancel(Key(key as u64));
            let in_flight = self.in_flight.remove(key);
            self.timeouts_in_a_row += 1;
            in_flight.unanswered(&pool, "timeout");
        }
        if self.timeouts_in_a_row >= TIMEOUTS_MAX {
            self.retire("timeout");
        }
        pool.answer_overdue(now);
        self.check_health(now);
        // Of the many servers that clients name, few are in use at a time.
        let idle = now.saturating_duration_since(self.used_at) >= config.idle_close;
        if idle && pool.account.has_origins_from_devices() && self.in_flight.is_empty() {
            self.retire("idle");
        }
    }

    /// Pings a silent peer: soon if it owes answers, else rarely.
    fn check_health(&mut self, now: Instant) {
        let config = &self.pool.account.context.config;
        if let Some(pinged_at) = self.pinged_at {
            if self.received_at > pinged_at {
                self.pinged_at = None;
            } else if now.saturating_duration_since(pinged_at) >= config.ping_timeout {
                self.lost = Some("ping_timeout");
            }
            return;
        }
        let silence = now.saturating_duration_since(self.received_at);
        let patience = if self.in_flight.is_empty() {
            config.ping_after
        } else {
            config.ping_after.min(config.ping_timeout)
        };
        if silence >= patience {
            self.http.ping();
            self.pinged_at = Some(now);
        }
    }
}

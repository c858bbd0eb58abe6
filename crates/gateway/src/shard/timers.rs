//! Deadlines: fires timers of connections, pings, expiries and stalled sockets, and the periodic work of the shard.

use noroshi_types::CloseReason;

use crate::io::timer::ticks;
use crate::protocol::mqtt;
use crate::session::phase::{Phase, Ping};
use crate::shard::Shard;

/// How often the shard checks whether it holds far more memory than it uses.
const SHRINK_TICKS: u32 = 640;

impl Shard {
    /// Handles everything that is due.
    pub(crate) fn fire_timers(&mut self) {
        while let Some((tick, slots)) = self.io.wheel.take_due(self.now.tick) {
            if tick % SHRINK_TICKS == 0 {
                self.shrink();
            }
            for slot in slots {
                if self.connection(slot).is_some_and(|connection| connection.timer == tick) {
                    self.guard(Some(slot), |shard| shard.handle_timer(slot));
                }
            }
        }
        while let Some(slot) = self.io.precise.take_due(self.now.ms) {
            if self.connection(slot).is_some_and(|connection| connection.is_alive()) {
                self.guard(Some(slot), |shard| shard.handle_timeout(slot));
            }
        }
        if self.index == 0 && self.lifecycle.is_parked_due(self.now.ms) {
            self.guard(None, |shard| {
                let services = &shard.shared.services;
                services.of::<mqtt::Service>().handle_due(services, &shard.delivery, shard.now.wall);
            });
        }
        self.continue_drain();
    }

    /// Arms the connection's timer for its next deadline.
    pub(crate) fn arm(&mut self, slot: u32) {
        let (now, stall) = (self.now, self.shared.config.send_stall);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let mut due = connection.deadline_tick.min(connection.ping_tick);
        if connection.attachment.session.is_some() {
            let left = connection.attachment.expires_at.saturating_since(now.wall);
            due = due.min(now.tick_after(left));
        }
        if let Some(blocked_since) = connection.socket.blocked_since() {
            due = due.min(blocked_since.saturating_add(ticks(stall)).saturating_add(1));
        }
        let due = due.max(now.tick + 1);
        if due != u32::MAX && (connection.timer <= now.tick || due < connection.timer) {
            connection.timer = self.io.wheel.arm(slot, due);
        }
    }

    /// The first ping comes early by a random time, so that a storm of log-ins does not become a storm of pings.
    pub(crate) fn schedule_pings(&mut self, slot: u32) {
        let interval = self.shared.config.ping_interval;
        let early = self.jitter.draw(u64::try_from(interval.as_millis() / 2).unwrap_or_default());
        let first = interval.saturating_sub(std::time::Duration::from_millis(early));
        let tick = self.now.tick_after(first);
        if let Some(connection) = self.connection(slot) {
            connection.ping_tick = tick;
            connection.ping = Ping::None;
        }
    }

    fn handle_timer(&mut self, slot: u32) {
        let (now, stall) = (self.now, self.shared.config.send_stall);
        let late_post = self.is_late_post(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.timer = 0;
        let blocked_since = connection.socket.blocked_since();
        let stalled = blocked_since.is_some_and(|since| now.tick.saturating_sub(since) > ticks(stall));
        let expired = connection.attachment.session.is_some() && connection.attachment.expires_at <= now.wall;
        let over = connection.deadline_tick <= now.tick;
        match connection.phase {
            Phase::Dead => return,
            Phase::Closing if over || stalled => return self.abort(slot, CloseReason::PeerReset),
            Phase::Closing => {}
            Phase::Head if over => return self.time_out_head(slot),
            Phase::AwaitToken if over => self.begin_close(slot, CloseReason::AuthTimeout),
            Phase::LoggingIn if over => self.begin_close(slot, CloseReason::Overloaded),
            // Its output waits for the store ([`Shard::cork`]) and not for the peer.
            Phase::LoggingIn => {}
            Phase::Open if late_post => self.time_out_post(slot),
            _ if stalled => self.begin_close(slot, CloseReason::SlowConsumer),
            _ if expired => self.begin_close(slot, CloseReason::Expired),
            Phase::Open if over => {
                self.converse(slot, |adapter, cx| adapter.handle_deadline(cx));
            }
            _ if connection.ping_tick <= now.tick => self.handle_timeout(slot),
            _ => {}
        }
        self.arm(slot);
    }

    fn time_out_head(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.socket.is_handshaking() {
            self.shared.metrics.handshake_failures.inc();
            return self.abort(slot, CloseReason::AuthTimeout);
        }
        if self.is_idle_between_polls(slot) {
            return self.begin_close(slot, CloseReason::PeerClosed);
        }
        let detail = "the request head did not come in time";
        self.answer_problem(slot, 408, "request_timeout", detail, &[], CloseReason::AuthTimeout);
    }
}

//! The reconnect delay for each close reason.

use noroshi_types::CloseReason;

use crate::io::timer::Jitter;

/// Later for reasons that would hurt if all clients reconnected at once. `retry_after_s`: how long a client has to wait
/// whose log-in is refused for earlier failures; 0 for all others. `spread_ms`: over which a drain spreads its clients.
pub(crate) fn after_ms(reason: CloseReason, retry_after_s: u32, spread_ms: u32, jitter: &mut Jitter) -> u64 {
    match reason {
        CloseReason::RateLimited if retry_after_s > 0 => {
            u64::from(retry_after_s) * 1_000 + jitter.draw(4_000)
        }
        CloseReason::Drain => jitter.draw(u64::from(spread_ms) + 1),
        // A recheck closes sessions at a steady rate ([`crate::session::recheck`]); this spreads sessions that close at
        // once.
        CloseReason::Overloaded | CloseReason::Internal | CloseReason::RulesChanged => {
            1_000 + jitter.draw(4_000)
        }
        CloseReason::QuotaExceeded => 5_000 + jitter.draw(5_000),
        reason if reason.may_reconnect() => 500 + jitter.draw(1_000),
        _ => 0,
    }
}

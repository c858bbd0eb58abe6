//! What an answer does, over whatever version of HTTP it came: one place for the rules that all connections
//! of a credential follow.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::pending::{Pending, RETRY_AFTER};
use super::{Pool, wall_clock};
use crate::exchange::{Header, Request, Response, Verdict};
use crate::push::Reason;

/// A push certainly not processed is sent again at once so often; then it waits its turn as others do.
const RESENDS_MAX: u8 = 5;

/// A push that was sent.
pub(crate) struct InFlight {
    pub(crate) pending: Pending,
    pub(crate) sent_at: Instant,
    pub(crate) authorization: Option<Bytes>,
}

/// What the connection does after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// The authorization was not taken; the connection still has to show that one is.
    Unauthorised,
    /// Nothing new on this connection.
    Retire(Reason),
}

/// Makes the request of a push that is to be sent, or answers it.
pub(crate) fn prepare(
    pool: &Pool,
    pending: Pending,
    authorization: Option<&Bytes>,
    now: Instant,
) -> Option<(Pending, Request)> {
    let counters = &pool.account.counters;
    let time = wall_clock();
    if pending.is_expired(time) {
        pending.answer(crate::Answer::Expired, counters);
        return None;
    }
    let push = pending.push()?;
    if let Err(after) = pool.account.admit_device(&push.token, now) {
        pending.later("device_quota", after, counters);
        return None;
    }
    match pool.account.client.request(push, authorization, time) {
        Ok(mut request) => {
            if let Some(trace) = &push.trace {
                let value = Bytes::from(trace.to_string());
                request.headers.push(Header { name: "traceparent", value, shared: false });
            }
            Some((pending, request))
        }
        Err(answer) => {
            pending.answer(answer, counters);
            None
        }
    }
}

/// Answers a push by what its response means, or leaves it in `again` to be sent once more.
pub(crate) fn settle(
    pool: &Pool,
    in_flight: InFlight,
    response: &Response<'_>,
    now: Instant,
    again: &mut Vec<Pending>,
) -> Next {
    let account = &pool.account;
    let InFlight { pending, sent_at, authorization } = in_flight;
    account.counters.answer_seconds.observe(now.saturating_duration_since(sent_at));
    match account.client.read(response) {
        Verdict::Answer(answer) => {
            account.worked(sent_at);
            pending.answer(answer, &account.counters);
            Next::GoOn
        }
        Verdict::Unauthorized { reason } => {
            renew(pool, pending, sent_at, authorization, reason, again);
            Next::Unauthorised
        }
        Verdict::Wedged { reason } => {
            renew(pool, pending, sent_at, authorization, reason, again);
            Next::Retire(reason)
        }
        Verdict::Broken { reason } => {
            let after = account.broken(reason, sent_at);
            pending.later(reason, after, &account.counters);
            Next::Unauthorised
        }
        Verdict::Overloaded { reason, after } => {
            let after = account.overloaded(reason, after);
            pending.later(reason, after, &account.counters);
            Next::GoOn
        }
    }
}

/// Once for each push: a second refusal means the credential.
fn renew(
    pool: &Pool,
    mut pending: Pending,
    sent_at: Instant,
    used: Option<Bytes>,
    reason: Reason,
    again: &mut Vec<Pending>,
) {
    let account = &pool.account;
    let renewed =
        !pending.renewed && used.is_some_and(|used| account.client.renew(pool.origin(), &used, wall_clock()));
    if renewed {
        account.counters.renewed("refused");
        account.counters.resent(reason);
        pending.renewed = true;
        again.push(pending);
    } else {
        let after = account.broken(reason, sent_at);
        pending.later(reason, after, &account.counters);
    }
}

/// The peer certainly did nothing with it.
pub(crate) fn resend(pool: &Arc<Pool>, mut pending: Pending, reason: Reason, again: &mut Vec<Pending>) {
    let counters = &pool.account.counters;
    if pending.resends < RESENDS_MAX {
        counters.resent(reason);
        pending.resends += 1;
        again.push(pending);
    } else {
        pending.later(reason, RETRY_AFTER, counters);
    }
}

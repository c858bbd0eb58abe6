//! Applies a verdict, for every version of HTTP: the rules that all connections of a credential follow.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::pending::{Pending, RETRY_AFTER};
use super::{Pool, wall_clock};
use crate::exchange::{Header, Request, Response, Verdict};
use crate::push::Reason;

/// How often an unprocessed push is resent at once; after that it is queued again.
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
    Continue,
    /// The authorization was rejected; the connection has to prove that one is accepted.
    Unauthorized,
    /// Accept nothing new on this connection.
    Retire(Reason),
}

/// Builds the request of a push, or answers the push.
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

/// Answers a push by the meaning of its response, or leaves it in `again` for another attempt.
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
            Next::Continue
        }
        Verdict::Unauthorized { reason } => {
            renew(pool, pending, sent_at, authorization, reason, again);
            Next::Unauthorized
        }
        Verdict::Wedged { reason } => {
            renew(pool, pending, sent_at, authorization, reason, again);
            Next::Retire(reason)
        }
        Verdict::Broken { reason } => {
            let after = account.broken(reason, sent_at);
            pending.later(reason, after, &account.counters);
            Next::Unauthorized
        }
        Verdict::Overloaded { reason, after } => {
            let after = account.overloaded(reason, after);
            pending.later(reason, after, &account.counters);
            Next::Continue
        }
    }
}

/// At most once per push: a second rejection means that the credential is invalid.
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

/// The peer certainly did not process it.
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

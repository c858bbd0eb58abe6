//! Applies a verdict, for every version of HTTP: the rules that all connections of a credential follow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_types::Timestamp;

use super::pending::Pending;
use super::{Pool, wall_clock};
use crate::attempt::{Attempt, Received, Record};
use crate::exchange::{
    BatchRequest, BatchResponse, BatchVerdict, Batches, Header, Request, Response, Verdict,
};
use crate::push::{Push, Reason};

/// How often an unprocessed push is resent at once; after that it is queued again.
const RESENDS_MAX: u8 = 5;

/// A push that was sent.
pub(crate) struct InFlight {
    pub(crate) pending: Pending,
    pub(crate) sent_at: Instant,
    pub(crate) authorization: Option<Bytes>,
    /// The time for which the request was built.
    built_at: Timestamp,
    /// For the report of the attempt, if the push wants one in any case. Few attempts fail: the request of a failed one
    /// is built again, and is the same.
    sent: Option<Box<Request>>,
}

/// A push with its request.
pub(crate) struct Prepared {
    pub(crate) pending: Pending,
    pub(crate) request: Request,
    pub(crate) built_at: Timestamp,
}

impl InFlight {
    pub(crate) fn new(prepared: Prepared, sent_at: Instant, authorization: Option<&Bytes>) -> Self {
        let Prepared { pending, request, built_at } = prepared;
        let is_kept = pending.push().is_some_and(|push| push.record == Record::All);
        let sent = is_kept.then(|| Box::new(request));
        Self { pending, sent_at, authorization: authorization.cloned(), built_at, sent }
    }

    /// Ends the attempt without a response: the push service may have processed it.
    pub(crate) fn unanswered(mut self, pool: &Pool, reason: Reason) {
        self.report(pool, None, Some(reason), Instant::now());
        let account = &pool.account;
        self.pending.later(reason, account.retry_after(), &account.counters);
    }

    fn report(&mut self, pool: &Pool, response: Option<&Response<'_>>, reason: Option<Reason>, now: Instant) {
        let Some(push) = self.pending.push().filter(|push| push.record.wants(reason)) else { return };
        let kept = self.sent.take().map(|request| *request);
        let again = || request_of(pool, push, self.authorization.as_ref(), self.built_at).ok();
        let Some(request) = kept.or_else(again) else { return };
        let took = now.saturating_duration_since(self.sent_at);
        let sent = (pool.origin().clone(), request);
        let received = response.map(|response| Received::new(response.status, response.body));
        let attempt = attempt(sent, (wall_clock(), took), received, reason);
        push.reply.to.attempted(push.reply.index, attempt);
    }
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

/// The push, unless it expired or its device reached its quota: then answers it.
fn admitted(pool: &Pool, pending: Pending, now: Instant) -> Option<Pending> {
    let counters = &pool.account.counters;
    if pending.is_expired(wall_clock()) {
        pending.answer(crate::Answer::Expired, counters);
        return None;
    }
    let push = pending.push()?;
    if let Err(after) = pool.account.admit_device(&push.token, now) {
        pending.later("device_quota", after, counters);
        return None;
    }
    Some(pending)
}

/// Builds the request of a push, or answers the push.
pub(crate) fn prepare(
    pool: &Pool,
    pending: Pending,
    authorization: Option<&Bytes>,
    now: Instant,
) -> Option<Prepared> {
    let pending = admitted(pool, pending, now)?;
    let (push, counters, built_at) = (pending.push()?, &pool.account.counters, wall_clock());
    match request_of(pool, push, authorization, built_at) {
        Ok(request) => Some(Prepared { pending, request, built_at }),
        Err(answer) => {
            pending.answer(answer, counters);
            None
        }
    }
}

fn request_of(
    pool: &Pool,
    push: &Push,
    authorization: Option<&Bytes>,
    now: Timestamp,
) -> Result<Request, crate::Answer> {
    let mut request = pool.account.client.request(push, authorization, now)?;
    if let Some(trace) = push.trace() {
        let value = Bytes::from(trace.to_string());
        request.headers.push(Header { name: "traceparent", value, shared: false });
    }
    Ok(request)
}

/// Builds one request of several pushes, as many as fit: the others go into `again`. None if all pushes are answered.
pub(crate) fn prepare_batch(
    pool: &Pool,
    batches: &dyn Batches,
    pending: Vec<Pending>,
    now: Instant,
    again: &mut Vec<Pending>,
) -> Option<(Vec<Pending>, Request)> {
    let mut pending: Vec<Pending> = pending.into_iter().filter_map(|one| admitted(pool, one, now)).collect();
    let pushes: Vec<&Push> = pending.iter().filter_map(Pending::push).collect();
    let first = pushes.first()?;
    let BatchRequest { mut request, count } = batches.request(&pushes, wall_clock());
    // Pushes of several traces have no common parent.
    let trace = first.trace().filter(|trace| pushes[..count].iter().all(|push| push.trace() == Some(*trace)));
    if let Some(trace) = trace {
        let value = Bytes::from(trace.to_string());
        request.headers.push(Header { name: "traceparent", value, shared: false });
    }
    again.extend(pending.split_off(count));
    Some((pending, request))
}

/// A request of several pushes that was sent.
pub(crate) struct BatchInFlight {
    pub(crate) pending: Vec<Pending>,
    pub(crate) sent_at: Instant,
    pub(crate) request: Request,
}

impl BatchInFlight {
    /// Ends the attempt without a response: the service may have processed it.
    pub(crate) fn unanswered(self, pool: &Pool, reason: Reason) {
        self.report(pool, None, |_| Some(reason));
        let account = &pool.account;
        let after = account.retry_after();
        self.pending.into_iter().for_each(|one| one.later(reason, after, &account.counters));
    }

    /// Reports the request to each of its pushes that wants it. `reason`: by the push's place.
    fn report(
        &self,
        pool: &Pool,
        response: Option<&BatchResponse<'_>>,
        reason: impl Fn(usize) -> Option<Reason>,
    ) {
        let (now, took) = (wall_clock(), self.sent_at.elapsed());
        let received =
            response.map(|response| Received::new(response.status, response.body.unwrap_or_default()));
        for (place, push) in self.pending.iter().enumerate().filter_map(|(i, one)| Some((i, one.push()?))) {
            let reason = reason(place);
            if push.record.wants(reason) {
                let sent = (pool.origin().clone(), self.request.clone());
                let attempt = attempt(sent, (now, took), received.clone(), reason);
                push.reply.to.attempted(push.reply.index, attempt);
            }
        }
    }
}

/// Answers the pushes of one request by the meaning of its response. What concerns the whole service counts once.
pub(crate) fn settle_batch(
    pool: &Pool,
    batches: &dyn Batches,
    in_flight: BatchInFlight,
    response: &BatchResponse<'_>,
) {
    let account = &pool.account;
    let counters = &account.counters;
    let (pending, sent_at) = (&in_flight.pending, in_flight.sent_at);
    let seconds = Instant::now().saturating_duration_since(sent_at);
    pending.iter().for_each(|_| counters.answer_seconds.observe(seconds));
    let pushes: Vec<&Push> = pending.iter().filter_map(Pending::push).collect();
    let verdict = batches.read(&pushes, response);
    in_flight.report(pool, Some(response), |place| match &verdict {
        BatchVerdict::Each(answers) => answers.get(place).and_then(crate::Answer::reason),
        BatchVerdict::All(verdict) => verdict.reason(),
    });
    let pending = in_flight.pending;
    let (reason, after) = match verdict {
        BatchVerdict::Each(answers) => {
            account.worked(sent_at);
            pending.into_iter().zip(answers).for_each(|(one, answer)| one.answer(answer, counters));
            return;
        }
        BatchVerdict::All(Verdict::Answer(answer)) => {
            account.worked(sent_at);
            pending.into_iter().for_each(|one| one.answer(answer.clone(), counters));
            return;
        }
        BatchVerdict::All(Verdict::Overloaded { reason, after }) => {
            (reason, account.overloaded(reason, after))
        }
        // Such services have no authorization to renew.
        BatchVerdict::All(
            Verdict::Broken { reason } | Verdict::Unauthorized { reason } | Verdict::Wedged { reason },
        ) => (reason, account.broken(reason, sent_at)),
    };
    pending.into_iter().for_each(|one| one.later(reason, after, counters));
}

/// Answers a push by the meaning of its response, or leaves it in `again` for another attempt.
pub(crate) fn settle(
    pool: &Pool,
    mut in_flight: InFlight,
    response: &Response<'_>,
    now: Instant,
    again: &mut Vec<Pending>,
) -> Next {
    let account = &pool.account;
    let verdict = account.client.read(response);
    in_flight.report(pool, Some(response), verdict.reason(), now);
    let InFlight { pending, sent_at, authorization, .. } = in_flight;
    account.counters.answer_seconds.observe(now.saturating_duration_since(sent_at));
    match verdict {
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
        pending.later(reason, pool.account.retry_after(), counters);
    }
}

/// An attempt that ends now, after `took`.
fn attempt(
    (origin, request): (Arc<str>, Request),
    (now, took): (Timestamp, Duration),
    response: Option<Received>,
    reason: Option<Reason>,
) -> Attempt {
    let shown = |header: Header| (!header.is_secret()).then_some((header.name, header.value));
    Attempt {
        sent_at: Timestamp(now.0.saturating_sub(took.as_millis() as u64)),
        took,
        origin,
        path: request.path,
        headers: request.headers.into_iter().filter_map(shown).collect(),
        body: request.readable.unwrap_or(request.body),
        response,
        reason,
    }
}

//! Interprets answers of a Web Push service: maps the status to the next action (RFC 8030, RFC 8292). Pure.
//!
//! Anyone can run a push service and register a device with it, so an answer concerns only its own push: no server may
//! slow down or stop the app's pushes to others. Bodies differ by service and are ignored.

use std::time::Duration;

use crate::exchange::{Response, Verdict};
use crate::push::{Answer, Reason};

/// If the service names no time: the rate limit of one push resource.
const RATE_PAUSE: Duration = Duration::from_secs(60);
/// The same for a server that failed. The caller waits longer after each attempt.
const FAILURE_PAUSE: Duration = super::RETRY_AFTER;
/// Tokens are renewed hours before they expire, so a rejected one needs an operator or a corrected clock.
const UNAUTHORIZED_PAUSE: Duration = Duration::from_secs(15 * 60);

pub(super) fn read(response: &Response<'_>) -> Verdict {
    Verdict::Answer(answer(response))
}

fn answer(response: &Response<'_>) -> Answer {
    let later = |reason, pause| Answer::Later { reason, after: response.asked_to_wait().unwrap_or(pause) };
    let refused = |reason| Answer::Refused { reason };
    let gone = |reason: Reason| Answer::Gone { reason, since: None };
    match response.status {
        // RFC 8030 §5: 201, or 202 if a receipt was requested. Some services answer 200 or 204.
        200..=299 => Answer::Accepted,
        // The endpoint is a capability; the browser has to report where it moved.
        300..=399 => refused("redirect"),
        400 => refused("bad_request"),
        // RFC 8292 §4.2: the service accepts no such token.
        401 => later("unauthorized", UNAUTHORIZED_PAUSE),
        // RFC 8292 §4.2: the subscription is restricted to another key.
        403 => Answer::Suspect { reason: "forbidden" },
        // RFC 8030 §7.3: "An expired subscription: 404."
        404 => gone("not_found"),
        // Most services use this status instead.
        410 => gone("gone"),
        408 => later("request_timeout", FAILURE_PAUSE),
        413 => refused("payload_too_large"),
        // RFC 8030 §8.4: the rate limit of one push resource.
        429 => later("too_many_requests", RATE_PAUSE),
        500..=599 => later("server_error", FAILURE_PAUSE),
        _ => refused("other"),
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Timestamp;

    use super::*;

    fn check(status: u16, retry_after: Option<u64>, expected: Verdict) {
        let retry_after = retry_after.map(Duration::from_secs);
        let response =
            Response { status, retry_after, header: b"", body: b"{\"errno\":1}", now: Timestamp(0) };
        assert_eq!(read(&response), expected, "{status}");
    }

    #[test]
    fn each_status_has_its_verdict() {
        let refused = |reason| Verdict::Answer(Answer::Refused { reason });
        let later =
            |reason, seconds| Verdict::Answer(Answer::Later { reason, after: Duration::from_secs(seconds) });
        for status in [200, 201, 202, 204] {
            check(status, None, Verdict::Answer(Answer::Accepted));
        }
        check(400, None, refused("bad_request"));
        check(401, None, later("unauthorized", 900));
        check(403, None, Verdict::Answer(Answer::Suspect { reason: "forbidden" }));
        check(404, None, Verdict::Answer(Answer::Gone { reason: "not_found", since: None }));
        check(410, None, Verdict::Answer(Answer::Gone { reason: "gone", since: None }));
        check(413, None, refused("payload_too_large"));
        check(429, Some(5), later("too_many_requests", 5));
        check(429, None, later("too_many_requests", 60));
        check(408, None, later("request_timeout", 1));
        check(307, None, refused("redirect"));
        check(418, None, refused("other"));
        check(500, None, later("server_error", 1));
        check(502, Some(9), later("server_error", 9));
        check(503, Some(u64::MAX), later("server_error", 86_400));
    }

    #[test]
    fn only_404_and_410_end_a_subscription() {
        for status in 100..600 {
            let response = Response { status, retry_after: None, header: b"", body: b"", now: Timestamp(0) };
            let Verdict::Answer(answer) = read(&response) else { panic!("{status}") };
            assert_eq!(matches!(answer, Answer::Gone { .. }), matches!(status, 404 | 410), "{status}");
        }
    }
}

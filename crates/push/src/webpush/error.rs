//! What an answer of a Web Push service means: its status to what is done next (RFC 8030, RFC 8292). Pure.
//!
//! Bodies are each service's own and are not read. Anybody can run a push service, so no answer is taken as
//! proof against the credential but a refused VAPID token, and that concerns the origin it came from.

use std::time::Duration;

use crate::exchange::{Response, Verdict};
use crate::push::{Answer, Reason};

/// Where the service names no time.
const SUBSCRIPTION_PAUSE: Duration = Duration::from_secs(60);

pub(super) fn read(response: &Response<'_>) -> Verdict {
    let later = |reason| {
        let after = response.retry_after.unwrap_or(SUBSCRIPTION_PAUSE);
        Verdict::Answer(Answer::Later { reason, after })
    };
    let refused = |reason| Verdict::Answer(Answer::Refused { reason });
    let gone = |reason: Reason| Verdict::Answer(Answer::Gone { reason, since: None });
    match response.status {
        // RFC 8030 §5: 201, or 202 where a receipt was asked for. Some services answer 200 or 204.
        200..=299 => Verdict::Answer(Answer::Accepted),
        // The endpoint is a capability; where it moved is for the browser to tell.
        300..=399 => refused("redirect"),
        400 => refused("bad_request"),
        // RFC 8292 §4.2: no token that it takes.
        401 => Verdict::Unauthorized { reason: "unauthorized" },
        // RFC 8292 §4.2: the subscription is restricted to another key.
        403 => Verdict::Answer(Answer::Suspect { reason: "forbidden" }),
        // RFC 8030 §7.3: "An expired subscription: 404."
        404 => gone("not_found"),
        // The same, as most services say it.
        410 => gone("gone"),
        408 => later("request_timeout"),
        413 => refused("payload_too_large"),
        // RFC 8030 §8.4: the rate limit is that of one push resource.
        429 => later("too_many_requests"),
        500..=599 => Verdict::Overloaded { reason: "server_error", after: response.retry_after },
        _ => refused("other"),
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Timestamp;

    use super::*;

    fn check(status: u16, retry_after: Option<u64>, expected: Verdict) {
        let retry_after = retry_after.map(Duration::from_secs);
        let response = Response { status, retry_after, body: b"{\"errno\":1}", now: Timestamp(0) };
        assert_eq!(read(&response), expected, "{status}");
    }

    #[test]
    fn each_status_has_its_meaning() {
        let refused = |reason| Verdict::Answer(Answer::Refused { reason });
        let later =
            |reason, seconds| Verdict::Answer(Answer::Later { reason, after: Duration::from_secs(seconds) });
        for status in [200, 201, 202, 204] {
            check(status, None, Verdict::Answer(Answer::Accepted));
        }
        check(400, None, refused("bad_request"));
        check(401, None, Verdict::Unauthorized { reason: "unauthorized" });
        check(403, None, Verdict::Answer(Answer::Suspect { reason: "forbidden" }));
        check(404, None, Verdict::Answer(Answer::Gone { reason: "not_found", since: None }));
        check(410, None, Verdict::Answer(Answer::Gone { reason: "gone", since: None }));
        check(413, None, refused("payload_too_large"));
        check(429, Some(5), later("too_many_requests", 5));
        check(429, None, later("too_many_requests", 60));
        check(408, None, later("request_timeout", 60));
        check(307, None, refused("redirect"));
        check(418, None, refused("other"));
        check(500, None, Verdict::Overloaded { reason: "server_error", after: None });
        let after = Some(Duration::from_secs(9));
        check(502, Some(9), Verdict::Overloaded { reason: "server_error", after });
        check(503, None, Verdict::Overloaded { reason: "server_error", after: None });
    }

    #[test]
    fn only_404_and_410_end_a_subscription() {
        for status in 100..600 {
            let response = Response { status, retry_after: None, body: b"", now: Timestamp(0) };
            let gone = matches!(read(&response), Verdict::Answer(Answer::Gone { .. }));
            assert_eq!(gone, matches!(status, 404 | 410), "{status}");
        }
    }
}

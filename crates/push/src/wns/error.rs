//! Interprets answers of WNS: maps the status and `X-WNS-Status` to the next action. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::exchange::{Response, Verdict};
use crate::push::{Answer, Reason};

/// If WNS names no time.
const THROTTLED_PAUSE: Duration = Duration::from_secs(60);

/// OAuth2 error codes (RFC 6749 §5.2) of a token endpoint.
const TOKEN_WORDS: [Reason; 7] = [
    "invalid_grant",
    "invalid_client",
    "invalid_request",
    "invalid_scope",
    "unauthorized_client",
    "unsupported_grant_type",
    "access_denied",
];

pub(super) fn read(response: &Response<'_>) -> Verdict {
    let wait = response.asked_to_wait();
    let answer = Verdict::Answer;
    let refused = |reason| answer(Answer::Refused { reason });
    let gone = |reason| answer(Answer::Gone { reason, since: None });
    match response.status {
        // The device rejects the app's notifications, or was offline and WNS stores none.
        200 if response.header.eq_ignore_ascii_case(b"dropped") => refused("dropped"),
        // The channel is throttled, not the app.
        200 if response.header.eq_ignore_ascii_case(b"channelthrottled") => {
            answer(Answer::Later { reason: "channelthrottled", after: wait.unwrap_or(THROTTLED_PAUSE) })
        }
        200 => answer(Answer::Accepted),
        201..=299 => answer(Answer::Accepted),
        400 => refused("bad_request"),
        // "The cloud service did not present a valid authentication ticket."
        401 => Verdict::Unauthorized { reason: "unauthorized" },
        // "The cloud service is not authorized to send a notification to this URI even though they are authenticated."
        403 => answer(Answer::Suspect { reason: "forbidden" }),
        // "The channel URI is not valid or is not recognized by WNS."
        404 => gone("not_found"),
        405 => refused("method_not_allowed"),
        // "The cloud service exceeded its throttle limit."
        406 => Verdict::Overloaded { reason: "throttled", after: Some(wait.unwrap_or(THROTTLED_PAUSE)) },
        408 => Verdict::Overloaded { reason: "request_timeout", after: wait },
        // "The channel expired."
        410 => gone("gone"),
        413 => refused("payload_too_large"),
        429 => {
            Verdict::Overloaded { reason: "too_many_requests", after: Some(wait.unwrap_or(THROTTLED_PAUSE)) }
        }
        300..=499 => refused("other"),
        500..=599 => Verdict::Overloaded { reason: "server_error", after: wait },
        _ => Verdict::Overloaded { reason: "other", after: wait },
    }
}

/// Interprets a failed token request (RFC 6749 §5.2).
pub(super) fn read_token(response: &Response<'_>) -> Verdict {
    let body = serde_json::from_slice(response.body).unwrap_or(Value::Null);
    let error = body["error"].as_str().unwrap_or_default();
    let reason = TOKEN_WORDS.into_iter().find(|word| *word == error).unwrap_or("token_endpoint");
    match response.status {
        200..=299 | 408 | 429 | 500..=599 => Verdict::Overloaded { reason, after: response.asked_to_wait() },
        _ => Verdict::Broken { reason },
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Timestamp;

    use super::*;

    fn answer(status: u16, header: &[u8], retry_after: Option<u64>) -> Verdict {
        let retry_after = retry_after.map(Duration::from_secs);
        read(&Response { status, retry_after, header, body: b"", now: Timestamp(0) })
    }

    #[test]
    fn each_status_has_its_verdict() {
        let refused = |reason| Verdict::Answer(Answer::Refused { reason });
        let gone = |reason| Verdict::Answer(Answer::Gone { reason, since: None });
        assert_eq!(answer(200, b"received", None), Verdict::Answer(Answer::Accepted));
        assert_eq!(answer(200, b"", None), Verdict::Answer(Answer::Accepted));
        assert_eq!(answer(200, b"Dropped", None), refused("dropped"));
        assert_eq!(
            answer(200, b"channelthrottled", None),
            Verdict::Answer(Answer::Later { reason: "channelthrottled", after: THROTTLED_PAUSE })
        );
        assert_eq!(answer(401, b"", None), Verdict::Unauthorized { reason: "unauthorized" });
        assert_eq!(answer(403, b"", None), Verdict::Answer(Answer::Suspect { reason: "forbidden" }));
        assert_eq!((answer(404, b"", None), answer(410, b"", None)), (gone("not_found"), gone("gone")));
        let throttled =
            |after| Verdict::Overloaded { reason: "throttled", after: Some(Duration::from_secs(after)) };
        assert_eq!((answer(406, b"", None), answer(406, b"", Some(9))), (throttled(60), throttled(9)));
        assert_eq!(answer(413, b"", None), refused("payload_too_large"));
        assert_eq!(answer(503, b"", None), Verdict::Overloaded { reason: "server_error", after: None });
    }

    #[test]
    fn only_404_and_410_end_a_channel() {
        for status in 100..600 {
            let ended = matches!(answer(status, b"", None), Verdict::Answer(Answer::Gone { .. }));
            assert_eq!(ended, matches!(status, 404 | 410), "{status}");
        }
    }
}

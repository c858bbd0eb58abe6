//! Interprets answers of Huawei Push Kit: maps the code in the body to the next action. Pure.
//!
//! Huawei answers 200 to many failures, so the code decides. `80300007` (no token is valid) is also the answer if the
//! credential belongs to another app, so it makes a token suspect and removes none.

use std::time::Duration;

use serde::Deserialize;

use crate::exchange::{Response, Verdict};
use crate::push::{Answer, Reason};

/// If Huawei names no time.
const PAUSE_AFTER_429: Duration = Duration::from_secs(60);

/// Codes that may become a reason.
const CODES: [Reason; 26] = [
    "80000000", "80100000", "80100001", "80100003", "80100004", "80100011", "80100012", "80100013",
    "80100016", "80100017", "80100018", "80200001", "80200003", "80300002", "80300007", "80300008",
    "80300010", "80300011", "80300013", "80300028", "80300029", "80600003", "81000001", "82000001",
    "80300004", "80300005",
];

#[derive(Deserialize)]
struct Body {
    code: String,
}

pub(super) fn read(response: &Response<'_>) -> Verdict {
    let body = serde_json::from_slice::<Body>(response.body).ok();
    let Some(code) = body.map(|body| body.code) else { return of_status(response) };
    let reason = CODES.into_iter().find(|known| *known == code).unwrap_or("other");
    let wait = response.asked_to_wait();
    match code.as_str() {
        "80000000" => Verdict::Answer(Answer::Accepted),
        // Some tokens are invalid; each request has one.
        "80100000" | "80300007" => Verdict::Answer(Answer::Suspect { reason }),
        // The token of the service account is invalid, or has expired.
        "80200001" | "80200003" => Verdict::Unauthorized { reason },
        // The project may not send to the app.
        "80300002" => Verdict::Broken { reason },
        "80300008" => Verdict::Answer(Answer::Refused { reason: "payload_too_large" }),
        // Huawei's own requests for authorization failed.
        "80600003" => Verdict::Overloaded { reason, after: wait },
        _ if code.starts_with("801") || code.starts_with("803") => {
            Verdict::Answer(Answer::Refused { reason })
        }
        // System errors.
        _ if code.starts_with("81") || code.starts_with("82") => Verdict::Overloaded { reason, after: wait },
        _ => of_status(response),
    }
}

/// An answer without a known code: of a front end or a proxy.
fn of_status(response: &Response<'_>) -> Verdict {
    let wait = response.asked_to_wait();
    match response.status {
        // A success has its code.
        200..=299 => Verdict::Overloaded { reason: "malformed_answer", after: wait },
        401 => Verdict::Unauthorized { reason: "unauthorized" },
        300..=399 | 403..=405 => Verdict::Broken { reason: "not_found" },
        408 => Verdict::Overloaded { reason: "request_timeout", after: wait },
        413 => Verdict::Answer(Answer::Refused { reason: "payload_too_large" }),
        429 => {
            Verdict::Overloaded { reason: "too_many_requests", after: Some(wait.unwrap_or(PAUSE_AFTER_429)) }
        }
        400..=499 => Verdict::Answer(Answer::Refused { reason: "bad_request" }),
        500..=599 => Verdict::Overloaded { reason: "server_error", after: wait },
        _ => Verdict::Overloaded { reason: "other", after: wait },
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, body: &str) -> Verdict {
        read(&Response { status, retry_after: None, header: b"", body: body.as_bytes(), now: Timestamp(0) })
    }

    fn coded(code: &str) -> Verdict {
        answer(200, &format!(r#"{{"code":"{code}","msg":"m","requestId":"r"}}"#))
    }

    #[test]
    fn each_code_has_its_verdict() {
        let refused = |reason| Verdict::Answer(Answer::Refused { reason });
        assert_eq!(coded("80000000"), Verdict::Answer(Answer::Accepted));
        for code in ["80100000", "80300007"] {
            assert_eq!(
                coded(code),
                Verdict::Answer(Answer::Suspect {
                    reason: CODES.into_iter().find(|known| *known == code).unwrap()
                })
            );
        }
        assert_eq!(coded("80200001"), Verdict::Unauthorized { reason: "80200001" });
        assert_eq!(coded("80200003"), Verdict::Unauthorized { reason: "80200003" });
        assert_eq!(coded("80300002"), Verdict::Broken { reason: "80300002" });
        assert_eq!(coded("80300008"), refused("payload_too_large"));
        assert_eq!(coded("80100003"), refused("80100003"));
        assert_eq!(coded("80399999"), refused("other"));
        assert_eq!(coded("80600003"), Verdict::Overloaded { reason: "80600003", after: None });
        assert_eq!(coded("81000001"), Verdict::Overloaded { reason: "81000001", after: None });
    }

    #[test]
    fn a_status_decides_without_a_known_code() {
        assert_eq!(answer(200, "{}"), Verdict::Overloaded { reason: "malformed_answer", after: None });
        assert_eq!(answer(401, ""), Verdict::Unauthorized { reason: "unauthorized" });
        assert_eq!(answer(404, "<html>"), Verdict::Broken { reason: "not_found" });
        assert_eq!(
            answer(429, ""),
            Verdict::Overloaded { reason: "too_many_requests", after: Some(PAUSE_AFTER_429) }
        );
        assert_eq!(answer(503, ""), Verdict::Overloaded { reason: "server_error", after: None });
        assert_eq!(answer(400, ""), Verdict::Answer(Answer::Refused { reason: "bad_request" }));
    }

    proptest! {
        #[test]
        fn no_unknown_body_accepts_or_removes(status in 100_u16..600, body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let verdict = read(&Response { status, retry_after: None, header: b"", body: &body, now: Timestamp(0) });
            let decided = matches!(verdict, Verdict::Answer(Answer::Accepted | Answer::Gone { .. } | Answer::Suspect { .. }));
            prop_assert!(!decided);
        }
    }
}

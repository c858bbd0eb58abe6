//! Interprets answers of FCM: maps status, `error.status` and `details` to the next action. Pure.
//!
//! The decisive field is `errorCode` of the detail `google.firebase.fcm.v1.FcmError`. An answer without it comes from
//! Google and not from FCM, and says nothing about a token. `INVALID_ARGUMENT` concerns the token or the payload; other
//! details tell which.

use std::time::Duration;

use serde_json::Value;

use crate::exchange::{Response, Verdict};
use crate::push::{Answer, Reason};

/// "If no Retry-After is set, default to 60 seconds" (FCM, scale and quotas).
const PAUSE_AFTER_429: Duration = Duration::from_secs(60);
/// Only an operator can fix it, and it concerns only devices of one platform.
const THIRD_PARTY_PAUSE: Duration = Duration::from_secs(15 * 60);

/// Codes of `google.rpc.Code` and FCM's `ErrorCode` that may become a reason.
const WORDS: [Reason; 20] = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "QUOTA_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "SENDER_ID_MISMATCH",
    "THIRD_PARTY_AUTH_ERROR",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNREGISTERED",
    "UNSPECIFIED_ERROR",
];

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
    if response.status == 200 {
        return Verdict::Answer(Answer::Accepted);
    }
    let body = serde_json::from_slice(response.body).unwrap_or(Value::Null);
    let error = &body["error"];
    let code =
        details(error, "google.firebase.fcm.v1.FcmError").find_map(|detail| detail["errorCode"].as_str());
    match code {
        Some("UNREGISTERED") => Verdict::Answer(Answer::Gone { reason: "UNREGISTERED", since: None }),
        Some("SENDER_ID_MISMATCH") => Verdict::Answer(Answer::Suspect { reason: "SENDER_ID_MISMATCH" }),
        Some("INVALID_ARGUMENT") => invalid_argument(error),
        // Google cannot authenticate at APNs or at a Web Push service for this device; Android is not affected.
        Some("THIRD_PARTY_AUTH_ERROR") => {
            later("THIRD_PARTY_AUTH_ERROR", response.asked_to_wait().unwrap_or(THIRD_PARTY_PAUSE))
        }
        Some("QUOTA_EXCEEDED") => quota(error, response.asked_to_wait()),
        Some("UNAVAILABLE") => overloaded("UNAVAILABLE", response.asked_to_wait()),
        Some("INTERNAL") => overloaded("INTERNAL", response.asked_to_wait()),
        _ => of_status(response, word(error)),
    }
}

/// An answer without FCM's own code: from Google's front end, a proxy, or a server that is not FCM.
fn of_status(response: &Response<'_>, reason: Reason) -> Verdict {
    match response.status {
        401 => Verdict::Unauthorized { reason },
        // The API is disabled, the account lacks the permission, or the project is wrong: this concerns all devices.
        403..=405 => Verdict::Broken { reason },
        408 => later(reason, response.asked_to_wait().unwrap_or(PAUSE_AFTER_429)),
        429 => overloaded(reason, Some(response.asked_to_wait().unwrap_or(PAUSE_AFTER_429))),
        400..=499 => Verdict::Answer(Answer::Refused { reason }),
        500..=599 => overloaded(reason, response.asked_to_wait()),
        _ => Verdict::Broken { reason },
    }
}

/// "Check the details: the invalid field is the token, or a part of the payload."
fn invalid_argument(error: &Value) -> Verdict {
    let violations = details(error, "google.rpc.BadRequest")
        .filter_map(|detail| detail["fieldViolations"].as_array())
        .flatten()
        .filter_map(|violation| violation["field"].as_str());
    let mut violations = violations.peekable();
    let about_token = match violations.peek() {
        Some(_) => violations.all(|field| field == "message.token" || field == "message.fid"),
        // FCM's older form has no violations; only the text tells.
        None => error["message"].as_str().is_some_and(|text| text.contains("registration token")),
    };
    match about_token {
        true => Verdict::Answer(Answer::Suspect { reason: "invalid_token" }),
        false => Verdict::Answer(Answer::Refused { reason: "INVALID_ARGUMENT" }),
    }
}

/// "QuotaFailure says which quota": a device's own quota delays only that device.
fn quota(error: &Value, retry_after: Option<Duration>) -> Verdict {
    let after = retry_after.unwrap_or(PAUSE_AFTER_429);
    let device = details(error, "google.rpc.QuotaFailure")
        .filter_map(|detail| detail["violations"].as_array())
        .flatten()
        .any(|violation| ["subject", "description"].iter().any(|key| names_a_device(&violation[*key])));
    match device {
        true => later("QUOTA_EXCEEDED", after),
        false => overloaded("QUOTA_EXCEEDED", Some(after)),
    }
}

fn names_a_device(text: &Value) -> bool {
    text.as_str().is_some_and(|text| text.to_ascii_lowercase().contains("device"))
}

fn details<'a>(error: &'a Value, kind: &'static str) -> impl Iterator<Item = &'a Value> {
    let details = error["details"].as_array().map(Vec::as_slice).unwrap_or_default();
    details.iter().filter(move |detail| {
        detail["@type"].as_str().and_then(|name| name.rsplit('/').next()).is_some_and(|name| name == kind)
    })
}

fn word(error: &Value) -> Reason {
    let status = error["status"].as_str().unwrap_or_default();
    WORDS.into_iter().find(|word| *word == status).unwrap_or("other")
}

fn later(reason: Reason, after: Duration) -> Verdict {
    Verdict::Answer(Answer::Later { reason, after })
}

fn overloaded(reason: Reason, after: Option<Duration>) -> Verdict {
    Verdict::Overloaded { reason, after }
}

/// Interprets a failed token request (RFC 6749 §5.2).
pub(super) fn read_token(response: &Response<'_>) -> Verdict {
    let body = serde_json::from_slice(response.body).unwrap_or(Value::Null);
    let error = body["error"].as_str().unwrap_or_default();
    let reason = TOKEN_WORDS.into_iter().find(|word| *word == error).unwrap_or("token_endpoint");
    match response.status {
        200..=299 | 408 | 429 | 500..=599 => overloaded(reason, response.asked_to_wait()),
        _ => Verdict::Broken { reason },
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const FCM: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
    const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
    const QUOTA: &str = "type.googleapis.com/google.rpc.QuotaFailure";

    fn answer(status: u16, body: &str, retry_after: Option<u64>) -> Verdict {
        let retry_after = retry_after.map(Duration::from_secs);
        read(&Response { status, retry_after, header: b"", body: body.as_bytes(), now: Timestamp(0) })
    }

    fn error(status: &str, code: &str, detail: Value) -> String {
        let details = json!([detail, {"@type": FCM, "errorCode": code}]);
        json!({"error": {"code": 0, "status": status, "message": "m", "details": details}}).to_string()
    }

    fn check(status: u16, code: &str, expected: Verdict) {
        assert_eq!(answer(status, &error("X", code, Value::Null), None), expected, "{code}");
    }

    #[test]
    fn each_error_code_has_its_verdict() {
        assert_eq!(
            answer(200, "{\"name\":\"projects/p/messages/1\"}", None),
            Verdict::Answer(Answer::Accepted)
        );
        check(404, "UNREGISTERED", Verdict::Answer(Answer::Gone { reason: "UNREGISTERED", since: None }));
        check(403, "SENDER_ID_MISMATCH", Verdict::Answer(Answer::Suspect { reason: "SENDER_ID_MISMATCH" }));
        check(400, "INVALID_ARGUMENT", Verdict::Answer(Answer::Refused { reason: "INVALID_ARGUMENT" }));
        check(401, "THIRD_PARTY_AUTH_ERROR", later("THIRD_PARTY_AUTH_ERROR", THIRD_PARTY_PAUSE));
        check(429, "QUOTA_EXCEEDED", overloaded("QUOTA_EXCEEDED", Some(PAUSE_AFTER_429)));
        check(503, "UNAVAILABLE", overloaded("UNAVAILABLE", None));
        check(500, "INTERNAL", overloaded("INTERNAL", None));
        check(400, "UNSPECIFIED_ERROR", Verdict::Answer(Answer::Refused { reason: "other" }));
        check(503, "TOMORROW", overloaded("other", None));
    }

    #[test]
    fn an_invalid_token_differs_from_an_invalid_payload() {
        let violation = |fields: &[&str]| {
            let violations: Vec<_> = fields.iter().map(|field| json!({"field": field})).collect();
            let detail = json!({"@type": BAD_REQUEST, "fieldViolations": violations});
            answer(400, &error("INVALID_ARGUMENT", "INVALID_ARGUMENT", detail), None)
        };
        let suspect = Verdict::Answer(Answer::Suspect { reason: "invalid_token" });
        let refused = Verdict::Answer(Answer::Refused { reason: "INVALID_ARGUMENT" });
        assert_eq!(violation(&["message.token"]), suspect);
        assert_eq!(violation(&["message.data[0].value"]), refused);
        assert_eq!(violation(&["message.token", "message.android.ttl"]), refused);
        let older = |message: &str| {
            let details = [json!({"@type": FCM, "errorCode": "INVALID_ARGUMENT"})];
            let body =
                json!({"error": {"status": "INVALID_ARGUMENT", "message": message, "details": details}});
            answer(400, &body.to_string(), None)
        };
        assert_eq!(older("The registration token is not a valid FCM registration token"), suspect);
        assert_eq!(older("Message is too big"), refused);
    }

    #[test]
    fn a_device_quota_delays_only_that_device() {
        let of = |subject: &str| {
            let detail = json!({"@type": QUOTA, "violations": [{"subject": subject, "description": "d"}]});
            answer(429, &error("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", detail), Some(9))
        };
        let after = Duration::from_secs(9);
        assert_eq!(of("Device message rate"), later("QUOTA_EXCEEDED", after));
        assert_eq!(of("project:123"), overloaded("QUOTA_EXCEEDED", Some(after)));
    }

    #[test]
    fn an_answer_without_fcms_code_never_affects_a_token() {
        let google = |status: u16, word: &str| {
            answer(status, &json!({"error": {"code": status, "status": word}}).to_string(), None)
        };
        assert_eq!(google(401, "UNAUTHENTICATED"), Verdict::Unauthorized { reason: "UNAUTHENTICATED" });
        assert_eq!(google(403, "PERMISSION_DENIED"), Verdict::Broken { reason: "PERMISSION_DENIED" });
        assert_eq!(google(404, "NOT_FOUND"), Verdict::Broken { reason: "NOT_FOUND" });
        assert_eq!(
            google(429, "RESOURCE_EXHAUSTED"),
            overloaded("RESOURCE_EXHAUSTED", Some(PAUSE_AFTER_429))
        );
        assert_eq!(google(504, "DEADLINE_EXCEEDED"), overloaded("DEADLINE_EXCEEDED", None));
        assert_eq!(answer(404, "<html>", None), Verdict::Broken { reason: "other" });
        assert_eq!(answer(502, "", Some(3)), overloaded("other", Some(Duration::from_secs(3))));
        assert_eq!(answer(302, "", None), Verdict::Broken { reason: "other" });
    }

    #[test]
    fn a_rejecting_token_endpoint_differs_from_a_failing_one() {
        let read = |status, body: &str| {
            read_token(&Response {
                status,
                retry_after: None,
                header: b"",
                body: body.as_bytes(),
                now: Timestamp(0),
            })
        };
        for word in TOKEN_WORDS {
            let body = json!({"error": word, "error_description": "d"}).to_string();
            assert_eq!(read(400, &body), Verdict::Broken { reason: word });
        }
        assert_eq!(read(404, "<html>"), Verdict::Broken { reason: "token_endpoint" });
        assert_eq!(read(503, ""), overloaded("token_endpoint", None));
        assert_eq!(read(200, "{}"), overloaded("token_endpoint", None));
    }

    proptest! {
        #[test]
        fn any_body_is_read(
            status in 100_u16..600,
            body in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "\\{\"error\":(\\{\"details\":(\\[(1|\\{\"@type\":[0-9]\\}|null)\\]|\\{\\})\\}|\\[\\]|7)\\}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            let response = Response { status, retry_after: None, header: b"", body: &body, now: Timestamp(0) };
            let verdict = read(&response);
            let gone = matches!(verdict, Verdict::Answer(Answer::Gone { .. }));
            prop_assert!(!gone);
            prop_assert_eq!(verdict == Verdict::Answer(Answer::Accepted), status == 200);
            let _ = read_token(&response);
        }
    }
}

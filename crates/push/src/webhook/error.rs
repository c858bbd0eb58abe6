//! Interprets answers of providers. Pure.
//!
//! A status of 2xx without a body accepts all recipients. With a body, `results` names recipients that were not accepted;
//! the others were. A body that does not have this form is an error: all recipients are tried again, and the provider
//! recognizes them by their ids. A status that concerns the endpoint and not the recipients opens the breaker, so that
//! no push is lost while an operator corrects it.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

use crate::exchange::{BatchResponse, BatchVerdict, Verdict, WAIT_MAX};
use crate::push::{Answer, Reason};

/// If the provider names no time.
const PAUSE_AFTER_429: Duration = Duration::from_secs(60);

/// Reasons that providers may give for a recipient; another one becomes `other`.
const WORDS: [Reason; 12] = [
    "blocked",
    "bounced",
    "busy",
    "expired",
    "invalid_content",
    "invalid_token",
    "not_allowed",
    "not_found",
    "quota",
    "too_large",
    "unavailable",
    "unsubscribed",
];

#[derive(Deserialize)]
struct Body {
    results: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    id: Uuid,
    result: Word,
    reason: Option<String>,
    /// Seconds.
    retry_after: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Accepted,
    InvalidToken,
    SuspectToken,
    Retry,
    Rejected,
}

/// `ids`: those of the recipients, in the order of the pushes.
pub(super) fn read(ids: &[Uuid], response: &BatchResponse<'_>) -> BatchVerdict {
    let wait = response.asked_to_wait();
    let broken = |reason| BatchVerdict::All(Verdict::Broken { reason });
    let overloaded = |reason, after| BatchVerdict::All(Verdict::Overloaded { reason, after });
    let rejected = |reason| BatchVerdict::All(Verdict::Answer(Answer::Refused { reason }));
    match response.status {
        200..=299 => match response.body.and_then(|body| results(ids, body)) {
            Some(answers) => BatchVerdict::Each(answers),
            None => overloaded("malformed_answer", wait),
        },
        // The endpoint moved, requires another secret, or does not exist.
        300..=399 => broken("redirect"),
        401 => broken("unauthorized"),
        403 => broken("forbidden"),
        404 => broken("not_found"),
        405 => broken("method_not_allowed"),
        // Standard Webhooks: the receiver wants no more requests.
        410 => broken("gone"),
        408 => overloaded("request_timeout", wait),
        413 => rejected("payload_too_large"),
        429 => overloaded("too_many_requests", Some(wait.unwrap_or(PAUSE_AFTER_429))),
        400..=499 => rejected("bad_request"),
        503 => overloaded("unavailable", wait),
        500..=599 => overloaded("server_error", wait),
        _ => overloaded("malformed_answer", wait),
    }
}

/// None: the body is not an answer to these recipients.
fn results(ids: &[Uuid], body: &[u8]) -> Option<Vec<Answer>> {
    let mut answers = vec![Answer::Accepted; ids.len()];
    if body.trim_ascii().is_empty() {
        return Some(answers);
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    let places: HashMap<Uuid, usize> = ids.iter().copied().zip(0..).collect();
    let mut seen = vec![false; ids.len()];
    for one in body.results {
        let place = *places.get(&one.id)?;
        if std::mem::replace(&mut seen[place], true) {
            return None;
        }
        answers[place] = answer(&one);
    }
    Some(answers)
}

fn answer(one: &One) -> Answer {
    let reason = |default: Reason| match one.reason.as_deref() {
        None => default,
        Some(word) => WORDS.into_iter().find(|known| *known == word).unwrap_or("other"),
    };
    match one.result {
        Word::Accepted => Answer::Accepted,
        Word::InvalidToken => Answer::Gone { reason: reason("invalid_token"), since: None },
        Word::SuspectToken => Answer::Suspect { reason: reason("suspect_token") },
        Word::Retry => {
            let after = one.retry_after.map_or(super::RETRY_AFTER, Duration::from_secs);
            Answer::Later { reason: reason("retry"), after: after.min(WAIT_MAX) }
        }
        Word::Rejected => Answer::Refused { reason: reason("rejected") },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids() -> [Uuid; 3] {
        [1, 2, 3].map(Uuid::from_u128)
    }

    fn answered(status: u16, body: &str, retry_after: Option<u64>) -> BatchVerdict {
        let retry_after = retry_after.map(Duration::from_secs);
        read(&ids(), &BatchResponse { status, retry_after, body: Some(body.as_bytes()) })
    }

    fn overloaded(reason: Reason, seconds: Option<u64>) -> BatchVerdict {
        BatchVerdict::All(Verdict::Overloaded { reason, after: seconds.map(Duration::from_secs) })
    }

    #[test]
    fn each_status_has_its_verdict() {
        let broken = |reason| BatchVerdict::All(Verdict::Broken { reason });
        let refused = |reason| BatchVerdict::All(Verdict::Answer(Answer::Refused { reason }));
        for status in [200, 202, 204] {
            assert_eq!(answered(status, "", None), BatchVerdict::Each(vec![Answer::Accepted; 3]), "{status}");
        }
        for (status, reason) in [
            (301, "redirect"),
            (401, "unauthorized"),
            (403, "forbidden"),
            (404, "not_found"),
            (405, "method_not_allowed"),
            (410, "gone"),
        ] {
            assert_eq!(answered(status, "", None), broken(reason), "{status}");
        }
        assert_eq!(answered(400, "", None), refused("bad_request"));
        assert_eq!(answered(422, "{}", None), refused("bad_request"));
        assert_eq!(answered(413, "", None), refused("payload_too_large"));
        assert_eq!(answered(408, "", None), overloaded("request_timeout", None));
        assert_eq!(answered(429, "", None), overloaded("too_many_requests", Some(60)));
        assert_eq!(answered(429, "", Some(5)), overloaded("too_many_requests", Some(5)));
        assert_eq!(answered(503, "", Some(7)), overloaded("unavailable", Some(7)));
        assert_eq!(answered(503, "", None), overloaded("unavailable", None));
        assert_eq!(answered(500, "{\"results\":[]}", None), overloaded("server_error", None));
    }

    #[test]
    fn a_result_decides_about_its_recipient() {
        let [first, second, third] = ids();
        let body = format!(
            r#"{{"results":[{{"id":"{second}","result":"invalid_token"}},{{"id":"{third}","result":"retry","retry_after":30}}]}}"#
        );
        let expected = [
            Answer::Accepted,
            Answer::Gone { reason: "invalid_token", since: None },
            Answer::Later { reason: "retry", after: Duration::from_secs(30) },
        ];
        assert_eq!(answered(200, &body, None), BatchVerdict::Each(expected.to_vec()));
        let body = format!(
            r#"{{"more":1,"results":[{{"id":"{first}","result":"rejected","reason":"bounced"}},
                {{"id":"{second}","result":"suspect_token","reason":"a secret"}},{{"id":"{third}","result":"retry"}}]}}"#
        );
        let expected = [
            Answer::Refused { reason: "bounced" },
            Answer::Suspect { reason: "other" },
            Answer::Later { reason: "retry", after: Duration::from_secs(5) },
        ];
        assert_eq!(answered(207, &body, None), BatchVerdict::Each(expected.to_vec()));
        let body = format!(
            r#"{{"results":[{{"id":"{first}","result":"retry","retry_after":18446744073709551615}}]}}"#
        );
        let BatchVerdict::Each(answers) = answered(200, &body, None) else { panic!() };
        assert_eq!(answers[0], Answer::Later { reason: "retry", after: WAIT_MAX });
    }

    #[test]
    fn a_malformed_answer_is_never_a_success() {
        let [first, ..] = ids();
        let stranger = Uuid::from_u128(9);
        for body in [
            "OK",
            "{}",
            "[]",
            "null",
            "{\"ok\":true}",
            "{\"results\":{}}",
            "{\"results\":[{}]}",
            &format!(r#"{{"results":[{{"id":"{first}"}}]}}"#),
            &format!(r#"{{"results":[{{"id":"{first}","result":"done"}}]}}"#),
            &format!(r#"{{"results":[{{"id":"{stranger}","result":"accepted"}}]}}"#),
            &format!(r#"{{"results":[{{"id":"{first}","result":"retry","retry_after":-1}}]}}"#),
            &format!(
                r#"{{"results":[{{"id":"{first}","result":"retry"}},{{"id":"{first}","result":"accepted"}}]}}"#
            ),
        ] {
            assert_eq!(answered(200, body, None), overloaded("malformed_answer", None), "{body}");
        }
        let unread = BatchResponse { status: 200, retry_after: None, body: None };
        assert_eq!(read(&ids(), &unread), overloaded("malformed_answer", None));
    }

    proptest! {
        #[test]
        fn any_answer_is_read(status in 100_u16..600, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let verdict = read(&ids(), &BatchResponse { status, retry_after: None, body: Some(&body) });
            let blank = body.trim_ascii().is_empty();
            match verdict {
                BatchVerdict::Each(answers) => {
                    prop_assert!((200..300).contains(&status));
                    prop_assert!(blank && answers.iter().all(|answer| *answer == Answer::Accepted));
                }
                BatchVerdict::All(verdict) => {
                    let accepted = matches!(verdict, Verdict::Answer(Answer::Accepted | Answer::Gone { .. }));
                    prop_assert!(!accepted);
                }
            }
        }
    }
}

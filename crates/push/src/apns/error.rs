//! Interprets answers of APNs: maps status and reason to the next action. Pure.
//!
//! The table is Apple's "Handling notification responses from APNs". Two rules are ours: an error about one message or
//! device must not stop the others, and a token is removed only with the time since which it is invalid.

use std::borrow::Cow;
use std::time::Duration;

use noroshi_types::Timestamp;
use serde::Deserialize;

use crate::exchange::{Response, Verdict};
use crate::push::{Answer, Reason};

/// If the peer names no time: how long to wait for a device after "too many requests".
const DEVICE_PAUSE: Duration = Duration::from_secs(60);
/// The peer closes the connection or missed the request; another connection can send it at once.
const RESEND_AFTER: Duration = Duration::from_secs(1);
/// A connection whose tokens changed too often rejects requests for a while; Apple names no time.
const TOKEN_UPDATES_PAUSE: Duration = Duration::from_secs(5 * 60);

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    /// With 410: milliseconds since 1970 from which on the token is invalid.
    timestamp: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The message is invalid.
    Refused,
    /// The token probably belongs to another environment or topic.
    Suspect,
    Gone,
    /// Too many pushes to this device.
    DeviceBusy,
    Resend,
    /// The provider token is too old, and further requests on this connection would fail too.
    Wedged,
    Broken,
    Overloaded,
    TokenUpdates,
}

/// Every reason that Apple documents, and one that only occurs on the wire.
const REASONS: [(Reason, Kind); 39] = [
    // 400
    ("BadCollapseId", Kind::Refused),
    ("BadDeviceToken", Kind::Suspect),
    ("BadExpirationDate", Kind::Refused),
    ("BadMessageId", Kind::Refused),
    ("BadPriority", Kind::Refused),
    // Providers and devices may name their own topic, so this is no proof against the credential.
    ("BadTopic", Kind::Refused),
    ("DeviceTokenNotForTopic", Kind::Suspect),
    ("DuplicateHeaders", Kind::Refused),
    ("IdleTimeout", Kind::Resend),
    ("InvalidPushType", Kind::Refused),
    ("MissingDeviceToken", Kind::Refused),
    ("MissingTopic", Kind::Refused),
    ("PayloadEmpty", Kind::Refused),
    ("TopicDisallowed", Kind::Refused),
    // Of broadcasts: about one channel, or about what the app may do with channels. Pushes to devices are not affected.
    ("BadChannelId", Kind::Refused),
    ("ChannelNotRegistered", Kind::Refused),
    ("FeatureNotEnabled", Kind::Refused),
    ("MissingChannelId", Kind::Refused),
    ("MissingPushType", Kind::Refused),
    ("TopicMismatch", Kind::Refused),
    // 403
    ("BadCertificate", Kind::Broken),
    ("BadCertificateEnvironment", Kind::Broken),
    ("ExpiredProviderToken", Kind::Wedged),
    ("Forbidden", Kind::Broken),
    ("InvalidProviderToken", Kind::Broken),
    ("MissingProviderToken", Kind::Broken),
    ("UnrelatedKeyIdInToken", Kind::Broken),
    ("BadEnvironmentKeyIdInToken", Kind::Broken),
    ("BadEnvironmentKeyInToken", Kind::Broken),
    // 404, 405: all requests have the same form, so the peer is not APNs.
    ("BadPath", Kind::Broken),
    ("MethodNotAllowed", Kind::Broken),
    // 410
    ("ExpiredToken", Kind::Gone),
    ("Unregistered", Kind::Gone),
    // 413
    ("PayloadTooLarge", Kind::Refused),
    // 429
    ("TooManyProviderTokenUpdates", Kind::TokenUpdates),
    ("TooManyRequests", Kind::DeviceBusy),
    // 500, 503
    ("InternalServerError", Kind::Overloaded),
    ("ServiceUnavailable", Kind::Overloaded),
    ("Shutdown", Kind::Resend),
];

pub(super) fn read(response: &Response<'_>) -> Verdict {
    if response.status == 200 {
        return Verdict::Answer(Answer::Accepted);
    }
    let body = serde_json::from_slice::<Body<'_>>(response.body).ok();
    let known = body.as_ref().and_then(|body| lookup(body.reason.as_deref()?));
    let (reason, kind) = known.unwrap_or_else(|| ("other", kind_of_status(response.status)));
    let since = body.and_then(|body| body.timestamp).map(Timestamp);
    verdict(reason, kind, since, response.asked_to_wait())
}

/// The reason in GOAWAY's debug data, which has the form of a response body.
pub(super) fn goaway(debug: &[u8]) -> Reason {
    let body = serde_json::from_slice::<Body<'_>>(debug).ok();
    body.and_then(|body| lookup(body.reason.as_deref()?)).map_or("goaway", |(reason, _)| reason)
}

fn lookup(reason: &str) -> Option<(Reason, Kind)> {
    REASONS.into_iter().find(|(known, _)| *known == reason)
}

/// For reasons that are not in this table.
fn kind_of_status(status: u16) -> Kind {
    match status {
        403..=405 => Kind::Broken,
        410 => Kind::Gone,
        429 => Kind::DeviceBusy,
        400..=499 => Kind::Refused,
        500..=599 => Kind::Overloaded,
        // A redirect, or a status that HTTP/2 does not end a request with: the peer is not APNs.
        _ => Kind::Broken,
    }
}

fn verdict(reason: Reason, kind: Kind, since: Option<Timestamp>, retry_after: Option<Duration>) -> Verdict {
    let later = |after| Verdict::Answer(Answer::Later { reason, after });
    match kind {
        Kind::Refused => Verdict::Answer(Answer::Refused { reason }),
        Kind::Suspect => Verdict::Answer(Answer::Suspect { reason }),
        Kind::Gone => Verdict::Answer(match since {
            Some(_) => Answer::Gone { reason, since },
            // Without the time the token may have been registered again since.
            None => Answer::Suspect { reason },
        }),
        Kind::DeviceBusy => later(retry_after.unwrap_or(DEVICE_PAUSE)),
        Kind::Resend => later(retry_after.unwrap_or(RESEND_AFTER)),
        Kind::Wedged => Verdict::Wedged { reason },
        Kind::Broken => Verdict::Broken { reason },
        Kind::Overloaded => Verdict::Overloaded { reason, after: retry_after },
        Kind::TokenUpdates => {
            Verdict::Overloaded { reason, after: Some(retry_after.unwrap_or(TOKEN_UPDATES_PAUSE)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, body: &str, retry_after: Option<u64>) -> Verdict {
        let retry_after = retry_after.map(Duration::from_secs);
        read(&Response { status, retry_after, header: b"", body: body.as_bytes(), now: Timestamp(0) })
    }

    fn check(status: u16, reasons: &[Reason], expected: impl Fn(Reason) -> Verdict) {
        for reason in reasons {
            assert_eq!(
                answer(status, &format!("{{\"reason\":\"{reason}\"}}"), None),
                expected(reason),
                "{reason}"
            );
        }
    }

    #[test]
    fn each_documented_reason_has_its_verdict() {
        let refused = |reason| Verdict::Answer(Answer::Refused { reason });
        let later = |after| move |reason| Verdict::Answer(Answer::Later { reason, after });
        assert_eq!(answer(200, "", None), Verdict::Answer(Answer::Accepted));
        check(400, &["BadCollapseId", "BadExpirationDate", "BadMessageId", "BadPriority"], refused);
        check(400, &["BadTopic", "DuplicateHeaders", "InvalidPushType", "MissingDeviceToken"], refused);
        check(400, &["MissingTopic", "PayloadEmpty", "TopicDisallowed"], refused);
        check(400, &["BadChannelId", "ChannelNotRegistered", "MissingChannelId", "MissingPushType"], refused);
        check(403, &["FeatureNotEnabled", "TopicMismatch"], refused);
        check(400, &["BadDeviceToken", "DeviceTokenNotForTopic"], |reason| {
            Verdict::Answer(Answer::Suspect { reason })
        });
        check(400, &["IdleTimeout"], later(RESEND_AFTER));
        check(403, &["ExpiredProviderToken"], |reason| Verdict::Wedged { reason });
        let broken = |reason| Verdict::Broken { reason };
        check(
            403,
            &["BadCertificate", "BadCertificateEnvironment", "Forbidden", "InvalidProviderToken"],
            broken,
        );
        check(403, &["MissingProviderToken", "UnrelatedKeyIdInToken"], broken);
        check(403, &["BadEnvironmentKeyIdInToken", "BadEnvironmentKeyInToken"], broken);
        check(404, &["BadPath"], broken);
        check(405, &["MethodNotAllowed"], broken);
        check(413, &["PayloadTooLarge"], refused);
        check(429, &["TooManyRequests"], later(DEVICE_PAUSE));
        check(429, &["TooManyProviderTokenUpdates"], |reason| Verdict::Overloaded {
            reason,
            after: Some(TOKEN_UPDATES_PAUSE),
        });
        check(500, &["InternalServerError"], |reason| Verdict::Overloaded { reason, after: None });
        check(503, &["ServiceUnavailable"], |reason| Verdict::Overloaded { reason, after: None });
        check(503, &["Shutdown"], later(RESEND_AFTER));
    }

    #[test]
    fn a_token_is_gone_only_with_a_time() {
        for reason in ["Unregistered", "ExpiredToken"] {
            let body = format!("{{\"reason\":\"{reason}\",\"timestamp\":1700000000123}}");
            let gone = Answer::Gone { reason, since: Some(Timestamp(1_700_000_000_123)) };
            assert_eq!(answer(410, &body, None), Verdict::Answer(gone));
            let without = answer(410, &format!("{{\"reason\":\"{reason}\"}}"), None);
            assert_eq!(without, Verdict::Answer(Answer::Suspect { reason }));
        }
    }

    #[test]
    fn the_peers_retry_after_overrides_ours() {
        let after = Duration::from_secs(7);
        let busy = answer(429, "{\"reason\":\"TooManyRequests\"}", Some(7));
        assert_eq!(busy, Verdict::Answer(Answer::Later { reason: "TooManyRequests", after }));
        let unavailable = answer(503, "{\"reason\":\"ServiceUnavailable\"}", Some(7));
        assert_eq!(unavailable, Verdict::Overloaded { reason: "ServiceUnavailable", after: Some(after) });
        let after = Duration::from_secs(86_400);
        let never = answer(503, "{\"reason\":\"Shutdown\"}", Some(u64::MAX));
        assert_eq!(never, Verdict::Answer(Answer::Later { reason: "Shutdown", after }));
    }

    #[test]
    fn an_unknown_reason_is_read_by_its_status() {
        let reason = "other";
        let unknown = |status| answer(status, "{\"reason\":\"Tomorrow\"}", None);
        assert_eq!(unknown(400), Verdict::Answer(Answer::Refused { reason }));
        assert_eq!(unknown(403), Verdict::Broken { reason });
        assert_eq!(unknown(410), Verdict::Answer(Answer::Suspect { reason }));
        assert_eq!(unknown(429), Verdict::Answer(Answer::Later { reason, after: DEVICE_PAUSE }));
        assert_eq!(unknown(502), Verdict::Overloaded { reason, after: None });
        assert_eq!(answer(301, "<html>", None), Verdict::Broken { reason });
    }

    #[test]
    fn goaway_names_its_reason() {
        assert_eq!(goaway(b"{\"reason\":\"BadCertificate\"}"), "BadCertificate");
        assert_eq!([goaway(b""), goaway(b"bye"), goaway(b"{\"reason\":\"x\"}")], ["goaway"; 3]);
    }

    proptest! {
        /// Any input gives a verdict, never a panic, and never removes a token without proof.
        #[test]
        fn any_body_is_read(
            status in 100_u16..600,
            body in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "\\{\"reason\":(\"[A-Za-z\\\\\"]{0,12}\"|[0-9]{1,3}|null),\"timestamp\":-?[0-9]{1,22}\\}".prop_map(String::into_bytes),
            ],
        ) {
            let verdict = read(&Response { status, retry_after: None, header: b"", body: &body, now: Timestamp(0) });
            let gone = matches!(verdict, Verdict::Answer(Answer::Gone { .. }));
            prop_assert!(!gone || status == 410);
            prop_assert_eq!(verdict == Verdict::Answer(Answer::Accepted), status == 200);
            let _ = goaway(&body);
        }
    }
}

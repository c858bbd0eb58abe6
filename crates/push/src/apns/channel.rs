//! Calls that manage broadcast channels: requests, and what the answers mean. Pure.
//!
//! The rules are from Apple's "Sending channel management requests to APNs". The host is not the one that pushes go to.
//! Apple has no way to repeat a creation safely: a caller without an answer must assume that the channel exists.

use std::time::Duration;

use bytes::Bytes;
use noroshi_types::StoragePolicy;
use serde::Deserialize;
use serde_json::json;

use crate::exchange::{ChannelSite, Header, Request};
use crate::fields::is_header_value;
use crate::push::Reason;

/// A call about the channels of a bundle id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelCall {
    Create(StoragePolicy),
    /// By Apple's id, like the next.
    Read(String),
    Delete(String),
    List,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelAnswer {
    /// Apple's id of the new channel.
    Created(String),
    Read(StoragePolicy),
    Deleted,
    /// Apple's ids.
    Listed(Vec<String>),
}

/// Why a call failed, by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    #[error("the app has no credential for APNs in this environment")]
    Unconfigured,
    #[error("APNs has no such channel ({0})")]
    Unknown(Reason),
    #[error("the bundle id has as many channels as APNs allows ({0})")]
    TooMany(Reason),
    /// The credential is wrong, or the bundle id may not broadcast: an operator has to act.
    #[error("APNs rejects the credential or the bundle id ({0})")]
    Rejected(Reason),
    #[error("APNs accepts no more calls for now ({reason})")]
    Busy { reason: Reason, after: Option<Duration> },
    /// APNs failed, cannot be reached, or answered something else.
    #[error("APNs could not be asked ({reason})")]
    Failed {
        reason: Reason,
        /// Whether APNs may have done what it was asked.
        may_be_done: bool,
    },
}

/// A response to a call.
pub(crate) struct Called {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// The header `apns-channel-id`.
    pub channel: Option<String>,
    pub body: Bytes,
}

/// What the caller does with a response.
pub(crate) enum Read {
    Answer(Result<ChannelAnswer, ChannelError>),
    /// The provider token is too old.
    Renew(Reason),
}

/// An id of Apple: base64, without anything that a header could not hold.
pub fn is_channel_id(id: &str) -> bool {
    id.len() <= 255 && is_header_value(id)
}

pub(crate) fn request(
    site: &ChannelSite,
    call: &ChannelCall,
    id: uuid::Uuid,
    authorization: Option<&Bytes>,
) -> (&'static str, Request) {
    let own = |value: &str| Bytes::copy_from_slice(value.as_bytes());
    let header = |name, value| Header { name, value, shared: false };
    let mut headers = vec![header("apns-request-id", own(&id.to_string()))];
    headers.extend(authorization.map(|value| header("authorization", value.clone())));
    let (method, list, channel) = match call {
        ChannelCall::Create(_) => ("POST", "channels", None),
        ChannelCall::Read(channel) => ("GET", "channels", Some(channel)),
        ChannelCall::Delete(channel) => ("DELETE", "channels", Some(channel)),
        ChannelCall::List => ("GET", "all-channels", None),
    };
    headers.extend(channel.map(|channel| header("apns-channel-id", own(channel))));
    let body = match call {
        ChannelCall::Create(policy) => {
            headers.push(header("content-type", Bytes::from_static(b"application/json")));
            let body = json!({"message-storage-policy": *policy as u8, "push-type": "LiveActivity"});
            Bytes::from(body.to_string())
        }
        _ => Bytes::new(),
    };
    (method, Request { path: format!("/1/apps/{}/{list}", site.bundle), headers, body, readable: None })
}

/// Every reason that Apple documents for these calls.
const REASONS: [Reason; 30] = [
    "BadCertificate",
    "BadCertificateEnvironment",
    "BadChannelId",
    "BadEnvironmentKeyIdInToken",
    "BadEnvironmentKeyInToken",
    "BadMessageId",
    "BadPath",
    "BadTopic",
    "CannotCreateChannelConfig",
    "ChannelNotRegistered",
    "DuplicateHeaders",
    "ExpiredProviderToken",
    "FeatureNotEnabled",
    "Forbidden",
    "InternalServerError",
    "InvalidProviderToken",
    "InvalidPushType",
    "MethodNotAllowed",
    "MissingChannelId",
    "MissingProviderToken",
    "MissingPushType",
    "MissingTopic",
    "PayloadEmpty",
    "ServiceUnavailable",
    "Shutdown",
    "TooManyProviderTokenUpdates",
    "TooManyRequests",
    "TopicDisallowed",
    "TopicMismatch",
    "UnrelatedKeyIdInToken",
];

pub(crate) fn read(call: &ChannelCall, called: &Called) -> Read {
    let odd = ChannelError::Failed { reason: "other", may_be_done: true };
    if matches!(called.status, 200 | 201 | 204) {
        return Read::Answer(answer(call, called).ok_or(odd));
    }
    #[derive(Deserialize)]
    struct Body {
        reason: Option<String>,
    }
    let body = serde_json::from_slice::<Body>(&called.body).ok();
    let found = body.and_then(|body| body.reason);
    let known = found.and_then(|found| REASONS.into_iter().find(|known| *known == found));
    let reason = known.unwrap_or("other");
    Read::Answer(Err(match (reason, called.status) {
        ("ExpiredProviderToken", _) => return Read::Renew(reason),
        ("BadChannelId" | "ChannelNotRegistered", _) => ChannelError::Unknown(reason),
        ("CannotCreateChannelConfig", _) => ChannelError::TooMany(reason),
        (_, 429) => ChannelError::Busy { reason, after: called.retry_after },
        (_, 400..=499) => ChannelError::Rejected(reason),
        (_, 500..=599) => ChannelError::Failed { reason, may_be_done: true },
        _ => ChannelError::Failed { reason, may_be_done: false },
    }))
}

/// `None`: Apple's answer has another form.
fn answer(call: &ChannelCall, called: &Called) -> Option<ChannelAnswer> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Settings {
        message_storage_policy: u8,
    }
    #[derive(Deserialize)]
    struct List {
        channels: Vec<String>,
    }
    match call {
        ChannelCall::Create(_) => {
            called.channel.clone().filter(|id| is_channel_id(id)).map(ChannelAnswer::Created)
        }
        ChannelCall::Read(_) => {
            let settings: Settings = serde_json::from_slice(&called.body).ok()?;
            StoragePolicy::from_code(settings.message_storage_policy).map(ChannelAnswer::Read)
        }
        ChannelCall::Delete(_) => Some(ChannelAnswer::Deleted),
        ChannelCall::List => {
            let list: List = serde_json::from_slice(&called.body).ok()?;
            Some(ChannelAnswer::Listed(list.channels))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(status: u16, channel: Option<&str>, body: &str) -> Called {
        let body = Bytes::copy_from_slice(body.as_bytes());
        Called { status, retry_after: None, channel: channel.map(str::to_owned), body }
    }

    fn answered(call: &ChannelCall, called: &Called) -> Result<ChannelAnswer, ChannelError> {
        match read(call, called) {
            Read::Answer(answer) => answer,
            Read::Renew(reason) => panic!("{reason}"),
        }
    }

    fn create() -> ChannelCall {
        ChannelCall::Create(StoragePolicy::Latest)
    }

    #[test]
    fn requests_have_apples_form() {
        let site = ChannelSite { origin: "https://a".into(), bundle: "com.example.app".to_owned() };
        let token = Bytes::from_static(b"bearer x");
        let id = uuid::Uuid::from_u128(7);
        let check = |call: &ChannelCall, method: &str, path: &str, body: &str, channel: Option<&str>| {
            let (found, request) = request(&site, call, id, Some(&token));
            let header = |name: &str| {
                let found = request.headers.iter().find(|header| header.name == name);
                found.map(|header| std::str::from_utf8(&header.value).unwrap().to_owned())
            };
            assert_eq!((found, request.path.as_str()), (method, path));
            assert_eq!(request.body, body.as_bytes());
            assert_eq!(header("apns-channel-id").as_deref(), channel);
            assert_eq!(header("authorization").as_deref(), Some("bearer x"));
            assert_eq!(header("apns-request-id"), Some(id.to_string()));
        };
        let channels = "/1/apps/com.example.app/channels";
        let body = r#"{"message-storage-policy":1,"push-type":"LiveActivity"}"#;
        check(&create(), "POST", channels, body, None);
        check(&ChannelCall::Read("Y2g=".to_owned()), "GET", channels, "", Some("Y2g="));
        check(&ChannelCall::Delete("Y2g=".to_owned()), "DELETE", channels, "", Some("Y2g="));
        check(&ChannelCall::List, "GET", "/1/apps/com.example.app/all-channels", "", None);
    }

    #[test]
    fn answers_are_read() {
        let created = answered(&create(), &called(201, Some("Y2g="), ""));
        assert_eq!(created, Ok(ChannelAnswer::Created("Y2g=".to_owned())));
        let settings = called(200, None, r#"{"message-storage-policy":1,"push-type":"LiveActivity"}"#);
        let read = answered(&ChannelCall::Read("x".to_owned()), &settings);
        assert_eq!(read, Ok(ChannelAnswer::Read(StoragePolicy::Latest)));
        let deleted = answered(&ChannelCall::Delete("x".to_owned()), &called(204, None, ""));
        assert_eq!(deleted, Ok(ChannelAnswer::Deleted));
        let listed = answered(&ChannelCall::List, &called(200, None, r#"{"channels":["a","b"]}"#));
        assert_eq!(listed, Ok(ChannelAnswer::Listed(vec!["a".to_owned(), "b".to_owned()])));
        // Success without its content: Apple may have done it.
        for (call, answer) in
            [(create(), called(201, None, "")), (ChannelCall::List, called(200, None, "[]"))]
        {
            let odd = ChannelError::Failed { reason: "other", may_be_done: true };
            assert_eq!(answered(&call, &answer), Err(odd));
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = |status, reason: &str| {
            answered(&create(), &called(status, None, &json!({"reason": reason}).to_string())).unwrap_err()
        };
        assert_eq!(error(400, "ChannelNotRegistered"), ChannelError::Unknown("ChannelNotRegistered"));
        assert_eq!(error(400, "BadChannelId"), ChannelError::Unknown("BadChannelId"));
        let too_many = ChannelError::TooMany("CannotCreateChannelConfig");
        assert_eq!(error(400, "CannotCreateChannelConfig"), too_many);
        for reason in ["FeatureNotEnabled", "TopicMismatch", "MissingPushType", "BadPath"] {
            assert_eq!(error(400, reason), ChannelError::Rejected(reason));
        }
        assert_eq!(error(403, "InvalidProviderToken"), ChannelError::Rejected("InvalidProviderToken"));
        let busy = ChannelError::Busy { reason: "TooManyRequests", after: None };
        assert_eq!(error(429, "TooManyRequests"), busy);
        let failed = ChannelError::Failed { reason: "InternalServerError", may_be_done: true };
        assert_eq!(error(500, "InternalServerError"), failed);
        assert_eq!(error(301, "x"), ChannelError::Failed { reason: "other", may_be_done: false });
        let expired = called(403, None, r#"{"reason":"ExpiredProviderToken"}"#);
        assert!(matches!(read(&create(), &expired), Read::Renew("ExpiredProviderToken")));
    }

    #[test]
    fn an_id_fits_a_header() {
        assert!(is_channel_id("dHN0LXNyY2gtY2hubA=="));
        for id in ["", "a b", "a\r\nb", "é", &"x".repeat(256)] {
            assert!(!is_channel_id(id), "{id}");
        }
    }
}

//! Collapse keys in the form that push services accept. FCM passes a notification on to APNs and to browsers, so
//! three folders need these.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::fields::is_header_value;

/// Bytes of `apns-collapse-id`.
pub(crate) const APNS_ID_BYTES_MAX: usize = 64;
/// RFC 8030 §5.4
const TOPIC_LENGTH_MAX: usize = 32;

/// The value of `apns-collapse-id`. A key that does not fit becomes its SHA-256 in base64url, which has 43 bytes.
pub(crate) fn apns_id(key: &str) -> String {
    match is_header_value(key) && key.len() <= APNS_ID_BYTES_MAX {
        true => key.to_owned(),
        false => URL_SAFE_NO_PAD.encode(digest(&SHA256, key.as_bytes())),
    }
}

/// The value of Web Push's `Topic`. A key that does not fit becomes 24 bytes of its SHA-256, which are
/// 32 characters of base64url; collisions are out of reach.
pub(crate) fn web_push_topic(key: &str) -> String {
    match is_web_push_topic(key) {
        true => key.to_owned(),
        false => URL_SAFE_NO_PAD.encode(&digest(&SHA256, key.as_bytes()).as_ref()[..24]),
    }
}

/// RFC 8030 §5.4
pub(crate) fn is_web_push_topic(text: &str) -> bool {
    (1..=TOPIC_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apns_id_hashes_a_key_that_no_header_can_carry() {
        assert_eq!(apns_id(&"k".repeat(64)).len(), 64);
        for key in ["サッカー", "two words", "line\nbreak", ""] {
            let id = apns_id(key);
            assert_eq!(id.len(), 43, "{key:?}");
            assert!(id.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        assert_ne!(apns_id("サッカー"), apns_id("テニス"));
    }

    #[test]
    fn web_push_topic_hashes_a_key_that_is_not_base64url() {
        assert_eq!(web_push_topic("score_7-A"), "score_7-A");
        assert_eq!(web_push_topic(&"k".repeat(32)), "k".repeat(32));
        for key in ["k".repeat(33), "a b".to_owned(), "スコア".to_owned(), "a/b".to_owned(), String::new()]
        {
            let topic = web_push_topic(&key);
            assert_eq!(topic.len(), 32, "{key:?}");
            assert!(is_web_push_topic(&topic));
        }
        assert_ne!(web_push_topic("a b"), web_push_topic("a/b"));
    }
}

//! The access token of an OAuth2 server (RFC 6749) that a client sends as `Bearer`. The pool fetches it, one fetch at a
//! time. It is due minutes before it expires, so that no push waits for the next one, and at most one renewal a minute is
//! allowed.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::exchange::{Authorization, Response};
use crate::fields::is_header_value;

/// The token is due this long before its expiry, or in the last quarter of a shorter lifetime.
const DUE_BEFORE: Duration = Duration::from_secs(5 * 60);
/// The peer reads a request within this time.
const USED_UNTIL_BEFORE: Duration = Duration::from_secs(30);
const RENEW_NO_SOONER: Duration = Duration::from_secs(60);
/// The usual lifetime if the response names none.
const LIFETIME_DEFAULT_SECONDS: u64 = 3_600;
const LIFETIME_MAX_SECONDS: u64 = 86_400;

/// The lock guards only the token. No signature and no `.await` happens under it.
#[derive(Debug, Default)]
pub(crate) struct AccessToken(Mutex<Option<Access>>);

struct Access {
    value: Bytes,
    fetched_at: Timestamp,
    due_at: Timestamp,
    used_until: Timestamp,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("used_until", &self.used_until).finish_non_exhaustive()
    }
}

/// RFC 6749 §5.1
#[derive(Deserialize)]
struct TokenResponse<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    expires_in: Option<u64>,
}

impl AccessToken {
    pub(crate) fn authorization(&self, now: Timestamp) -> Authorization {
        match &*self.0.lock() {
            Some(access) if now >= access.used_until => Authorization::Missing,
            Some(access) if now >= access.due_at => Authorization::Due(access.value.clone()),
            Some(access) => Authorization::Ready(access.value.clone()),
            None => Authorization::Missing,
        }
    }

    /// Whether the response has a token.
    pub(crate) fn store(&self, response: &Response<'_>) -> bool {
        let token = serde_json::from_slice::<TokenResponse<'_>>(response.body);
        let token = token.ok().filter(|token| response.status == 200 && is_header_value(&token.access_token));
        let Some(token) = token else { return false };
        let lifetime = token.expires_in.unwrap_or(LIFETIME_DEFAULT_SECONDS).min(LIFETIME_MAX_SECONDS);
        let lifetime = Duration::from_secs(lifetime);
        let before =
            |margin: Duration| response.now.saturating_add(lifetime.saturating_sub(margin.min(lifetime / 4)));
        *self.0.lock() = Some(Access {
            value: Bytes::from(format!("Bearer {}", token.access_token)),
            fetched_at: response.now,
            due_at: before(DUE_BEFORE),
            used_until: before(USED_UNTIL_BEFORE),
        });
        true
    }

    /// As [`crate::exchange::Client::renew`].
    pub(crate) fn renew(&self, used: &Bytes, now: Timestamp) -> bool {
        let mut access = self.0.lock();
        match &*access {
            Some(last) if last.value == used => {
                let old = now < last.fetched_at || now.saturating_since(last.fetched_at) >= RENEW_NO_SOONER;
                if old {
                    *access = None;
                }
                old
            }
            _ => true,
        }
    }
}

//! The first call of an app: everything that it shows at start, in one response.
//!
//! ```text
//!   GET /v1/me ─► cache ─┬─ fresh ──────────────────────────────┬─► 304, or the prepared bytes
//!                        └─ stale ─► store ─► body ─► cache ────┘
//! ```
//!
//! A cached device is used until it changes ([`noroshi_delivery::first_call`]), at most [`limits::FIRST_CALL_TTL`].
//! Experiments and notices always come from memory. A prepared response is reused while all its inputs are the same, so a
//! warm call neither reads the store nor encodes JSON.

mod body;
mod cache;

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use noroshi_auth::Identity;
use noroshi_delivery::Delivery;
use noroshi_delivery::first_call::tags_of;
use noroshi_store::FirstCall;
use noroshi_types::{Presence, Timestamp, limits};

use crate::address::Addresses;
use crate::connection::Peer;
use crate::error::Problem;
use crate::metrics::Metrics;
use crate::request::access::{DeviceStatus, device_status, own_device};

pub use cache::FirstCalls;
use cache::{Entry, Inputs, Prepared};

/// Private, and revalidated with every request (RFC 9111 §5.2.2.4).
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, no-cache");
const VARY: HeaderValue = HeaderValue::from_static("authorization");

/// A response to a first call.
pub(crate) struct Answer(Arc<Prepared>);

impl Answer {
    /// 304 if the client already has it.
    pub(crate) fn respond(&self, headers: &HeaderMap) -> Response {
        let conditions = headers.get_all(header::IF_NONE_MATCH).iter();
        let has = |value: &HeaderValue| value.to_str().is_ok_and(|tags| names(tags, &self.0.tag));
        let mut response = match conditions.into_iter().any(has) {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.whole(),
        };
        // RFC 9110 §15.4.5: a 304 has the headers of the 200.
        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.0.tag.clone());
        headers.insert(header::CACHE_CONTROL, CACHE_CONTROL);
        headers.insert(header::VARY, VARY);
        response
    }

    pub(crate) fn whole(&self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0.bytes.clone()).into_response()
    }
}

/// RFC 9110 §13.1.2: any of them, compared weakly, or `*`.
fn names(tags: &str, own: &HeaderValue) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/") == own.to_str().unwrap_or_default();
    tags.trim() == "*" || tags.split(',').any(opaque)
}

/// Answers first calls.
pub struct FirstCallService {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) cache: FirstCalls,
    pub(crate) metrics: Metrics,
}

impl FirstCallService {
    /// The answer for the device of this credential. Creates the device if the credential allows that.
    pub(crate) async fn answer(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Answer, Problem> {
        let now = self.delivery.clock().now();
        let known = self.cache.find(identity.app, &identity.device);
        let fresh = known.clone().filter(|entry| {
            let is_current = device_status(Some(&entry.call.device), identity, now) == DeviceStatus::Current;
            is_current && entry.is_valid(now) && self.delivery.freshness.is_fresh(&entry.tags, entry.mark)
        });
        self.metrics.first_call(fresh.is_some());
        let entry = match fresh {
            Some(entry) => entry,
            None => Arc::new(self.read(identity, now).await?),
        };
        self.delivery.seen.device(entry.call.device.num);
        let current = self.delivery.first_calls.current(identity.app);
        let session = self.delivery.context.local_session(identity.app, &identity.device);
        let presence = session.map_or(entry.presence, |session| session.presence);
        // A device keeps the address of its first answer, so that all its answers are the same.
        let before = known.as_ref().and_then(|known| known.prepared());
        let before = before.as_ref().map(|prepared| &*prepared.inputs.base);
        let base = self.addresses.device_base(before, headers, peer);
        let inputs = Inputs { version: current.version, presence, base };
        let prepared = match entry.prepared().filter(|prepared| prepared.inputs == inputs) {
            Some(prepared) => prepared,
            None => {
                let body = body::encode(&entry.call, &current, &inputs, &self.addresses)?;
                let prepared = Arc::new(Prepared::new(body, inputs));
                entry.prepare(prepared.clone());
                self.cache.put(entry);
                prepared
            }
        };
        Ok(Answer(prepared))
    }

    /// One round trip to the store and, in a cluster, one to the directory at the same time.
    async fn read(&self, identity: &Identity, now: Timestamp) -> Result<Entry, Problem> {
        let mark = self.delivery.freshness.mark();
        let (call, elsewhere) = tokio::join!(
            self.read_store(identity, now),
            self.delivery.sessions.elsewhere(identity.app, &identity.device),
        );
        let call = match call {
            Ok(call) => call,
            Err(error) => return Err(error.into()),
        };
        match device_status(call.as_ref().map(|call| &call.device), identity, now) {
            DeviceStatus::Revoked => Err(Problem::revoked()),
            DeviceStatus::Current => {
                let presence = elsewhere.map_or(Presence::Offline, |session| session.presence);
                Ok(entry(call.ok_or_else(Problem::revoked)?, mark, presence, now))
            }
            DeviceStatus::NeedsRegistration => {
                own_device(&self.delivery, identity).await?;
                // The registration changed the device, so the entry needs a mark after it.
                let mark = self.delivery.freshness.mark();
                let call = self.read_store(identity, now).await?.ok_or_else(Problem::revoked)?;
                Ok(entry(call, mark, Presence::Offline, now))
            }
        }
    }

    async fn read_store(
        &self,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<Option<FirstCall>, noroshi_store::Error> {
        let newest = limits::FIRST_CALL_MESSAGES;
        self.delivery.store().first_call(identity.app, &identity.device, newest, now).await
    }
}

fn entry(
    call: FirstCall,
    mark: noroshi_delivery::first_call::Mark,
    presence: Presence,
    now: Timestamp,
) -> Entry {
    let until = now.saturating_add(limits::FIRST_CALL_TTL);
    let until = call.expires_at.map_or(until, |expires_at| expires_at.min(until));
    Entry::new(tags_of(&call.device), call, mark, presence, now..until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_a_tag() {
        let own = HeaderValue::from_static("\"abc\"");
        for (tags, expected) in [
            ("\"abc\"", true),
            ("W/\"abc\"", true),
            ("\"x\", \"abc\"", true),
            ("*", true),
            ("\"x\"", false),
            ("abc", false),
            ("", false),
        ] {
            assert_eq!(names(tags, &own), expected, "{tags}");
        }
    }
}

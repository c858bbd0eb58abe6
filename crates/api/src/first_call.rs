//! The first call of an app: everything that it shows before anything else, in one answer.
//!
//! ```text
//!   GET /v1/me ─► cache ─┬─ fresh ───────────────────────────────────┬─► 304, or the bytes as they are
//!                        └─ else one read of the store ─► body ─► cache ┘
//! ```
//!
//! What was read of a device is used again until something says that it changed ([`noroshi_delivery::first_call`]), at most
//! [`limits::FIRST_CALL_TTL`]; experiments and notices come from memory in any case. An answer that is ready is given as
//! long as nothing of it changed, so a warm call neither asks the store nor makes JSON.

mod body;
mod cache;

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use noroshi_auth::Identity;
use noroshi_delivery::first_call::tags_of;
use noroshi_store::FirstCall;
use noroshi_types::{Presence, Timestamp, limits};

use crate::access::{Standing, own_device, revoked, standing};
use crate::error::Problem;
use crate::handler::device::address_asked;
use crate::state::{Peer, State};
use body::made_of;
pub use cache::FirstCalls;
use cache::{Entry, Prepared, Shown};

/// A private answer that may be kept as long as it is asked for again each time (RFC 9111 §5.2.2.4).
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, no-cache");
const VARY: HeaderValue = HeaderValue::from_static("authorization");

/// What a device is told.
pub(crate) struct Answer(Arc<Prepared>);

impl Answer {
    /// 304 where the client has it already.
    pub(crate) fn respond(&self, asked: &HeaderMap) -> Response {
        let conditions = asked.get_all(header::IF_NONE_MATCH).iter();
        let has = |value: &HeaderValue| value.to_str().is_ok_and(|tags| names(tags, &self.0.tag));
        let mut response = match conditions.into_iter().any(has) {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.whole(),
        };
        // RFC 9110 §15.4.5: a 304 has what the 200 would have had.
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

/// For the device of this credential, which is made where the credential may do that.
pub(crate) async fn answer(
    api: &State,
    identity: &Identity,
    headers: &HeaderMap,
    peer: Option<&Peer>,
) -> Result<Answer, Problem> {
    let now = api.now();
    let known = api.first_calls.find(identity.app, &identity.device);
    let fresh = known.clone().filter(|entry| {
        let good = standing(Some(&entry.call.device), identity, now) == Standing::Good;
        good && entry.holds(now) && api.delivery.is_fresh(&entry.tags, entry.mark)
    });
    api.metrics.first_call(fresh.is_some());
    let entry = match fresh {
        Some(entry) => entry,
        None => Arc::new(read(api, identity, now).await?),
    };
    let current = api.delivery.current(identity.app);
    let here = api.delivery.session_here(identity.app, &identity.device);
    let presence = here.map_or(entry.presence, |session| session.presence);
    // A device that was told an address is told the same, so that its answer stays as it is.
    let told = known.as_ref().and_then(|known| known.prepared()).map(|prepared| prepared.shown.base.clone());
    let shown = Shown { version: current.version, presence, base: base(api, told, headers, peer) };
    let prepared = match entry.prepared().filter(|prepared| prepared.shown == shown) {
        Some(prepared) => prepared,
        None => {
            let body = made_of(&entry.call, &current, &shown, &api.config)?;
            let prepared = Arc::new(Prepared::new(body, shown));
            entry.prepare(prepared.clone());
            api.first_calls.put(entry);
            prepared
        }
    };
    Ok(Answer(prepared))
}

/// One round trip to the store; and, where there are other nodes, one to their directory at the same time.
async fn read(api: &State, identity: &Identity, now: Timestamp) -> Result<Entry, Problem> {
    let mark = api.delivery.mark();
    let (call, elsewhere) = tokio::join!(
        first_call(api, identity, now),
        api.delivery.session_elsewhere(identity.app, &identity.device),
    );
    let call = match standing(call.as_ref().ok().and_then(|call| Some(&call.as_ref()?.device)), identity, now)
    {
        _ if call.is_err() => return Err(call.err().map_or_else(revoked, Problem::from)),
        Standing::Revoked => return Err(revoked()),
        Standing::Good => call.ok().flatten(),
        Standing::ToBeMade => {
            own_device(api, identity).await?;
            // Making it was a change: what is read now is from behind it.
            let made = api.delivery.mark();
            let call = first_call(api, identity, now).await?.ok_or_else(revoked)?;
            return Ok(entry(call, made, Presence::Offline, now));
        }
    };
    let presence = elsewhere.map_or(Presence::Offline, |session| session.presence);
    Ok(entry(call.ok_or_else(revoked)?, mark, presence, now))
}

async fn first_call(
    api: &State,
    identity: &Identity,
    now: Timestamp,
) -> Result<Option<FirstCall>, noroshi_store::Error> {
    let newest = limits::FIRST_CALL_MESSAGES;
    api.delivery.store().first_call(identity.app, &identity.device, newest, now).await
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

/// The configured address, the gateway of the cluster that the device was told before, or the one that this request
/// came to.
fn base(api: &State, told: Option<String>, headers: &HeaderMap, peer: Option<&Peer>) -> String {
    if let Some(url) = &api.config.public_url {
        return url.clone();
    }
    let of_the_cluster = api.nodes.as_ref().and_then(|nodes| match told {
        Some(told) => nodes.gateway_again(&told),
        None => nodes.gateway(),
    });
    of_the_cluster.unwrap_or_else(|| address_asked(headers, peer))
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

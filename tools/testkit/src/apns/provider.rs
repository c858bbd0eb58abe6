//! Provider tokens: ES256 with the registered key, issued by the team, at most one hour old, and renewed at
//! most once in 20 minutes (Apple, "Establishing a token-based connection to APNs").
//!
//! The last valid token is kept as text, so that checking a repeated one is a comparison.

use http::HeaderMap;

use super::Wrong;
use crate::behaviour::Renewal;
use crate::jwt::{Algorithm, Unverified};
use crate::keys::{KEY_ID, TEAM_ID};
use crate::rules::single;

const AGE_S_MAX: u64 = 60 * 60;
const RENEWAL_S_MIN: u64 = 20 * 60;
/// Clock skew: tokens issued slightly in the future are accepted.
const AHEAD_S_MAX: u64 = 60;

pub(super) struct Providers {
    public: Vec<u8>,
    pub(super) renewal: Renewal,
    current: Option<Current>,
    /// The previous token: pushes that were sent with it may still arrive.
    previous: Option<Current>,
}

struct Current {
    /// `bearer …`
    text: String,
    issued_s: u64,
    /// When it was first received.
    since_s: u64,
}

impl Providers {
    pub(super) fn new(public: Vec<u8>) -> Self {
        Self { public, renewal: Renewal::Team, current: None, previous: None }
    }

    /// Returns the team.
    pub(super) fn check(&mut self, headers: &HeaderMap, now_s: u64) -> Result<&'static str, Wrong> {
        let invalid = Wrong(403, "InvalidProviderToken");
        let text = single(headers, "authorization").map_err(|()| invalid)?;
        let text = text.ok_or(Wrong(403, "MissingProviderToken"))?;
        let known = [&self.current, &self.previous].into_iter().flatten().find(|known| known.text == text);
        if let Some(known) = known {
            return fresh(known.issued_s, now_s);
        }
        let token = text.strip_prefix("bearer ").ok_or(invalid)?;
        let token = Unverified::read(token).map_err(|_| invalid)?;
        token.verify(Algorithm::Es256, &self.public).map_err(|_| invalid)?;
        if token.header.get("kid").is_none_or(|kid| kid != KEY_ID) || token.text("iss") != Some(TEAM_ID) {
            return Err(invalid);
        }
        let issued_s = token.seconds("iat").ok_or(invalid)?;
        fresh(issued_s, now_s)?;
        if let Some(current) = &self.current
            && self.renewal == Renewal::Team
            && now_s < current.since_s + RENEWAL_S_MIN
        {
            return Err(Wrong(429, "TooManyProviderTokenUpdates"));
        }
        self.previous = self.current.take();
        self.current = Some(Current { text: text.to_owned(), issued_s, since_s: now_s });
        Ok(TEAM_ID)
    }
}

fn fresh(issued_s: u64, now_s: u64) -> Result<&'static str, Wrong> {
    match now_s.checked_sub(issued_s) {
        Some(age_s) if age_s > AGE_S_MAX => Err(Wrong(403, "ExpiredProviderToken")),
        Some(_) => Ok(TEAM_ID),
        None if issued_s - now_s <= AHEAD_S_MAX => Ok(TEAM_ID),
        None => Err(Wrong(403, "InvalidProviderToken")),
    }
}

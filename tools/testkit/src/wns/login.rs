//! The token endpoint of Microsoft Entra ID: client credentials for an access token that is valid for a day. The WNS fake
//! accepts only these tokens.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use crate::behaviour::Scripted;
use crate::form::unescape;
use crate::keys::{WNS_CLIENT_ID, WNS_SECRET};
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};

const SCOPE: &str = "https://wns.windows.com/.default";
const LIFE_S: u64 = 86_400;
/// Maximum number of valid tokens.
const TOKENS_MAX: usize = 1_000;

/// The issued access tokens with their expiry.
#[derive(Debug, Default)]
pub(crate) struct AccessTokens(Mutex<VecDeque<(String, u64)>>);

impl AccessTokens {
    fn issue(&self, now_ms: u64) -> String {
        let token = format!("EgA.{}", uuid::Uuid::now_v7().simple());
        let mut tokens = self.0.lock();
        if tokens.len() >= TOKENS_MAX {
            tokens.pop_front();
        }
        tokens.push_back((token.clone(), now_ms + LIFE_S * 1_000));
        token
    }

    pub(super) fn is_valid(&self, token: &str, now_ms: u64) -> bool {
        self.0.lock().iter().any(|(issued, expires_ms)| issued == token && *expires_ms > now_ms)
    }

    /// Revokes all tokens.
    pub(crate) fn revoke(&self) {
        self.0.lock().clear();
    }
}

pub(crate) struct Login {
    tokens: Arc<AccessTokens>,
}

impl Login {
    pub(crate) fn new(tokens: Arc<AccessTokens>) -> Self {
        Self { tokens }
    }

    fn check(request: &IncomingRequest<'_>) -> Result<(), (u16, &'static str)> {
        let invalid = (400, "invalid_request");
        if request.method != Method::POST || request.path != "/token" {
            return Err(invalid);
        }
        let content_type = single(request.headers, "content-type").ok().flatten();
        if content_type != Some("application/x-www-form-urlencoded") {
            return Err(invalid);
        }
        let form = std::str::from_utf8(request.body).map_err(|_| invalid)?;
        let mut fields = HashMap::new();
        for pair in form.split('&') {
            let (name, value) = pair.split_once('=').ok_or(invalid)?;
            if fields.insert(name, unescape(value).ok_or(invalid)?).is_some() {
                return Err(invalid);
            }
        }
        let is = |name, expected: &str| fields.get(name).is_some_and(|value| value == expected);
        if fields.len() != 4 || !is("grant_type", "client_credentials") {
            return Err((400, "unsupported_grant_type"));
        }
        if !is("scope", SCOPE) {
            return Err((400, "invalid_scope"));
        }
        match is("client_id", WNS_CLIENT_ID) && is("client_secret", WNS_SECRET) {
            true => Ok(()),
            false => Err((401, "invalid_client")),
        }
    }
}

impl Rules for Login {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let reply = match Self::check(request) {
            Ok(()) => {
                let token = self.tokens.issue(request.now_ms);
                let body = json!({"token_type": "Bearer", "expires_in": LIFE_S, "access_token": token});
                Reply::new(200, "").with("content-type", "application/json").body(body.to_string())
            }
            Err((status, error)) => refused(status, error),
        };
        Verdict { token: WNS_CLIENT_ID.to_owned(), reply, ..Verdict::default() }
    }

    fn scripted(&self, script: &Scripted, _: &Verdict, _: u64) -> Reply {
        refused(
            script.status,
            if script.reason.is_empty() { "temporarily_unavailable" } else { &script.reason },
        )
    }
}

fn refused(status: u16, error: &str) -> Reply {
    Reply::new(status, error)
        .with("content-type", "application/json")
        .body(json!({"error": error}).to_string())
}

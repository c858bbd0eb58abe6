//! Google's token endpoint: exchanges a signed assertion of the service account for an access token that is
//! valid for one hour (RFC 7523; "Using OAuth 2.0 for Server to Server Applications"). The FCM fake accepts
//! only these tokens.

use std::collections::VecDeque;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use super::json_reply;
use crate::behaviour::Scripted;
use crate::form::unescape;
use crate::jwt::{Algorithm, Unverified};
use crate::keys::{ACCOUNT, GOOGLE_TOKEN_URL};
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/firebase.messaging", "https://www.googleapis.com/auth/cloud-platform"];
const LIFE_S: u64 = 3_600;
/// Clock skew.
const SKEW_S: u64 = 60;
/// Maximum number of valid tokens.
const TOKENS_MAX: usize = 1_000;

/// The issued access tokens.
#[derive(Debug, Default)]
pub(crate) struct AccessTokens(Mutex<VecDeque<Issued>>);

#[derive(Debug)]
struct Issued {
    token: String,
    expires_ms: u64,
}

impl AccessTokens {
    fn issue(&self, now_ms: u64) -> String {
        let token = format!("ya29.{}{}", uuid::Uuid::now_v7().simple(), uuid::Uuid::now_v7().simple());
        let mut tokens = self.0.lock();
        if tokens.len() >= TOKENS_MAX {
            tokens.pop_front();
        }
        tokens.push_back(Issued { token: token.clone(), expires_ms: now_ms + LIFE_S * 1_000 });
        token
    }

    /// Fails with the reason for Google's `ErrorInfo`.
    pub(super) fn check(&self, token: &str, now_ms: u64) -> Result<(), &'static str> {
        let tokens = self.0.lock();
        match tokens.iter().rev().find(|issued| issued.token == token) {
            Some(issued) if issued.expires_ms > now_ms => Ok(()),
            Some(_) => Err("ACCESS_TOKEN_EXPIRED"),
            None => Err("ACCESS_TOKEN_TYPE_UNSUPPORTED"),
        }
    }

    /// Revokes all tokens, as when a key is revoked.
    pub(crate) fn revoke(&self) {
        self.0.lock().clear();
    }
}

pub(crate) struct OAuth {
    tokens: Arc<AccessTokens>,
    /// DER `RSAPublicKey`.
    public: Vec<u8>,
    /// The fake's own address, which is also accepted as audience.
    url: String,
}

impl OAuth {
    pub(crate) fn new(tokens: Arc<AccessTokens>, public: Vec<u8>, url: String) -> Self {
        Self { tokens, public, url }
    }

    fn check(&self, request: &IncomingRequest<'_>) -> Result<(), (&'static str, &'static str)> {
        let invalid = |why| ("invalid_request", why);
        if request.method != Method::POST || request.path != "/token" {
            return Err(invalid("only POST /token is supported"));
        }
        let content_type = single(request.headers, "content-type").ok().flatten().unwrap_or_default();
        if content_type.split(';').next() != Some("application/x-www-form-urlencoded") {
            return Err(invalid("the content type must be application/x-www-form-urlencoded"));
        }
        let form = std::str::from_utf8(request.body).map_err(|_| invalid("the body is not a form"))?;
        let (mut grant, mut assertion) = (None, None);
        for pair in form.split('&') {
            let (name, value) = pair.split_once('=').ok_or(invalid("the body is not a form"))?;
            let value = unescape(value).ok_or(invalid("the body is not a form"))?;
            let place = match name {
                "grant_type" => &mut grant,
                "assertion" => &mut assertion,
                _ => return Err(invalid("unknown parameter")),
            };
            if place.replace(value).is_some() {
                return Err(invalid("repeated parameter"));
            }
        }
        if grant.as_deref() != Some(GRANT) {
            return Err(("unsupported_grant_type", "Invalid grant_type"));
        }
        self.check_assertion(&assertion.unwrap_or_default(), request.now_ms / 1_000)
    }

    fn check_assertion(&self, assertion: &str, now_s: u64) -> Result<(), (&'static str, &'static str)> {
        let invalid = |why| ("invalid_grant", why);
        let token = Unverified::read(assertion).map_err(invalid)?;
        token.verify(Algorithm::Rs256, &self.public).map_err(|_| invalid("Invalid JWT Signature."))?;
        if token.text("iss") != Some(ACCOUNT) {
            return Err(invalid("Invalid grant: account not found"));
        }
        if !token.text("aud").is_some_and(|aud| aud == GOOGLE_TOKEN_URL || aud == self.url) {
            return Err(invalid("Invalid JWT: Failed audience check."));
        }
        let scopes = token.text("scope").unwrap_or_default();
        if !scopes.split(' ').any(|scope| SCOPES.contains(&scope)) {
            return Err(("invalid_scope", "Invalid OAuth scope or ID token audience provided."));
        }
        let window =
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.";
        let issued = token.seconds("iat").ok_or(invalid(window))?;
        let expires = token.seconds("exp").ok_or(invalid(window))?;
        let fresh =
            issued <= now_s + SKEW_S && expires > now_s && expires > issued && expires <= issued + LIFE_S;
        if fresh { Ok(()) } else { Err(invalid(window)) }
    }
}

impl Rules for OAuth {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let reply = match self.check(request) {
            Ok(()) => {
                let token = self.tokens.issue(request.now_ms);
                let body = json!({"access_token": token, "expires_in": LIFE_S - 1, "token_type": "Bearer"});
                json_reply(200, "", &body)
            }
            Err((error, why)) => json_reply(400, error, &json!({"error": error, "error_description": why})),
        };
        Verdict { token: ACCOUNT.to_owned(), reply, ..Verdict::default() }
    }

    fn scripted(&self, script: &Scripted, _judged: &Verdict, _now_ms: u64) -> Reply {
        let error = match (script.status, script.reason.as_str()) {
            (500.., "") => "internal_failure",
            (_, "") => "invalid_grant",
            (_, reason) => reason,
        };
        json_reply(script.status, error, &json!({"error": error}))
    }
}

//! Google's token endpoint: a signed assertion of the service account becomes an access token of an hour
//! (RFC 7523; "Using OAuth 2.0 for Server to Server Applications"). FCM's fake believes these tokens alone.

use std::collections::VecDeque;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use super::json_reply;
use crate::ask::{Ask, Judge, Judged, Reply, single};
use crate::behaviour::Scripted;
use crate::form::unescape;
use crate::jwt::{Algorithm, Unverified};
use crate::keys::{ACCOUNT, GOOGLE_TOKEN_URL};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/firebase.messaging", "https://www.googleapis.com/auth/cloud-platform"];
const LIFE_S: u64 = 3_600;
/// Clocks differ.
const SKEW_S: u64 = 60;
/// Tokens that are believed at a time.
const TOKENS_MAX: usize = 1_000;

/// The access tokens given out.
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

    /// The reason of Google's `ErrorInfo`.
    pub(super) fn check(&self, token: &str, now_ms: u64) -> Result<(), &'static str> {
        let tokens = self.0.lock();
        match tokens.iter().rev().find(|issued| issued.token == token) {
            Some(issued) if issued.expires_ms > now_ms => Ok(()),
            Some(_) => Err("ACCESS_TOKEN_EXPIRED"),
            None => Err("ACCESS_TOKEN_TYPE_UNSUPPORTED"),
        }
    }

    /// None is believed any more, as after a key was revoked.
    pub(crate) fn revoke(&self) {
        self.0.lock().clear();
    }
}

pub(crate) struct OAuth {
    tokens: Arc<AccessTokens>,
    /// DER `RSAPublicKey`.
    public: Vec<u8>,
    /// The fake's own address, which is as good an audience as Google's.
    url: String,
}

impl OAuth {
    pub(crate) fn new(tokens: Arc<AccessTokens>, public: Vec<u8>, url: String) -> Self {
        Self { tokens, public, url }
    }

    fn check(&self, ask: &Ask<'_>) -> Result<(), (&'static str, &'static str)> {
        let invalid = |why| ("invalid_request", why);
        if ask.method != Method::POST || ask.path != "/token" {
            return Err(invalid("POST /token is all there is"));
        }
        let content_type = single(ask.headers, "content-type").ok().flatten().unwrap_or_default();
        if content_type.split(';').next() != Some("application/x-www-form-urlencoded") {
            return Err(invalid("the content type is not application/x-www-form-urlencoded"));
        }
        let form = std::str::from_utf8(ask.body).map_err(|_| invalid("the body is no form"))?;
        let (mut grant, mut assertion) = (None, None);
        for pair in form.split('&') {
            let (name, value) = pair.split_once('=').ok_or(invalid("the body is no form"))?;
            let value = unescape(value).ok_or(invalid("the body is no form"))?;
            let place = match name {
                "grant_type" => &mut grant,
                "assertion" => &mut assertion,
                _ => return Err(invalid("a parameter is unknown")),
            };
            if place.replace(value).is_some() {
                return Err(invalid("a parameter is there twice"));
            }
        }
        if grant.as_deref() != Some(GRANT) {
            return Err(("unsupported_grant_type", "Invalid grant_type"));
        }
        self.check_assertion(&assertion.unwrap_or_default(), ask.now_ms / 1_000)
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

impl Judge for OAuth {
    fn judge(&self, ask: &Ask<'_>) -> Judged {
        let reply = match self.check(ask) {
            Ok(()) => {
                let token = self.tokens.issue(ask.now_ms);
                let body = json!({"access_token": token, "expires_in": LIFE_S - 1, "token_type": "Bearer"});
                json_reply(200, "", &body)
            }
            Err((error, why)) => json_reply(400, error, &json!({"error": error, "error_description": why})),
        };
        Judged { token: ACCOUNT.to_owned(), reply, ..Judged::default() }
    }

    fn scripted(&self, script: &Scripted, _judged: &Judged, _now_ms: u64) -> Reply {
        let error = match (script.status, script.reason.as_str()) {
            (500.., "") => "internal_failure",
            (_, "") => "invalid_grant",
            (_, reason) => reason,
        };
        let reply = json_reply(script.status, error, &json!({"error": error}));
        match script.retry_after_s {
            Some(seconds) => reply.with("retry-after", seconds.to_string()),
            None => reply,
        }
    }
}

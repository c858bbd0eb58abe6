//! Asks the application for tokens: one request at a time, a new token before the old one expires or after a rejection (T, K).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::effect::Effect;
use super::machine::{Machine, Moment};
use super::timer::Timer;
use crate::error::{Code, Error};
use crate::token::{TokenError, TokenReason};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any process.
const LIFETIME_MAX_MS: f64 = 100.0 * 365.0 * 24.0 * 3_600_000.0;

/// Who waits for a token.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiter {
    /// A connection, by the number of the attempt.
    Open {
        attempt: u64,
    },
    /// The renewal of a session.
    Renew {
        attempt: u64,
    },
    Call {
        n: u64,
    },
}

#[derive(Debug, Default)]
pub(super) struct Tokens {
    pub(super) current: Option<String>,
    /// When to ask for the next token.
    pub(super) renew_at: Option<Duration>,
    reason: TokenReason,
    previous: Option<String>,
    n: u64,
    is_asking: bool,
    waiting: Vec<Waiter>,
}

impl Tokens {
    /// Drops a token, if it is still the current one.
    pub(super) fn reject(&mut self, token: &str) {
        if self.current.as_deref() == Some(token) {
            self.reason = TokenReason::Rejected;
            self.previous = self.current.take();
            self.renew_at = None;
        }
    }
}

impl Machine {
    /// Calls back with the current token, or with a new one.
    pub(super) fn take_token(&mut self, waiter: Waiter) {
        match self.tokens.current.clone() {
            Some(token) => self.token_for(waiter, Ok(&token)),
            None => self.ask_token(waiter),
        }
    }

    /// Calls back with a new token. The current one stays in use until then.
    pub(super) fn renew_token(&mut self, waiter: Waiter) {
        if self.tokens.current.is_some() {
            self.tokens.reason = TokenReason::Expiring;
            self.tokens.previous.clone_from(&self.tokens.current);
        }
        self.ask_token(waiter);
    }

    fn ask_token(&mut self, waiter: Waiter) {
        self.tokens.waiting.push(waiter);
        if self.tokens.is_asking {
            return; // T2
        }
        self.tokens.n += 1;
        self.tokens.is_asking = true;
        let Tokens { n, reason, .. } = self.tokens;
        self.emit(Effect::AskToken { n, reason, previous: self.tokens.previous.clone() });
        self.timers.set(Timer::Token, self.now.at + TIMEOUT);
    }

    pub(super) fn token_timeout(&mut self) {
        let n = self.tokens.n;
        self.emit(Effect::CancelToken { n });
        self.settle_token(Err(Error::new(Code::TokenFailed, "no token after 30 s")));
    }

    /// The answer to `AskToken`.
    pub(crate) fn token_arrived(&mut self, now: Moment, n: u64, result: Result<String, TokenError>) {
        self.input(now, |m| {
            if !m.tokens.is_asking || n != m.tokens.n {
                return;
            }
            m.settle_token(match result {
                Ok(token) => Ok(token),
                Err(TokenError::SignedOut) => Err(Error::new(Code::SignedOut, "nobody is signed in")),
                Err(TokenError::Failed(cause)) => {
                    Err(Error::new(Code::TokenFailed, format!("no token: {cause}")).caused_by(cause))
                }
            });
        });
    }

    fn settle_token(&mut self, result: Result<String, Error>) {
        self.tokens.is_asking = false;
        self.timers.clear(Timer::Token);
        let result = result.and_then(|token| {
            let failed = |text| Err(Error::new(Code::TokenFailed, text));
            match () {
                () if token.is_empty() => failed("the application returned an empty token"),
                // T3
                () if self.tokens.previous.as_ref() == Some(&token) => {
                    failed("the application returned the previous token")
                }
                () => Ok(token),
            }
        });
        if let Ok(token) = &result {
            self.tokens.renew_at = self.renewal(token);
            self.tokens.current = Some(token.clone());
        }
        for waiter in std::mem::take(&mut self.tokens.waiting) {
            self.token_for(waiter, result.as_deref().map_err(Clone::clone));
        }
    }

    fn token_for(&mut self, waiter: Waiter, result: Result<&str, Error>) {
        match waiter {
            Waiter::Open { attempt } => self.token_to_open(attempt, result),
            Waiter::Renew { attempt } => self.token_to_renew(attempt, result),
            Waiter::Call { n } => self.token_to_call(n, result),
        }
    }

    /// The time at which the next token is requested (T4, K1 to K3).
    fn renewal(&self, token: &str) -> Option<Duration> {
        let claims = claims(token)?; // T8
        let here = self.now.unix.as_secs_f64() * 1_000.0;
        let end = claims.exp? * 1_000.0;
        let issued = claims.iat.map_or(here, |iat| iat * 1_000.0);
        // K2: the clock contradicts a token that the application has just obtained.
        let left = if here < issued || here >= end { end - issued } else { end - here };
        if left <= 0.0 {
            return None; // K3
        }
        let margin = (left / 5.0).min(60_000.0);
        let wait = (left - margin * (1.0 + self.random() / 2.0)).max((left / 2.0).min(1_000.0));
        Some(self.now.at + Duration::from_secs_f64(wait.min(LIFETIME_MAX_MS) / 1_000.0))
    }
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
    iat: Option<f64>,
}

/// None for tokens that are no JWT.
fn claims(token: &str) -> Option<Claims> {
    let payload = token.split('.').nth(1)?;
    let text = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&text).ok()?;
    let is_finite = |number: Option<f64>| number.is_none_or(f64::is_finite);
    (is_finite(claims.exp) && is_finite(claims.iat)).then_some(claims)
}

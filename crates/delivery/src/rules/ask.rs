//! Asking an app's webhook whether a device may use a topic.
//!
//! A question is one POST of JSON, signed as Standard Webhooks says (<https://www.standardwebhooks.com>, version 1), like
//! batches of the event log. The answer is `{"allow": true}` with status 200, and may say for how long it counts
//! (`"expires_in": "5m"`). Anything else is a no that is not kept: the next attempt asks again.
//!
//! Each app has its own bound on questions under way and waiting, so a webhook that hangs delays no other app.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_egress::Limits;
use noroshi_egress::fetch::Post;
use noroshi_events::sink::webhook::signature;
use noroshi_types::AppId;
use noroshi_types::rule::{Action, Webhook};
use noroshi_types::time::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::cache::Question;
use super::metrics::Asked;
use super::{AppRules, Holder, Reason, Verdict};
use crate::Delivery;

/// Questions of one app that are under way at once.
pub const UNDER_WAY_MAX: usize = 16;
/// And with those that wait for their turn. More are answered with no.
const OPEN_MAX: usize = 1_024;
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// However long an answer says that it counts.
const EXPIRES_IN_MAX: Duration = Duration::from_secs(86_400);

/// Questions of one app.
#[derive(Debug)]
pub(super) struct Asks {
    turns: Semaphore,
    open: AtomicUsize,
}

impl Default for Asks {
    fn default() -> Self {
        Self { turns: Semaphore::new(UNDER_WAY_MAX), open: AtomicUsize::new(0) }
    }
}

/// Counts an open question until it is dropped.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Asks {
    fn begin(&self) -> Option<Open<'_>> {
        let open = Open(&self.open);
        (self.open.fetch_add(1, Ordering::Relaxed) < OPEN_MAX).then_some(open)
    }
}

#[derive(Serialize)]
struct QuestionBody<'a> {
    app: &'a str,
    device: &'a str,
    user: Option<&'a str>,
    action: &'static str,
    topic: &'a str,
    protocol: &'static str,
}

#[derive(Deserialize)]
struct AnswerBody {
    allow: bool,
    expires_in: Option<String>,
}

impl Delivery {
    pub(super) async fn ask_webhook(
        &self,
        app: &AppRules,
        holder: &Holder,
        action: Action,
        topic: &str,
        protocol: &'static str,
    ) -> Verdict {
        let Some(webhook) = app.rules.webhook() else { return Verdict::Denied(Reason::Unanswered) };
        let Some(_open) = app.asks.begin() else {
            self.metrics.rules.asked(Asked::Refused);
            return Verdict::Denied(Reason::Unanswered);
        };
        let body = QuestionBody {
            app: app.name.as_str(),
            device: holder.device.as_str(),
            user: holder.user.as_ref().map(|user| user.as_str()),
            action: action.as_str(),
            topic,
            protocol,
        };
        let begun = Instant::now();
        // The time in the queue counts: a device does not wait longer than the rules say.
        let asked =
            tokio::time::timeout(webhook.timeout, self.exchange(app, holder.app, webhook, &body)).await;
        self.metrics.rules.ask_seconds.observe(begun.elapsed());
        let failure = match asked {
            Ok(Ok((allowed, expires_in))) => {
                let expires_at = self.clock.now().saturating_add(expires_in);
                let question = Question::new(holder, action, topic);
                app.cache.put(question, allowed, expires_at);
                self.metrics.rules.asked(if allowed { Asked::Allowed } else { Asked::Denied });
                return if allowed { Verdict::Allowed } else { Verdict::Denied(Reason::Webhook) };
            }
            Ok(Err(failure)) => failure,
            Err(_) => format!("no answer within {:?}", webhook.timeout),
        };
        tracing::debug!(app = %app.name, failure, "the webhook of topic rules gave no answer");
        self.metrics.rules.asked(Asked::Failed);
        Verdict::Denied(Reason::Unanswered)
    }

    async fn exchange(
        &self,
        app: &AppRules,
        app_id: AppId,
        webhook: &Webhook,
        body: &QuestionBody<'_>,
    ) -> Result<(bool, Duration), String> {
        let _turn = app.asks.turns.acquire().await.map_err(|error| error.to_string())?;
        // The app chose the host: its slow names delay nobody else.
        let egress = self.rules.egress.get().ok_or("this node asks no webhooks")?.for_app(app_id.0);
        let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        let id = format!("msg_{}", uuid::Uuid::now_v7().simple());
        let now_s = self.clock.now().0 / 1_000;
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &webhook.secret);
        let signature = signature(&key, &id, now_s, &body);
        let timestamp = now_s.to_string();
        let headers = [
            ("webhook-id", id.as_str()),
            ("webhook-timestamp", timestamp.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        let post = Post { content_type: "application/json", headers: &headers, body: Bytes::from(body) };
        let limits = Limits { body_bytes_max: ANSWER_BYTES_MAX, timeout: webhook.timeout };
        let answer = egress.post(&webhook.url, post, limits).await.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("status {}", answer.status));
        }
        let answer: AnswerBody = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        let expires_in = match answer.expires_in {
            Some(text) => parse_duration(&text).map_err(|error| error.to_string())?,
            None => webhook.expires_in,
        };
        Ok((answer.allow, expires_in.min(EXPIRES_IN_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_questions_are_bounded() {
        let asks = Asks::default();
        let open: Vec<_> = (0..OPEN_MAX).map(|_| asks.begin().expect("room")).collect();
        assert!(asks.begin().is_none() && asks.begin().is_none());
        drop(open);
        assert!(asks.begin().is_some());
    }
}

//! Asks an app's webhook whether a device may use a topic.
//!
//! A question is one POST of JSON, signed by Standard Webhooks (<https://www.standardwebhooks.com>, version 1), like
//! batches of the event log. The answer is `{"allow": true}` with status 200, and may name its validity
//! (`"expires_in": "5m"`). Anything else denies and is not cached: the next attempt asks again.
//!
//! Each app has its own bounds for questions in flight and pending, so a webhook that hangs delays no other app.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_egress::Limits;
use noroshi_egress::fetch::Post;
use noroshi_egress::webhook::signature;
use noroshi_types::AppId;
use noroshi_types::rule::{Action, Webhook};
use noroshi_types::time::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::cache::Question;
use super::metrics::AskResult;
use super::{AppRules, Holder, Reason, Rules, Verdict};

/// Questions of one app in flight.
pub const QUESTIONS_IN_FLIGHT_MAX: usize = 16;
/// Questions of one app in flight or waiting. Further ones are denied.
const PENDING_MAX: usize = 1_024;
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// The longest validity of an answer.
const EXPIRES_IN_MAX: Duration = Duration::from_secs(86_400);

/// The pending questions of one app.
#[derive(Debug)]
pub(super) struct PendingQuestions {
    in_flight: Semaphore,
    count: AtomicUsize,
}

impl Default for PendingQuestions {
    fn default() -> Self {
        Self { in_flight: Semaphore::new(QUESTIONS_IN_FLIGHT_MAX), count: AtomicUsize::new(0) }
    }
}

/// A pending question, until it is dropped.
struct Pending<'a>(&'a AtomicUsize);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PendingQuestions {
    fn begin(&self) -> Option<Pending<'_>> {
        let pending = Pending(&self.count);
        (self.count.fetch_add(1, Ordering::Relaxed) < PENDING_MAX).then_some(pending)
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

impl Rules {
    /// Asks the app's webhook, within its timeout.
    pub(super) async fn ask_webhook(
        &self,
        app: &AppRules,
        holder: &Holder,
        action: Action,
        topic: &str,
        protocol: &'static str,
    ) -> Verdict {
        let Some(webhook) = app.rules.webhook() else { return Verdict::Denied(Reason::Unanswered) };
        let Some(_pending) = app.pending.begin() else {
            self.metrics.asked(AskResult::Refused);
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
        // The timeout includes the time in the queue.
        let asked =
            tokio::time::timeout(webhook.timeout, self.exchange(app, holder.app, webhook, &body)).await;
        self.metrics.topic_ask_seconds.observe(begun.elapsed());
        let failure = match asked {
            Ok(Ok((allowed, expires_in))) => {
                let expires_at = self.context.now().saturating_add(expires_in);
                let question = Question::new(holder, action, topic);
                app.cache.put(question, allowed, expires_at);
                self.metrics.asked(if allowed { AskResult::Allowed } else { AskResult::Denied });
                return if allowed { Verdict::Allowed } else { Verdict::Denied(Reason::Webhook) };
            }
            Ok(Err(failure)) => failure,
            Err(_) => format!("no answer within {:?}", webhook.timeout),
        };
        tracing::debug!(app = %app.name, failure, "the webhook of topic rules did not answer");
        self.metrics.asked(AskResult::Failed);
        Verdict::Denied(Reason::Unanswered)
    }

    async fn exchange(
        &self,
        app: &AppRules,
        app_id: AppId,
        webhook: &Webhook,
        body: &QuestionBody<'_>,
    ) -> Result<(bool, Duration), String> {
        let _turn = app.pending.in_flight.acquire().await.map_err(|error| error.to_string())?;
        // The app chooses the host: its slow DNS names delay no other app.
        let egress = self.egress.get().ok_or("webhooks are not configured on this node")?.for_app(app_id.0);
        let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        let id = format!("msg_{}", uuid::Uuid::now_v7().simple());
        let now_s = self.context.now().0 / 1_000;
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
    fn pending_questions_are_bounded() {
        let questions = PendingQuestions::default();
        let pending: Vec<_> = (0..PENDING_MAX).map(|_| questions.begin().expect("room")).collect();
        assert!(questions.begin().is_none() && questions.begin().is_none());
        drop(pending);
        assert!(questions.begin().is_some());
    }
}

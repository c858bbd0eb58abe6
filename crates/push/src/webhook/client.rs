//! The client of one provider: joins waiting pushes into one signed request, and its answer into an answer for each.
//!
//! Pushes of one message share its text. A recipient's `id` is the same for every attempt, and so is `webhook-id` as long
//! as a request has the same recipients: both let the provider recognize repetitions.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_egress::webhook::signature;
use noroshi_types::{PushToken, Timestamp};
use ring::digest;

use super::Token;
use super::config::Config;
use super::error;
use super::payload::Payload;
use crate::exchange::{
    self, Authorization, BatchLimits, BatchRequest, BatchResponse, BatchVerdict, Batches, Header, Request,
    Response, Verdict,
};
use crate::push::{Answer, Push, Reason, Recipient};

/// A request ends before the push that would make it longer: 100 messages of the greatest length fit.
const BODY_BYTES_MAX: usize = 1 << 20;
const AGENT: &[u8] = concat!("noroshi/", env!("CARGO_PKG_VERSION")).as_bytes();

#[derive(Debug)]
pub(crate) struct Client {
    config: Config,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        Self { config }
    }

    /// The body with the first of the pushes, and how many those are.
    fn body(&self, pushes: &[&Push]) -> (String, usize) {
        let mut body =
            format!("{{\"type\":\"push.batch\",\"provider\":\"{}\",\"messages\":[", self.config.provider);
        let mut count = 0;
        let mut message: Option<&Push> = None;
        for push in pushes {
            let mut next = String::new();
            // Pushes of one message share its content.
            let same = message.is_some_and(|before| Arc::ptr_eq(&before.content, &push.content));
            match (same, message) {
                (true, _) => next.push(','),
                (false, before) => {
                    if before.is_some() {
                        next.push_str("]},");
                    }
                    next.push('{');
                    // Rendering does not fail.
                    if let Ok(payload) = push.content.payload::<Payload>() {
                        next.push_str(&payload.members);
                        next.push(',');
                    }
                    next.push_str("\"recipients\":[");
                }
            }
            next.push_str(&recipient(push));
            if count > 0 && body.len() + next.len() > BODY_BYTES_MAX {
                break;
            }
            body.push_str(&next);
            message = Some(push);
            count += 1;
        }
        body.push_str("]}]}");
        (body, count)
    }
}

fn recipient(push: &Push) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let token = Token::parse(&push.token).map(|token| token.token).unwrap_or_default();
    let mut json = format!("{{\"id\":\"{}\",\"token\":{}", push.id, quoted(&token));
    if let Some(Recipient { device, user }) = push.recipient() {
        json.push_str(&format!(",\"device\":{}", quoted(device.as_str())));
        if let Some(user) = user {
            json.push_str(&format!(",\"user\":{}", quoted(user.as_str())));
        }
    }
    json.push('}');
    json
}

/// 128 bits derived from the recipients' ids, whatever their order.
fn id(pushes: &[&Push]) -> String {
    use std::fmt::Write as _;
    let mut ids: Vec<uuid::Uuid> = pushes.iter().map(|push| push.id).collect();
    ids.sort_unstable();
    let mut context = digest::Context::new(&digest::SHA256);
    ids.iter().for_each(|id| context.update(id.as_bytes()));
    let mut id = "push_".to_owned();
    for byte in &context.finish().as_ref()[..16] {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

impl Batches for Client {
    fn limits(&self) -> BatchLimits {
        self.config.limits
    }

    fn request(&self, pushes: &[&Push], now: Timestamp) -> BatchRequest {
        let (body, count) = self.body(pushes);
        let (id, seconds) = (id(&pushes[..count]), now.0 / 1_000);
        let signatures: Vec<String> =
            self.config.keys.iter().map(|key| signature(key, &id, seconds, body.as_bytes())).collect();
        let header = |name, value: Bytes| Header { name, value, shared: false };
        let headers = vec![
            header("content-type", Bytes::from_static(b"application/json")),
            header("accept", Bytes::from_static(b"application/json")),
            header("user-agent", Bytes::from_static(AGENT)),
            header("webhook-id", id.into()),
            header("webhook-timestamp", seconds.to_string().into()),
            header("webhook-signature", signatures.join(" ").into()),
        ];
        BatchRequest {
            request: Request { path: self.config.path.clone(), headers, body: body.into(), readable: None },
            count,
        }
    }

    fn read(&self, pushes: &[&Push], response: &BatchResponse<'_>) -> BatchVerdict {
        let ids: Vec<uuid::Uuid> = pushes.iter().map(|push| push.id).collect();
        error::read(&ids, response)
    }
}

impl exchange::Client for Client {
    fn origin(&self, token: &PushToken) -> Result<Arc<str>, Reason> {
        Token::parse(token).map(|_| self.config.origin.clone()).ok_or("bad_token")
    }

    fn authorization(&self, _: &str, _: Timestamp) -> Authorization {
        Authorization::NotNeeded
    }

    fn renew(&self, _: &str, _: &Bytes, _: Timestamp) -> bool {
        false
    }

    fn batches(&self) -> Option<&dyn Batches> {
        Some(self)
    }

    fn request(&self, push: &Push, _: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer> {
        Ok(Batches::request(self, &[push], now).request)
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        let Response { status, retry_after, body, .. } = *response;
        match error::read(&[], &BatchResponse { status, retry_after, body: Some(body) }) {
            BatchVerdict::All(verdict) => verdict,
            BatchVerdict::Each(_) => Verdict::Answer(Answer::Accepted),
        }
    }
}

#[cfg(test)]
mod tests;

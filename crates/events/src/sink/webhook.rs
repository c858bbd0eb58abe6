//! POSTs each batch as NDJSON, signed according to Standard Webhooks (<https://www.standardwebhooks.com>, version 1),
//! so that its libraries can verify it.
//!
//! `webhook-id` derives from the body, so a repeated batch has the same id. The guard of `egress` checks the address at
//! every connection.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use noroshi_egress::Limits;
use noroshi_egress::fetch::Post;
use noroshi_egress::webhook::signature;

use super::{Failure, Network, wait};
use crate::batch::Batch;
use crate::config;
use crate::health::Health;

/// Only the status of the answer is used.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const CONTENT_TYPE: &str = "application/x-ndjson";

pub(crate) struct Webhook {
    config: config::Webhook,
    key: ring::hmac::Key,
    network: Network,
}

/// 128 bits derived from the body.
fn id(body: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    let mut id = "msg_".to_owned();
    for byte in &digest.as_ref()[..16] {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

impl Webhook {
    pub(crate) fn new(config: config::Webhook, network: Network) -> Self {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &config.secret);
        Self { config, key, network }
    }

    pub(crate) fn send(&self, batch: &Batch, health: &mut Health) -> Result<u64, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let id = id(&batch.bytes);
        let signature = signature(&self.key, &id, now, &batch.bytes);
        let timestamp = now.to_string();
        let headers = [
            ("webhook-id", id.as_str()),
            ("webhook-timestamp", timestamp.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        let post = Post { content_type: CONTENT_TYPE, headers: &headers, body: batch.bytes.clone() };
        let limits = Limits { body_bytes_max: ANSWER_BYTES_MAX, timeout: self.config.timeout };
        let exchange = async {
            let answer = self.network.egress.post(&self.config.url, post, limits).await;
            answer.map_err(|error| Failure(error.to_string()))
        };
        match wait(&self.network, exchange)?.status {
            200..=299 => Ok(0),
            // The receiver rejected the batch and would do so again.
            status @ (400 | 413 | 422) => {
                health.refused(&format_args!("the webhook answered {status}"), batch.events);
                Ok(batch.events)
            }
            // Includes failures that an operator has to fix: no event is lost meanwhile.
            status => Err(Failure(format!("the webhook answered {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_batch_has_the_same_id() {
        assert_eq!(id(b"a\n"), id(b"a\n"));
        assert_ne!(id(b"a\n"), id(b"b\n"));
        assert_eq!(id(b"").len(), 36);
    }
}

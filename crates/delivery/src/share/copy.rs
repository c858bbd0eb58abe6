//! What is sent to a member: a message to its device, with the topic and the shared subscription in its `data`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use noroshi_protocol::mqtt::ShareCopy;
use noroshi_store::{Idempotency, ShareNum};
use noroshi_types::{DeviceId, Message, NotificationId, Push, Request, Target, Timestamp, Ttl, When};
use ring::digest::{SHA256, digest};

use crate::delivery::{Delivery, Error};

/// Sends a message of a topic, or the copy that another member had, to a device. None if there is nothing to send: it
/// expired.
pub(super) async fn send(
    delivery: &Arc<Delivery>,
    group: ShareNum,
    share: &str,
    message: &Message,
    to: &DeviceId,
) -> Result<Option<NotificationId>, Error> {
    let now = delivery.clock().now();
    let Some(request) = request(message, share, to, now) else { return Ok(None) };
    let (of, turn) = ShareCopy::of(message).map_or((message.id, 0), |copy| (copy.of, copy.turn + 1));
    let key = (request.when == When::Stored).then(|| key(group, of, turn));
    let receipt = delivery.publish_copy(message.app, request, key).await?;
    Ok(Some(receipt.id))
}

fn request(message: &Message, share: &str, to: &DeviceId, now: Timestamp) -> Option<Request> {
    let left = message.expires_at.saturating_since(now);
    if left == Duration::ZERO {
        return None;
    }
    Some(Request {
        target: Target::Devices(vec![to.clone()]),
        when: message.when,
        ttl: Ttl::new(left).unwrap_or_default(),
        urgency: message.urgency,
        waits_for_use: false,
        collapse_key: None,
        retain: false,
        notification: None,
        data: Some(ShareCopy::data(message, share)?),
        push: Push::default(),
        trace: None,
    })
}

/// Of one turn of one message in a group. No provider's key begins with a control character.
fn key(group: ShareNum, of: NotificationId, turn: u32) -> Idempotency {
    let mut key = String::with_capacity(72);
    let _ = write!(key, "\u{1}share {} {of} {turn}", group.0);
    let mut body_hash = [0; 32];
    body_hash.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    Idempotency { key: key.into(), body_hash }
}

//! A copy for a member: a message to its device, with the topic and the shared subscription in its `data`.
//!
//! Publishes copies, with an idempotency key of group, message and turn, and finds the copies in a device's inbox.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use noroshi_protocol::mqtt::ShareCopy;
use noroshi_store::{Idempotency, InboxPlace, InboxRange, ShareNum};
use noroshi_types::{
    AppId, Category, DeviceId, Message, NotificationId, Outcome, Push, Request, Target, Timestamp, Ttl, When,
    limits,
};
use ring::digest::{SHA256, digest};

use super::Shares;
use crate::error::Error;
use crate::quota::Origin;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Copy(NotificationId),
    /// The message has expired.
    Expired,
    /// The device was deleted.
    NoDevice,
}

/// The turn of the next copy: 0 for the topic's own message, else this copy's turn plus 1.
pub(super) fn turn_of(message: &Message) -> u32 {
    ShareCopy::of(message).map_or(0, |copy| copy.turn.saturating_add(1))
}

/// Sends a message of a topic, or the copy of another member, to a device.
pub(super) async fn send(
    shares: &Shares,
    group: (ShareNum, &str),
    message: &Message,
    turn: u32,
    to: &DeviceId,
) -> Result<Sent, Error> {
    let (num, share) = group;
    let now = shares.context.now();
    let Some(request) = request(message, share, turn, to, now) else { return Ok(Sent::Expired) };
    let of = ShareCopy::of(message).map_or(message.id, |copy| copy.of);
    let is_kept = request.when == When::Stored;
    let key = is_kept.then(|| key(num, of, turn));
    let receipt = shares.publisher.publish_from(message.app, request, key, Origin::Copy).await?;
    let is_there = match is_kept {
        true if receipt.replayed => was_kept(shares, message.app, receipt.id, now).await?,
        true => receipt.kept > 0,
        false => true,
    };
    Ok(if is_there { Sent::Copy(receipt.id) } else { Sent::NoDevice })
}

/// Whether an inbox accepted a copy that was sent before, whatever became of it since. The store remembers the key also
/// if the device had been deleted.
async fn was_kept(shares: &Shares, app: AppId, id: NotificationId, now: Timestamp) -> Result<bool, Error> {
    let state = shares.context.store.notification(app, id, now).await?;
    Ok(state.is_none_or(|state| state.counts.iter().any(|(outcome, _)| *outcome == Outcome::Kept)))
}

fn request(message: &Message, share: &str, turn: u32, to: &DeviceId, now: Timestamp) -> Option<Request> {
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
        // Sharing work out is no notification: a member that refused copies would stop the group.
        category: Some(Category::exempt(message.category.as_ref().map(|category| category.name.clone()))),
        collapse_key: None,
        retain: false,
        notification: None,
        data: Some(ShareCopy::data(message, share, turn)?),
        push: Push::default(),
        item: None,
        trace: None,
    })
}

/// The key of one turn of one message in a group. No provider's key begins with a control character.
fn key(group: ShareNum, of: NotificationId, turn: u32) -> Idempotency {
    let mut key = String::with_capacity(72);
    let _ = write!(key, "\u{1}share {} {of} {turn}", group.0);
    let mut body_hash = [0; 32];
    body_hash.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    Idempotency { key: key.into(), body_hash }
}

/// The copies in a device's inbox, of all its groups. None if the device was deleted.
pub(super) async fn in_inbox(
    shares: &Shares,
    app: AppId,
    device: &DeviceId,
) -> Result<Vec<(Arc<Message>, ShareCopy)>, Error> {
    let mut copies = Vec::new();
    let mut place = InboxPlace::First;
    loop {
        let (now, limit) = (shares.context.now(), limits::INBOX_PAGE_MAX);
        let asked = InboxRange { app, device: device.clone(), since: None, until: None, place, limit, now };
        let page = match shares.context.store.inbox_range(asked).await {
            Ok(Some(page)) => page,
            // The row before the page was acknowledged in the meantime: start again, which is idempotent.
            Ok(None) if place != InboxPlace::First => {
                copies.clear();
                place = InboxPlace::First;
                continue;
            }
            Ok(None) | Err(noroshi_store::Error::NotFound) => return Ok(copies),
            Err(error) => return Err(error.into()),
        };
        let Some(last) = page.messages.last().filter(|_| page.messages.len() == limit) else {
            copies.extend(of_shares(page.messages));
            return Ok(copies);
        };
        place = InboxPlace::After(last.id);
        copies.extend(of_shares(page.messages));
    }
}

fn of_shares(messages: Vec<Arc<Message>>) -> impl Iterator<Item = (Arc<Message>, ShareCopy)> {
    messages.into_iter().filter_map(|message| {
        let copy = ShareCopy::of(&message)?;
        Some((message, copy))
    })
}

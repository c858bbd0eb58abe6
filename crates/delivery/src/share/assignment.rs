//! Assigns messages of a group to its members.
//!
//! Reads the topic log behind the group's place, sends a copy to the next member with room, and moves the place behind
//! what was assigned. Messages that are not stored go to a connected member, or are dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use noroshi_store::{LogPage, Place};
use noroshi_types::{AppId, DeviceId, DeviceNum, Message};

use super::Shares;
use super::copy::{self, Sent};
use super::group::{Group, Progress};
use super::members::Members;
use crate::error::Error;

/// Log rows that one read looks at, and reads for a group in one turn.
const PAGE_ROWS: usize = 256;
const PAGES: usize = 4;
/// Pages that are cached for groups at the same place.
const PAGES_KEPT: usize = 8;
/// Copies that are written concurrently.
const AT_ONCE: usize = 64;

/// The pages that a turn read last.
#[derive(Default)]
pub(super) struct Pages(VecDeque<((AppId, Place), Arc<LogPage>)>);

impl Pages {
    async fn read(&mut self, shares: &Shares, app: AppId, since: Place) -> Result<Arc<LogPage>, Error> {
        if let Some((_, page)) = self.0.iter().find(|(at, _)| *at == (app, since)) {
            return Ok(page.clone());
        }
        let now = shares.context.now();
        let page = Arc::new(shares.context.store.log_page(app, since, PAGE_ROWS, now).await?);
        if self.0.len() == PAGES_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(((app, since), page.clone()));
        Ok(page)
    }
}

/// Sends a message that is not stored to a connected member of each group.
pub(super) async fn live(shares: &Shares, members: &Members, groups: &mut [Group], message: &Arc<Message>) {
    let Some(topic) = message.topic.as_ref().map(|place| place.topic.as_str()) else { return };
    let of_app = groups.iter_mut().filter(|group| group.of.app == message.app);
    for group in of_app.filter(|group| group.matches(topic)) {
        let to = members.next_connected(group);
        let of = (group.of.num, &*group.share);
        let was_sent = match &to {
            Some(to) => match copy::send(shares, of, message, 0, to).await {
                Ok(sent) => matches!(sent, Sent::Copy(_)),
                Err(error) => {
                    tracing::debug!(%error, "could not send a member a message that is not stored");
                    false
                }
            },
            None => false,
        };
        match was_sent {
            true => shares.metrics.share_messages_assigned.inc(),
            false => shares.metrics.share_messages_dropped.inc(),
        };
    }
}

/// Assigns some pages of the log behind the group's place.
pub(super) async fn stored(
    shares: &Shares,
    members: &mut Members,
    group: &mut Group,
    pages: &mut Pages,
) -> Result<Progress, Error> {
    if group.progress == Progress::Blocked && members.find(shares, group).await?.is_none() {
        return Ok(Progress::Blocked);
    }
    for _ in 0..PAGES {
        let page = pages.read(shares, group.of.app, group.since).await?;
        for messages in page.messages.chunks(AT_ONCE) {
            if !batch(shares, members, group, messages).await? {
                return Ok(Progress::Blocked);
            }
        }
        match page.next {
            Some(next) => group.since = group.since.max(next),
            None => return Ok(Progress::Done),
        }
    }
    Ok(Progress::More)
}

struct Chosen<'m> {
    message: &'m Arc<Message>,
    num: DeviceNum,
    device: DeviceId,
}

/// Assigns messages, and moves the group's place behind them. Returns false if one found no member with room.
async fn batch(
    shares: &Shares,
    members: &mut Members,
    group: &mut Group,
    messages: &[Arc<Message>],
) -> Result<bool, Error> {
    let (mut chosen, mut behind, mut found_all) = (Vec::new(), group.since, true);
    for message in messages {
        let topic = message.topic.as_ref().map_or("", |place| place.topic.as_str());
        if group.matches(topic) {
            let Some((num, device)) = members.take(shares, group, message.id).await? else {
                found_all = false;
                break;
            };
            chosen.push(Chosen { message, num, device });
        }
        behind = Place::of(message.id);
    }
    let of = (group.of.num, &*group.share);
    let send = |chosen: &Chosen<'_>| {
        let (message, device) = (chosen.message.clone(), chosen.device.clone());
        async move { copy::send(shares, of, &message, 0, &device).await }
    };
    let results = join_all(chosen.iter().map(send)).await;
    let mut failed = None;
    for (Chosen { message, num, .. }, result) in chosen.into_iter().zip(results) {
        let sent = result.as_ref().ok().and_then(|sent| match sent {
            Sent::Copy(id) => Some(*id),
            Sent::Expired | Sent::NoDevice => None,
        });
        members.copies.replace(num, message.id, sent);
        let result = match result {
            Ok(Sent::NoDevice) if failed.is_none() => next_of(shares, members, group, message, 1).await,
            result => result,
        };
        match result {
            Ok(Sent::Copy(_)) => drop(shares.metrics.share_messages_assigned.inc()),
            Ok(Sent::Expired) => {}
            // The next turn starts again from here. Its idempotency keys find the later messages that were sent.
            Ok(Sent::NoDevice) => {
                failed.get_or_insert((message, None));
            }
            Err(error) => {
                failed.get_or_insert((message, Some(error)));
            }
        }
    }
    if let Some((message, error)) = failed {
        let before = messages.iter().take_while(|one| one.id != message.id).last();
        let before = before.map_or(group.since, |one| Place::of(one.id));
        group.since = group.since.max(before);
        return error.map_or(Ok(false), Err);
    }
    group.since = group.since.max(behind);
    Ok(found_all)
}

/// Sends a message, or a member's copy of it, to the next member that exists. [`Sent::NoDevice`] if none has room.
pub(super) async fn next_of(
    shares: &Shares,
    members: &mut Members,
    group: &mut Group,
    message: &Arc<Message>,
    first_turn: u32,
) -> Result<Sent, Error> {
    let mut turn = first_turn;
    while let Some((num, device)) = members.take(shares, group, message.id).await? {
        let result = copy::send(shares, (group.of.num, &group.share), message, turn, &device).await;
        let sent = match result {
            Ok(Sent::Copy(id)) => Some(id),
            _ => None,
        };
        members.copies.replace(num, message.id, sent);
        match result {
            Ok(Sent::NoDevice) => turn = turn.saturating_add(1),
            result => return result,
        }
    }
    Ok(Sent::NoDevice)
}

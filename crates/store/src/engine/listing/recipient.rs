//! Whether a notification was for a user or a device, from what is recorded: the names in the request, durable
//! subscriptions, inboxes, and the outcomes of conditions and campaigns.

use std::collections::{HashMap, HashSet};

use noroshi_types::{AppId, DeviceId, DeviceNum, Outcome, Timestamp, UserId};

use super::super::device::{id_of, user_of};
use super::super::record::Record;
use super::super::session::{Session, values};
use super::super::topic::TopicNum;
use super::super::{device_list, named};
use super::{Candidate, list};
use crate::ids::{Ids, Num};
use crate::{ListedNotification, ListedRecipient, Recipient, TARGET_KINDS, TraceStep, USER_DEVICES_MAX};

/// Rows of outcomes of one notification that are searched for a device.
const SEARCHED_MAX: usize = 5_000;
/// Rows of outcomes that a page searches to find out for whom notifications were.
const SEARCHED_OF_PAGE_MAX: usize = 20_000;
/// Rows of outcomes that a page searches for the newest steps.
const STEPS_OF_PAGE_MAX: usize = 20_000;
/// Rows of one inbox that are read.
const INBOX_MAX: usize = 10_000;

struct Owned {
    num: DeviceNum,
    id: DeviceId,
    /// When the device got its user.
    user_at: Option<Timestamp>,
    inbox: HashSet<Num>,
    /// Since when it subscribes to each topic; `None` if that is not known.
    topics: HashMap<TopicNum, Option<Timestamp>>,
}

pub(super) struct Recipients {
    /// Requests that name the user are for the recipient.
    user: Option<UserId>,
    is_device: bool,
    devices: Vec<Owned>,
    left: usize,
}

impl Recipients {
    /// `None` if nothing can have been for the recipient: there is no such device.
    pub(super) async fn read<S: Session>(
        session: &S,
        app: AppId,
        recipient: &Recipient,
        first: Num,
        below: Num,
    ) -> Result<Option<Self>, S::Error> {
        let of_row = |row: &dyn Record| {
            let owned = Owned {
                num: row.device(0)?,
                id: id_of(row, 1)?,
                user_at: row.time_or_null(3)?,
                inbox: HashSet::new(),
                topics: HashMap::new(),
            };
            Ok((owned, user_of(row, 2)?))
        };
        let (found, user, is_device) = match recipient {
            Recipient::Device(id) => {
                let sql = "SELECT num, id, \"user\", user_at FROM devices WHERE app = $1 AND id = $2";
                let mut found = session.query(sql, &values![app, id.as_str()], of_row).await?;
                let Some((_, user)) = found.first_mut() else { return Ok(None) };
                let user = user.take();
                (found, user, true)
            }
            Recipient::User(user) => {
                let sql = "SELECT num, id, \"user\", user_at FROM devices WHERE app = $1 AND \"user\" = $2
                           ORDER BY num DESC LIMIT $3";
                let values = values![app, user.as_str(), USER_DEVICES_MAX];
                (session.query(sql, &values, of_row).await?, Some(user.clone()), false)
            }
        };
        let mut devices: Vec<Owned> = found.into_iter().map(|(owned, _)| owned).collect();
        for owned in &mut devices {
            let sql = "SELECT num FROM inbox WHERE device = $1 AND num >= $2 AND num < $3 ORDER BY num DESC LIMIT $4";
            let values = values![owned.num.0, first, below, INBOX_MAX];
            owned.inbox = session.query(sql, &values, |row| row.int(0)).await?.into_iter().collect();
            let sql = "SELECT topic, since FROM subscriptions WHERE device = $1";
            let of_row = |row: &dyn Record| Ok((row.int(0)?, row.time_or_null(1)?));
            owned.topics = session.query(sql, &values![owned.num.0], of_row).await?.into_iter().collect();
        }
        Ok(Some(Self { user, is_device, devices, left: SEARCHED_OF_PAGE_MAX }))
    }

    /// Whether the candidate was for the recipient; `None` if the page has searched enough.
    pub(super) async fn include<S: Session>(
        &mut self,
        session: &S,
        candidate: &Candidate,
    ) -> Result<Option<bool>, S::Error> {
        let names = |name: &str| candidate.named.as_ref().is_some_and(|named| named::contains(named, name));
        if self.devices.iter().any(|device| device.inbox.contains(&candidate.num)) {
            return Ok(Some(true));
        }
        let is_for = match TARGET_KINDS.get(usize::from(candidate.target)).copied() {
            Some("users") => {
                // A device received what was for its user since it has that user.
                let had_user =
                    |device: &Owned| device.user_at.is_none_or(|user_at| user_at <= candidate.created_at);
                let is_theirs = !self.is_device || self.devices.iter().any(had_user);
                is_theirs && self.user.as_ref().is_some_and(|user| names(user.as_str()))
            }
            Some("devices") => self.devices.iter().any(|device| names(device.id.as_str())),
            Some("topic" | "everyone") => candidate.topic.is_some_and(|topic| {
                let subscribed = |device: &Owned| {
                    let since = device.topics.get(&topic);
                    since.is_some_and(|since| since.is_none_or(|since| since <= candidate.created_at))
                };
                self.devices.iter().any(subscribed)
            }),
            _ => {
                if self.left == 0 {
                    return Ok(None);
                }
                let (steps, rows) = self.steps(session, candidate.num, SEARCHED_MAX).await?;
                self.left = self.left.saturating_sub(rows);
                !steps.is_empty()
            }
        };
        Ok(Some(is_for))
    }

    /// The newest step of each device of which the notification's outcomes have one, and how many rows were read.
    async fn steps<S: Session>(
        &self,
        session: &S,
        num: Num,
        rows_max: usize,
    ) -> Result<(HashMap<DeviceNum, TraceStep>, usize), S::Error> {
        if self.devices.is_empty() || rows_max == 0 {
            return Ok((HashMap::new(), 0));
        }
        let sql = "SELECT outcome, at, devices, reason FROM outcomes WHERE num = $1 LIMIT $2";
        let of_row = |row: &dyn Record| {
            let Some(outcome) = Outcome::from_code(row.code(0)?) else { return Ok((Vec::new(), None)) };
            let listed: Vec<DeviceNum> = device_list::decode(row.bytes(2)?)
                .filter(|listed| self.devices.iter().any(|device| device.num == *listed))
                .collect();
            let step = TraceStep { at: row.time(1)?, outcome, reason: row.string_or_null(3)? };
            Ok((listed, Some(step)))
        };
        let rows = session.query(sql, &values![num, rows_max], of_row).await?;
        let count = rows.len();
        let mut steps: HashMap<DeviceNum, TraceStep> = HashMap::new();
        for (devices, step) in rows {
            let Some(step) = step else { continue };
            for device in devices {
                let newest = steps.entry(device).or_insert_with(|| step.clone());
                if (newest.at, newest.outcome as u8) < (step.at, step.outcome as u8) {
                    *newest = step.clone();
                }
            }
        }
        Ok((steps, count))
    }

    /// Adds to each notification the devices of the recipient, with their newest steps.
    pub(super) async fn add_steps<S: Session>(
        &mut self,
        session: &S,
        ids: &Ids,
        notifications: &mut [ListedNotification],
    ) -> Result<(), S::Error> {
        if self.devices.is_empty() || notifications.is_empty() {
            return Ok(());
        }
        let nums: Vec<Num> = notifications.iter().filter_map(|shown| ids.num(shown.id)).collect();
        let sql = format!(
            "SELECT o.num, o.device, o.at FROM {} AS k {join} {} AS d ON 1 = 1
             {join} openings o ON o.num = k.num AND o.device = d.num",
            S::numbers("$1"),
            S::numbers("$2"),
            join = S::ORDERED_JOIN
        );
        let devices = list(self.devices.iter().map(|device| device.num.0 as i64));
        let of_row = |row: &dyn Record| Ok((row.int(0)?, row.device(1)?, row.time(2)?));
        let opened = session.query(&sql, &values![&list(nums.iter().copied()), &devices], of_row).await?;
        let mut left = STEPS_OF_PAGE_MAX;
        for (num, shown) in nums.into_iter().zip(notifications) {
            let (mut steps, rows) = self.steps(session, num, left.min(SEARCHED_MAX)).await?;
            left -= rows;
            for (_, device, at) in opened.iter().filter(|(of, ..)| *of == num) {
                let step = TraceStep { at: *at, outcome: Outcome::Opened, reason: None };
                steps.insert(*device, step);
            }
            for device in &self.devices {
                let (step, in_inbox) = (steps.remove(&device.num), device.inbox.contains(&num));
                if step.is_some() || in_inbox || self.is_device {
                    shown.recipients.push(ListedRecipient { device: device.id.clone(), step, in_inbox });
                }
            }
        }
        Ok(())
    }
}

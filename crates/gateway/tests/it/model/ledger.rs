//! The messages that each device is owed, received and acknowledged.
//!
//! A message is owed to a device if it was accepted while the device had a session with a subscription that matches it.
//! It stays owed until the device acknowledges it, it expires, the session ends, or no matching subscription is left.
//!
//! To a group of a shared subscription it is owed once: until any device acknowledges it, or the group has no member any
//! more.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;

use noroshi_protocol::mqtt::filter_matches;
use noroshi_types::Timestamp;

/// What is remembered of each device, for the description of a difference.
const NOTES_MAX: usize = 10_000;
/// How many of the last notes a difference shows, whatever they are about.
const NOTES_SHOWN: usize = 40;

/// The filter of messages that are sent to the device itself.
pub(crate) const INBOX: &str = "$noroshi/inbox";

/// What was published. Its number is its place.
#[derive(Debug)]
struct Published {
    /// The name it is published under.
    topic: &'static str,
    expires_at: Timestamp,
    retain: bool,
    step: usize,
}

/// One device's account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    has_session: bool,
    pub(crate) filters: BTreeSet<&'static str>,
    /// Owed messages, and by which filters.
    owed: BTreeMap<usize, Vec<&'static str>>,
    acknowledged: HashSet<usize>,
    /// The filters of all sessions, so that late messages are recognized.
    ever: BTreeSet<&'static str>,
    /// Acknowledged messages that came once more, since the last look.
    repeated: Vec<usize>,
    /// What happened, and to which message.
    notes: VecDeque<(Option<usize>, String)>,
    pub(crate) tally: Tally,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) owed: usize,
    pub(crate) received: usize,
    pub(crate) acknowledged: usize,
    /// Acknowledged messages that came once more.
    pub(crate) repeats: usize,
    pub(crate) lost: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.owed += more.owed;
        self.received += more.received;
        self.acknowledged += more.acknowledged;
        self.repeats += more.repeats;
        self.lost += more.lost;
    }
}

impl Account {
    /// It may get what matches from here on.
    pub(crate) fn ask(&mut self, filter: &'static str) {
        self.ever.insert(plain(filter).unwrap_or(filter));
    }

    pub(crate) fn subscribe(&mut self, filter: &'static str) {
        self.filters.insert(filter);
    }

    pub(crate) fn unsubscribe(&mut self, filter: &'static str) {
        self.filters.remove(filter);
        self.owed.retain(|_, filters| {
            filters.retain(|held| *held != filter);
            !filters.is_empty()
        });
    }

    pub(crate) fn begin_session(&mut self) {
        self.has_session = true;
    }

    pub(crate) fn end_session(&mut self) {
        self.has_session = false;
        self.filters.clear();
        self.owed.clear();
    }

    pub(crate) fn has_session(&self) -> bool {
        self.has_session
    }

    pub(crate) fn has_acknowledged(&self, number: usize) -> bool {
        self.acknowledged.contains(&number)
    }

    pub(crate) fn take_repeated(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.repeated)
    }

    pub(crate) fn owes_nothing(&self) -> bool {
        self.owed.is_empty()
    }

    /// Counts all owed messages as lost.
    pub(crate) fn write_off(&mut self) -> Vec<(usize, Vec<&'static str>)> {
        let lost: Vec<_> = std::mem::take(&mut self.owed).into_iter().collect();
        self.tally.lost += lost.len();
        lost
    }
}

/// A group of a shared subscription.
#[derive(Debug)]
struct Group {
    /// As it is subscribed to.
    share: &'static str,
    members: BTreeSet<usize>,
    owed: BTreeSet<usize>,
}

/// The filter of a shared subscription, without the share.
fn plain(filter: &'static str) -> Option<&'static str> {
    filter.strip_prefix("$share/")?.split_once('/').map(|(_, plain)| plain)
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) step: usize,
    published: Vec<Published>,
    pub(crate) accounts: Vec<Account>,
    groups: Vec<Group>,
}

impl Ledger {
    pub(crate) fn new(devices: usize) -> Self {
        Self { accounts: (0..devices).map(|_| Account::default()).collect(), ..Self::default() }
    }

    pub(crate) fn join(&mut self, device: usize, share: &'static str) {
        let known = self.groups.iter().position(|group| group.share == share);
        let at = known.unwrap_or_else(|| {
            self.groups.push(Group { share, members: BTreeSet::new(), owed: BTreeSet::new() });
            self.groups.len() - 1
        });
        self.groups[at].members.insert(device);
    }

    /// A device unsubscribed, or its session ended.
    pub(crate) fn leave(&mut self, device: usize) {
        for group in &mut self.groups {
            if group.members.remove(&device) && group.members.is_empty() {
                group.owed.clear();
            }
        }
    }

    pub(crate) fn end_session(&mut self, device: usize) {
        self.leave(device);
        self.accounts[device].end_session();
    }

    /// The messages that groups are owed.
    pub(crate) fn owed_to_groups(&self) -> Vec<usize> {
        self.groups.iter().flat_map(|group| group.owed.iter().copied()).collect()
    }

    /// The number of the next message.
    pub(crate) fn next_number(&self) -> usize {
        self.published.len()
    }

    /// A message was accepted; `to`: for one device only. `is_passing`: no device acknowledges it.
    pub(crate) fn accepted(
        &mut self,
        topic: &'static str,
        expires_at: Timestamp,
        (is_passing, retain): (bool, bool),
        to: Option<usize>,
    ) {
        let (number, step) = (self.published.len(), self.step);
        self.published.push(Published { topic, expires_at, retain, step });
        if is_passing {
            return;
        }
        let mut heard = Vec::new();
        for (device, account) in self.accounts.iter_mut().enumerate() {
            if !account.has_session || to.is_some_and(|to| to != device) {
                continue;
            }
            let matching = account.filters.iter().copied().filter(|filter| filter_matches(filter, topic));
            let matching: Vec<_> = matching.collect();
            if !matching.is_empty() {
                account.owed.insert(number, matching);
                account.tally.owed += 1;
                heard.push(device);
            }
        }
        let shared = |group: &&mut Group| {
            let matches = plain(group.share).is_some_and(|filter| filter_matches(filter, topic));
            matches && !group.members.is_empty() && to.is_none()
        };
        for group in self.groups.iter_mut().filter(shared) {
            group.owed.insert(number);
        }
        heard.into_iter().for_each(|device| self.note(device, Some(number), format!("{topic} is owed")));
    }

    /// A device acknowledges a message. `retained`: a copy that a topic retained. It may replace the message itself, which
    /// may also arrive in addition.
    pub(crate) fn acknowledge(&mut self, device: usize, number: usize, retained: bool) {
        let account = &mut self.accounts[device];
        account.owed.remove(&number);
        account.tally.acknowledged += usize::from(!retained && account.acknowledged.insert(number));
        for group in &mut self.groups {
            group.owed.remove(&number);
        }
        self.note(device, Some(number), format!("is acknowledged, retained: {retained}"));
    }

    pub(crate) fn note(&mut self, device: usize, number: Option<usize>, what: String) {
        let notes = &mut self.accounts[device].notes;
        if notes.len() >= NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back((number, format!("{}: {what}", self.step)));
    }

    /// What happened to a device, as far as it is about these messages, about none, or came last.
    pub(crate) fn story(&self, device: usize, numbers: &[usize]) -> String {
        let notes = &self.accounts[device].notes;
        let mut text = String::new();
        for (at, (number, what)) in notes.iter().enumerate() {
            let is_last = at + NOTES_SHOWN >= notes.len();
            let _ = match number {
                None => writeln!(text, "    {what}"),
                Some(number) if is_last || numbers.contains(number) => {
                    writeln!(text, "    {what} [{number}]")
                }
                Some(_) => Ok(()),
            };
        }
        text
    }

    /// A device got a message. `Err` if it never asked for such a one.
    pub(crate) fn received(
        &mut self,
        device: usize,
        number: usize,
        topic: &str,
        retained: bool,
    ) -> Result<(), String> {
        self.note(device, Some(number), format!("comes under {topic}, retained: {retained}"));
        let account = &mut self.accounts[device];
        account.tally.received += 1;
        if !retained && account.acknowledged.contains(&number) {
            account.tally.repeats += 1;
            account.repeated.push(number);
        }
        let published =
            self.published.get(number).ok_or_else(|| format!("message {number} was not published"))?;
        let asked = account.ever.iter().any(|filter| filter_matches(filter, topic));
        match asked && published.topic == topic {
            true => Ok(()),
            false => Err(format!("message {number} under {topic:?}: {published:?}, {:?}", account.ever)),
        }
    }

    /// What has expired is owed no more.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        let published = &self.published;
        for account in &mut self.accounts {
            account.owed.retain(|number, _| published[*number].expires_at > now);
        }
        for group in &mut self.groups {
            group.owed.retain(|number| published[*number].expires_at > now);
        }
    }

    pub(crate) fn describe(&self, number: usize) -> String {
        let Published { topic, step, retain, .. } = &self.published[number];
        format!("message {number} to {topic} at step {step}{}", if *retain { ", retained" } else { "" })
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.accounts.iter().for_each(|account| sum += account.tally);
        sum
    }
}

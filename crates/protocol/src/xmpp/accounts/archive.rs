//! Message archives (XEP-0313): the last messages of each account with a body, subject to its rules. Both
//! sides share one copy of the text; each delivered message contains its id in the recipient's archive
//! (XEP-0359).

use std::collections::VecDeque;

use bytes::Bytes;
use noroshi_types::Timestamp;

use super::Accounts;
use crate::xmpp::archive::{ArchivePage, ArchivePlace, ArchiveQuery, Archived};
use crate::xmpp::error::{Refusal, StanzaError};
use crate::xmpp::jid::{Jid, bare_part};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{push_empty, push_end, push_start, push_text};

/// Limits of an account's archive, in messages and bytes including addresses. The oldest messages are
/// evicted, but never the last one.
const MESSAGES_MAX: usize = 200;
const BYTES_MAX: usize = 128 << 10;
/// Limit of addresses per list of rules.
const RULED_MAX: usize = 100;

/// Archiving preferences (§5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArchiveRules {
    default: DefaultRule,
    always: Vec<Box<str>>,
    never: Vec<Box<str>>,
}

noroshi_types::names! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    enum DefaultRule {
        #[default]
        Always => "always",
        Never => "never",
        Roster => "roster",
    }
}

impl ArchiveRules {
    pub(in crate::xmpp) fn parse(prefs: Element<'_>) -> Result<Self, StanzaError> {
        let default = prefs.attribute("default").and_then(DefaultRule::named);
        let default = default.ok_or(StanzaError::BadRequest)?;
        let list = |name: &str| -> Result<Vec<Box<str>>, StanzaError> {
            let jids = prefs.child(ns::ARCHIVE, name).into_iter().flat_map(|list| list.children());
            let mut listed: Vec<Box<str>> = Vec::new();
            for jid in jids.filter(|child| child.is(ns::ARCHIVE, "jid")) {
                if listed.len() == RULED_MAX {
                    return Err(StanzaError::NotAcceptable);
                }
                let text = jid.text();
                let jid = Jid::parse(&text).map_err(|_| StanzaError::JidMalformed)?;
                listed.push(jid.canonical());
            }
            Ok(listed)
        };
        Ok(Self { default, always: list("always")?, never: list("never")? })
    }

    pub(in crate::xmpp) fn push(&self, out: &mut Vec<u8>) {
        push_start(out, "prefs", &[("xmlns", ns::ARCHIVE), ("default", self.default.as_str())]);
        for (name, list) in [("always", &self.always), ("never", &self.never)] {
            push_start(out, name, &[]);
            list.iter().for_each(|jid| push_text(out, "jid", &[], jid));
            push_end(out, name);
        }
        push_end(out, "prefs");
    }

    /// Whether messages of an address are archived. `contact`: the address is on the account's roster.
    fn takes(&self, address: &str, contact: bool) -> bool {
        let bare = bare_part(address);
        let has = |list: &[Box<str>]| list.iter().any(|it| **it == *address || **it == *bare);
        let by_default = match self.default {
            DefaultRule::Always => true,
            DefaultRule::Never => false,
            DefaultRule::Roster => contact,
        };
        !has(&self.never) && (has(&self.always) || by_default)
    }
}

/// The archive of one account.
#[derive(Debug, Default)]
pub(super) struct Archive {
    rules: ArchiveRules,
    /// Oldest first.
    messages: VecDeque<Entry>,
    /// The sum of [`Entry::bytes`].
    bytes: usize,
    /// The number of messages numbered so far.
    numbered: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// The other side: recipient or sender.
    with: Box<str>,
    sent_at: Timestamp,
    message: Bytes,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.message.len() + self.with.len()
    }
}

impl Archive {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.messages.push_back(entry);
        while self.messages.len() > MESSAGES_MAX || (self.bytes > BYTES_MAX && self.messages.len() > 1) {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }
}

/// The ids of a message in the archives of both sides; `None` if it is not archived there.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) sender: Option<u64>,
    pub(super) recipient: Option<u64>,
}

impl<S: Copy + Eq> Accounts<S> {
    /// Assigns the archive ids of a message. `from` and `to`: full or bare addresses.
    pub(super) fn number(&mut self, user: &str, from: &str, name: &str, to: &str) -> Numbers {
        // A message to oneself is archived once.
        let is_own = *user == *name;
        Numbers {
            sender: if is_own { None } else { self.next_number(user, to) },
            recipient: self.next_number(name, from),
        }
    }

    /// `None`: the account's rules exclude this address.
    fn next_number(&mut self, user: &str, address: &str) -> Option<u64> {
        let account = self.accounts.get_mut(user)?;
        let is_contact = account.roster.get(bare_part(address)).is_some_and(|item| item.listed);
        if !account.archive.rules.takes(address, is_contact) {
            return None;
        }
        account.archive.numbered += 1;
        Some(account.archive.numbered)
    }

    pub(super) fn archive(
        &mut self,
        (user, with): (&str, &str),
        number: Option<u64>,
        sent_at: Timestamp,
        message: &Bytes,
    ) {
        let (Some(number), Some(account)) = (number, self.accounts.get_mut(user)) else { return };
        account.archive.push(Entry { number, with: with.into(), sent_at, message: message.clone() });
    }

    /// The element with the id of a message in an account's archive (XEP-0359).
    pub(super) fn stanza_id(&self, user: &str, number: Option<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(number) = number {
            let (by, id) = (self.bare(user), self.counted(user, number));
            push_empty(&mut out, "stanza-id", &[("xmlns", ns::STANZA_ID), ("by", &by), ("id", &id)]);
        }
        out
    }

    /// A page of the account's own archive.
    pub fn archived(&self, user: &str, query: &ArchiveQuery) -> Result<ArchivePage, Refusal> {
        let archive = &self.accounts.get(user).ok_or(Refusal::Forbidden)?.archive;
        let is_asked = |entry: &&Entry| {
            query.is_with(&entry.with)
                && query.since.is_none_or(|since| entry.sent_at >= since)
                && query.until.is_none_or(|until| entry.sent_at <= until)
        };
        // Numbers increase from the oldest to the newest message.
        let number = |id: &str| {
            let number = id.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let number = number.filter(|number| *self.counted(user, *number) == *id);
            number.filter(|number| archive.messages.iter().any(|entry| entry.number == *number))
        };
        let (first, last) = match &query.place {
            ArchivePlace::First | ArchivePlace::Last => (0, u64::MAX),
            ArchivePlace::After(id) => (number(id).ok_or(Refusal::NotFound)? + 1, u64::MAX),
            ArchivePlace::Before(id) => (0, number(id).ok_or(Refusal::NotFound)? - 1),
        };
        let asked: Vec<&Entry> = archive.messages.iter().filter(is_asked).collect();
        let begin = asked.partition_point(|entry| entry.number < first);
        let end = asked.partition_point(|entry| entry.number <= last).max(begin);
        let places = match query.place {
            ArchivePlace::First | ArchivePlace::After(_) => begin..end.min(begin + query.max),
            ArchivePlace::Last | ArchivePlace::Before(_) => begin.max(end.saturating_sub(query.max))..end,
        };
        let page = asked[places.clone()].iter().map(|entry| Archived {
            id: self.counted(user, entry.number).into(),
            sent_at: entry.sent_at,
            message: entry.message.clone(),
        });
        Ok(ArchivePage::new(query, page.collect(), places.start as u64, asked.len() as u64))
    }

    /// Returns the archiving preferences, after replacing them if `rules` is set.
    pub fn archive_rules(&mut self, user: &str, rules: Option<ArchiveRules>) -> Result<Bytes, Refusal> {
        let account = self.accounts.get_mut(user).ok_or(Refusal::Forbidden)?;
        let known = &mut account.archive.rules;
        *known = rules.unwrap_or(std::mem::take(known));
        let mut out = Vec::new();
        known.push(&mut out);
        Ok(out.into())
    }
}

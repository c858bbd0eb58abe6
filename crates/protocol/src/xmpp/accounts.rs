//! Accounts that exchange stanzas, for conformance suites: rosters and subscriptions (RFC 6121 §2, §3),
//! presence of resources (§4), and stanza routing (§8.5). In memory, every list bounded.
//!
//! A table without IO: its owner reports sessions that start, end or send stanzas, and sends the stanzas in
//! the [`Outbox`], in order. `S` identifies a session for the owner. An account is one user; each of its
//! resources has its own session.
//!
//! Modules: `archive` stores messages (XEP-0313), `personal` events of accounts (XEP-0163), `card` vCards
//! (XEP-0054), `nodes` PubSub nodes of accounts (XEP-0060), `push` push registrations (XEP-0357), `copies`
//! carbons for other resources (XEP-0280), `roster` contacts, `subscription` presence subscriptions,
//! `availability` presence, `routing` messages and requests, `relayed` a stanza between two addresses,
//! `command` the requests of clients to all of these.
//!
//! Invariant: counters in stanzas to an account count only its own actions, so no account can infer the
//! activity of others.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use noroshi_types::limits;

use super::error::Refusal;
use super::jid;
use crate::native::Token;

mod archive;
mod availability;
mod card;
mod command;
mod copies;
pub mod nodes;
mod personal;
mod push;
mod relayed;
mod roster;
mod routing;
mod subscription;

use archive::Archive;
pub use archive::ArchiveRules;
pub use card::Card;
pub use command::Command;
pub(in crate::xmpp) use nodes::NodeCommand;
pub use nodes::{NodeAnswer, NodeError, NodeRequest};
pub(in crate::xmpp) use personal::CAPABILITIES;
pub use personal::PersonalItem;
pub use push::PushChange;
pub use relayed::{Recipient, Relayed};
use roster::Item;
pub use roster::RosterChange;
use routing::Outcome;

pub const ACCOUNTS_MAX: usize = 1_000;
/// Maximum sessions of one account.
pub const RESOURCES_MAX: usize = 10;
const PASSWORD_BYTES_MAX: usize = 1_024;
/// Limits of an account's offline messages, in count and bytes: half of the send queue, since they are sent
/// at once.
const OFFLINE_MESSAGES_MAX: usize = 100;
const OFFLINE_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;
/// Limits of an account's roster, in contacts and in bytes of addresses, names and groups: one response
/// contains all.
const ROSTER_MAX: usize = 1_000;
const ROSTER_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;
/// Limit of unanswered presence subscription requests per account.
const PENDING_MAX: usize = 30;
/// Limit in bytes of the pending requests sent after an initial presence, once for presence subscriptions and
/// once for node subscriptions. The others follow after the account has answered some.
const PENDING_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 8;
/// Limit of one presence in bytes, without its addresses.
pub(in crate::xmpp) const PRESENCE_BYTES_MAX: usize = 4 << 10;
/// Limit of addresses per resource that received directed presence.
const DIRECTED_MAX: usize = 100;

/// Stanzas to send, each with its session, in order.
pub type Outbox<S> = Vec<(S, Bytes)>;

#[derive(Debug)]
pub struct Accounts<S> {
    domain: Box<str>,
    accounts: HashMap<Box<str>, Account<S>>,
    /// Random per table, so that roster versions and archive ids of different tables differ.
    epoch: u64,
    /// The number of accounts created so far.
    made: u64,
    /// Nodes that accounts created at the PubSub service, by name.
    nodes: BTreeMap<Box<str>, nodes::Node>,
    /// The number of generated names of nodes and items.
    generated_names: u64,
    /// The number of requests to push services.
    push_requests: u64,
    /// Sessions of removed accounts until they end: their names may belong to new accounts by then.
    ended: Vec<S>,
}

#[derive(Debug)]
struct Account<S> {
    password: Box<str>,
    /// Unique among all accounts of the table, including previous ones with the same name.
    number: u64,
    /// Contacts by bare address.
    roster: BTreeMap<Box<str>, Item>,
    roster_changes: u64,
    /// At most [`RESOURCES_MAX`], including disconnected ones that may resume.
    resources: Vec<Resource<S>>,
    /// Offline messages, oldest first.
    kept: VecDeque<Bytes>,
    /// Its personal events, one per node.
    nodes: Vec<PersonalItem>,
    card: Option<Card>,
    archive: Archive,
    /// Its push registrations.
    pushes: Vec<push::PushRegistration>,
}

#[derive(Debug)]
struct Resource<S> {
    name: Box<str>,
    /// Unique within the account: `0 <= place < RESOURCES_MAX`.
    place: u8,
    /// `None`: not connected yet, or disconnected.
    session: Option<S>,
    /// It requested the roster (RFC 6121 §2.2) and receives roster pushes.
    interested: bool,
    /// It receives carbons (XEP-0280).
    copies: bool,
    /// Its last presence; kept while disconnected, for a resumption.
    presence: Option<Relayed>,
    /// The hash of its client's capabilities (XEP-0115), and the nodes whose events it wants.
    capabilities: Option<Box<str>>,
    interests: Vec<Box<str>>,
    /// Addresses outside the roster that received its presence (§4.6).
    directed: BTreeSet<Box<str>>,
}

impl<S> Resource<S> {
    fn is_available(&self) -> bool {
        self.session.is_some() && self.presence.is_some()
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// `given`: names and passwords. `epoch` must be random.
    pub fn new<'a>(domain: &str, epoch: u64, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut accounts = Self {
            domain: domain.into(),
            accounts: HashMap::new(),
            epoch,
            made: 0,
            nodes: BTreeMap::new(),
            generated_names: 0,
            push_requests: 0,
            ended: Vec::new(),
        };
        given.into_iter().for_each(|(name, password)| accounts.add(name, password));
        accounts
    }

    fn add(&mut self, user: &str, password: &str) {
        self.made += 1;
        self.accounts.insert(user.into(), Account::new(password, self.made));
    }

    pub fn has(&self, user: &str) -> bool {
        self.accounts.contains_key(user)
    }

    pub fn is_password(&self, user: &str, password: &str) -> bool {
        self.accounts.get(user).is_some_and(|account| *account.password == *password)
    }

    pub fn password(&self, user: &str) -> Option<Token> {
        self.accounts.get(user).map(|account| Token::new(&account.password))
    }

    /// Creates an account, or changes the password of `own`.
    pub fn put(&mut self, user: &str, password: &str, own: Option<&str>) -> Result<(), Refusal> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        let count = self.accounts.len();
        match self.accounts.get_mut(user) {
            Some(account) if own == Some(user) => account.password = password.into(),
            Some(_) => return Err(Refusal::Conflict),
            None if own.is_some() => return Err(Refusal::Forbidden),
            None if count >= ACCOUNTS_MAX => return Err(Refusal::Overloaded),
            None => self.add(user, password),
        }
        Ok(())
    }

    /// Whether a session's account was removed, so that the session may not send requests.
    pub fn has_ended(&self, session: S) -> bool {
        self.ended.contains(&session)
    }

    /// Removes an account with all its relations to others. Returns its sessions.
    pub fn remove(&mut self, user: &str, outbox: &mut Outbox<S>) -> Vec<S> {
        // First, so that subscribers are notified that its nodes are deleted, not that they lose access.
        self.remove_nodes(user, outbox);
        self.remove_push_registrations(user);
        let contacts: Vec<Box<str>> =
            self.accounts.get(user).map(|it| it.roster.keys().cloned().collect()).unwrap_or_default();
        for contact in contacts {
            self.remove_contact(user, &contact, outbox);
        }
        let Some(account) = self.accounts.get(user) else { return Vec::new() };
        let sessions: Vec<S> = account.resources.iter().filter_map(|resource| resource.session).collect();
        sessions.iter().for_each(|session| self.detach(user, *session, outbox));
        self.accounts.remove(user);
        self.ended.extend(&sessions);
        sessions
    }

    /// Reserves a place for a session that is about to start: the resource's previous one, or a free one.
    pub fn reserve(&mut self, user: &str, resource: &str) -> Option<u8> {
        let resources = &mut self.accounts.get_mut(user)?.resources;
        if let Some(known) = resources.iter().find(|known| *known.name == *resource) {
            return Some(known.place);
        }
        if resources.len() == RESOURCES_MAX {
            let gone = resources.iter().position(|it| it.session.is_none())?;
            resources.remove(gone); // the one that is disconnected for longest
        }
        let place = (0..RESOURCES_MAX as u8).find(|place| resources.iter().all(|it| it.place != *place))?;
        resources.push(Resource::new(resource, place));
        Some(place)
    }

    pub fn place(&self, user: &str, resource: &str) -> Option<u8> {
        self.resource(user, resource).map(|resource| resource.place)
    }

    /// Attaches a session that started or resumed. A known session has no effect.
    pub fn attach(&mut self, user: &str, session: S, resource: &str, resumed: bool, outbox: &mut Outbox<S>) {
        if self.reserve(user, resource).is_none() || self.position(user, session).is_some() {
            return;
        }
        let before = self.resource(user, resource).and_then(|it| it.session);
        // RFC 6120 §7.7.2.2: replaces the previous session.
        before.into_iter().for_each(|before| self.detach(user, before, outbox));
        let Some(found) = self.resource_mut(user, resource) else { return };
        found.session = Some(session);
        if !resumed {
            let fresh = Resource::new(resource, found.place);
            *found = Resource { session: Some(session), ..fresh };
        } else if let Some(presence) = found.presence.take() {
            self.announce(user, session, presence, outbox);
        }
    }

    /// Detaches an ended session, whatever ended it.
    pub fn detach(&mut self, user: &str, session: S, outbox: &mut Outbox<S>) {
        self.ended.retain(|ended| *ended != session);
        let Some(at) = self.position(user, session) else { return };
        let Some(account) = self.accounts.get(user) else { return };
        let presence = account.resources[at].presence.clone();
        self.announce(user, session, Relayed::unavailable(), outbox);
        if let Some(account) = self.accounts.get_mut(user) {
            let mut resource = account.resources.remove(at);
            (resource.session, resource.presence) = (None, presence);
            account.resources.push(resource);
        }
    }

    fn position(&self, user: &str, session: S) -> Option<usize> {
        self.accounts.get(user)?.resources.iter().position(|it| it.session == Some(session))
    }

    fn resource(&self, user: &str, resource: &str) -> Option<&Resource<S>> {
        self.accounts.get(user)?.resources.iter().find(|it| *it.name == *resource)
    }

    fn resource_mut(&mut self, user: &str, resource: &str) -> Option<&mut Resource<S>> {
        self.accounts.get_mut(user)?.resources.iter_mut().find(|it| *it.name == *resource)
    }

    fn session_mut(&mut self, user: &str, session: S) -> Option<&mut Resource<S>> {
        self.accounts.get_mut(user)?.resources.iter_mut().find(|it| it.session == Some(session))
    }

    fn bare(&self, user: &str) -> String {
        format!("{}@{}", jid::escape_local(user), self.domain)
    }

    /// The account name of a bare address, whether or not the account exists; `None` for another domain.
    fn name_of(&self, bare: &str) -> Option<String> {
        let (local, domain) = bare.split_once('@')?;
        (*domain == *self.domain).then(|| jid::unescape_local(local).into_owned())
    }

    /// A unique id from one of the account's counters; differs from ids before a restart.
    fn counted(&self, user: &str, count: u64) -> String {
        let number = self.accounts.get(user).map_or(0, |account| account.number);
        format!("{:x}-{number}-{count}", self.epoch)
    }

    fn full(&self, user: &str, session: S) -> Option<String> {
        let at = self.position(user, session)?;
        Some(format!("{}/{}", self.bare(user), self.accounts.get(user)?.resources[at].name))
    }

    fn available(&self, user: &str) -> impl Iterator<Item = &Resource<S>> {
        let resources = self.accounts.get(user).map(|account| account.resources.iter());
        resources.into_iter().flatten().filter(|resource| resource.is_available())
    }
}

impl<S> Account<S> {
    fn new(password: &str, number: u64) -> Self {
        Self {
            password: password.into(),
            number,
            roster: BTreeMap::new(),
            roster_changes: 0,
            resources: Vec::new(),
            kept: VecDeque::new(),
            nodes: Vec::new(),
            card: None,
            archive: Archive::default(),
            pushes: Vec::new(),
        }
    }
}

impl<S> Resource<S> {
    fn new(name: &str, place: u8) -> Self {
        Self {
            name: name.into(),
            place,
            session: None,
            interested: false,
            copies: false,
            presence: None,
            capabilities: None,
            interests: Vec::new(),
            directed: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests;

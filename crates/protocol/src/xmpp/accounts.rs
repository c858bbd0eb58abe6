//! Accounts that talk to each other, for conformance suites: their rosters and subscriptions (RFC 6121 §2, §3), the
//! presence of their resources (§4), and who gets what is sent to them (§8.5). In memory, every list bounded.
//!
//! It is a table without IO: whoever owns it says who came, went and said what, and writes what it is told
//! to, in that order. `S` names a session, as its owner finds it. An account is one user; each of its
//! resources has a session of its own.
//!
//! `archive` keeps what was said (XEP-0313), `personal` is what an account publishes of itself (XEP-0163), `card` its
//! card (XEP-0054), `nodes` what accounts make at the PubSub service (XEP-0060), `push` where it is told of what waits (XEP-0357), `copies` what its other resources get of its messages (XEP-0280), `roster` what an account keeps of a
//! contact, `subscription` what becomes of that, `availability` who is there, `routing` messages and requests,
//! `relayed` a stanza between two addresses.
//!
//! Invariant: what an account is told counts only what concerns itself, so no number tells how much others do.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use noroshi_types::limits;

use super::action::Refusal;
use super::jid;
use crate::native::Token;

mod archive;
mod availability;
mod card;
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
pub use nodes::{NodeAnswer, NodeError, NodeRequest};
pub(in crate::xmpp) use personal::CAPABILITIES;
pub use personal::PersonalItem;
pub use push::PushChange;
pub use relayed::{Recipient, Relayed};
use roster::Item;
pub use roster::RosterChange;
pub use routing::Outcome;

pub const ACCOUNTS_MAX: usize = 1_000;
/// Sessions of one account.
pub const RESOURCES_MAX: usize = 10;
const PASSWORD_BYTES_MAX: usize = 1_024;
/// Messages that wait for one account, and their bytes: half of what may be unsent, since they are told at once.
const KEPT_MAX: usize = 100;
const KEPT_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;
/// Contacts of one account, and the bytes of their addresses, names and groups: one answer has them all.
const ROSTER_MAX: usize = 1_000;
const ROSTER_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;
/// Presence subscription requests that an account has not answered.
const PENDING_MAX: usize = 30;
/// Bytes of the pending requests that the server sends at an initial presence: so many for subscriptions to presence, and
/// as many for subscriptions to nodes. It sends the others once the account has answered some.
const ASKED_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 8;
/// Of one presence, its addresses aside.
pub(in crate::xmpp) const PRESENCE_BYTES_MAX: usize = 4 << 10;
/// Addresses that one resource sent its presence to besides its contacts.
const DIRECTED_MAX: usize = 100;

/// What a session is to be sent.
pub type Told<S> = Vec<(S, Bytes)>;

#[derive(Debug)]
pub struct Accounts<S> {
    domain: Box<str>,
    accounts: HashMap<Box<str>, Account<S>>,
    /// Unlike that of every other table, so that versions of rosters and ids of archived messages are.
    epoch: u64,
    /// Accounts that were made so far.
    made: u64,
    /// What accounts made at the PubSub service, by name.
    nodes: BTreeMap<Box<str>, nodes::Node>,
    /// Names of nodes and items that were drawn so far.
    nodes_made: u64,
    /// Requests to push services that were made so far.
    pushes_made: u64,
    /// Sessions of accounts that were removed, until they end: who has the name by then is somebody else.
    ended: Vec<S>,
}

#[derive(Debug)]
struct Account<S> {
    password: Box<str>,
    /// Unlike that of every other account of the table, those of the same name before it among them.
    number: u64,
    /// By bare address.
    roster: BTreeMap<Box<str>, Item>,
    roster_changes: u64,
    /// At most [`RESOURCES_MAX`], those among them that are gone and may come back.
    resources: Vec<Resource<S>>,
    /// Oldest first.
    kept: VecDeque<Bytes>,
    /// What it published of itself, one of each node.
    nodes: Vec<PersonalItem>,
    card: Option<Card>,
    archive: Archive,
    /// Where it is told that a message waits.
    pushes: Vec<push::PushRegistration>,
}

#[derive(Debug)]
struct Resource<S> {
    name: Box<str>,
    /// Unlike that of every other of the account: `0 <= place < RESOURCES_MAX`.
    place: u8,
    /// None: it is about to come, or gone.
    session: Option<S>,
    /// It asked for the roster (RFC 6121 §2.2) and is told of changes.
    interested: bool,
    /// It gets copies of messages (XEP-0280).
    copies: bool,
    /// The last one it announced; of one that is gone, for when it is resumed.
    presence: Option<Relayed>,
    /// What its client said that it can, by name (XEP-0115), and the nodes that it wants to hear of.
    capabilities: Option<Box<str>>,
    wanted: Vec<Box<str>>,
    /// Who got its presence without being a contact (§4.6), as addresses.
    directed: BTreeSet<Box<str>>,
}

impl<S> Resource<S> {
    fn is_available(&self) -> bool {
        self.session.is_some() && self.presence.is_some()
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// `given`: names and passwords. `epoch`: drawn at random.
    pub fn new<'a>(domain: &str, epoch: u64, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut accounts = Self {
            domain: domain.into(),
            accounts: HashMap::new(),
            epoch,
            made: 0,
            nodes: BTreeMap::new(),
            nodes_made: 0,
            pushes_made: 0,
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

    /// A new account, or a new password for `own`.
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

    /// Whether a session's account was removed: nothing may be asked for it any more.
    pub fn has_ended(&self, session: S) -> bool {
        self.ended.contains(&session)
    }

    /// The account goes, and with it what others had to do with it; its sessions.
    pub fn remove(&mut self, user: &str, told: &mut Told<S>) -> Vec<S> {
        // First, so that subscribers of its nodes hear that these end, not that they lose access.
        self.forget_nodes(user, told);
        self.forget_pushes(user);
        let contacts: Vec<Box<str>> =
            self.accounts.get(user).map(|it| it.roster.keys().cloned().collect()).unwrap_or_default();
        for contact in contacts {
            self.forget_contact(user, &contact, told);
        }
        let Some(account) = self.accounts.get(user) else { return Vec::new() };
        let sessions: Vec<S> = account.resources.iter().filter_map(|resource| resource.session).collect();
        sessions.iter().for_each(|session| self.detach(user, *session, told));
        self.accounts.remove(user);
        self.ended.extend(&sessions);
        sessions
    }

    /// A place for a session that is about to begin: the one that this resource had, or a free one.
    pub fn reserve(&mut self, user: &str, resource: &str) -> Option<u8> {
        let resources = &mut self.accounts.get_mut(user)?.resources;
        if let Some(known) = resources.iter().find(|known| *known.name == *resource) {
            return Some(known.place);
        }
        if resources.len() == RESOURCES_MAX {
            let gone = resources.iter().position(|it| it.session.is_none())?;
            resources.remove(gone); // the one that is so for longest
        }
        let place = (0..RESOURCES_MAX as u8).find(|place| resources.iter().all(|it| it.place != *place))?;
        resources.push(Resource::new(resource, place));
        Some(place)
    }

    pub fn place(&self, user: &str, resource: &str) -> Option<u8> {
        self.resource(user, resource).map(|resource| resource.place)
    }

    /// A session began, or goes on: nothing is done if that is known.
    pub fn attach(&mut self, user: &str, session: S, resource: &str, resumed: bool, told: &mut Told<S>) {
        if self.reserve(user, resource).is_none() || self.position(user, session).is_some() {
            return;
        }
        let before = self.resource(user, resource).and_then(|it| it.session);
        // RFC 6120 §7.7.2.2: it is replaced.
        before.into_iter().for_each(|before| self.detach(user, before, told));
        let Some(found) = self.resource_mut(user, resource) else { return };
        found.session = Some(session);
        if !resumed {
            let fresh = Resource::new(resource, found.place);
            *found = Resource { session: Some(session), ..fresh };
        } else if let Some(presence) = found.presence.take() {
            self.announce(user, session, presence, told);
        }
    }

    /// A session ended, however.
    pub fn detach(&mut self, user: &str, session: S, told: &mut Told<S>) {
        self.ended.retain(|ended| *ended != session);
        let Some(at) = self.position(user, session) else { return };
        let Some(account) = self.accounts.get(user) else { return };
        let presence = account.resources[at].presence.clone();
        self.announce(user, session, Relayed::unavailable(), told);
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

    /// The account at a bare address, whether it exists or not; none where it is of another domain.
    fn name_of(&self, bare: &str) -> Option<String> {
        let (local, domain) = bare.split_once('@')?;
        (*domain == *self.domain).then(|| jid::unescape_local(local).into_owned())
    }

    /// The name of something that an account counts: unlike every other's, before a restart too.
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
            wanted: Vec::new(),
            directed: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests;

//! Accounts with passwords, for conformance suites: given at the start or registered in band (XEP-0077), devices
//! of one app like others. What they send each other is handed on as RFC 6121 §8.5 says; messages for one that
//! is away wait here (XEP-0160), in memory.
//!
//! Without an account nothing here does anything: none can be made unless the configuration says so.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use noroshi_auth::Identity;
use noroshi_protocol::native::Token;
use noroshi_protocol::xmpp::xml::{Limits, parse_element};
use noroshi_protocol::xmpp::{Answer, Conversation, Refusal, Request};
use noroshi_types::{CloseReason, DeviceId, Presence, Timestamp};
use parking_lot::Mutex;

use super::config;
use crate::gateway::Shared;
use crate::mailbox::Mail;
use crate::registry::Address;
use crate::shard::Shard;

const ACCOUNTS_MAX: usize = 1_000;
const PASSWORD_BYTES_MAX: usize = 1_024;
/// Messages that wait for one account.
const KEPT_MAX: usize = 100;

struct Account {
    password: Box<str>,
    present: Option<Present>,
    /// Oldest first.
    kept: VecDeque<Bytes>,
}

/// Its session.
struct Present {
    address: Address,
    resource: Box<str>,
    /// Takes what is for the account, not for the resource.
    available: bool,
}

/// Its lock guards the table only; nothing else is locked under it.
pub(super) struct Accounts(Mutex<HashMap<Box<str>, Account>>);

/// What becomes of a stanza.
enum Routed {
    To(Address),
    Kept,
    Refused,
    Dropped,
}

impl Accounts {
    pub(super) fn new(given: &[config::Account]) -> Self {
        let account = |it: &config::Account| (it.name.to_lowercase().into(), Account::new(&it.password));
        Self(Mutex::new(given.iter().map(account).collect()))
    }

    pub(super) fn is_password(&self, user: &str, password: &str) -> bool {
        self.0.lock().get(user).is_some_and(|account| *account.password == *password)
    }

    pub(super) fn password(&self, user: &str) -> Option<Token> {
        self.0.lock().get(user).map(|account| Token::new(&account.password))
    }

    /// A new account, or a new password for `own`.
    fn put(&self, user: &str, password: &str, own: Option<&str>) -> Result<(), Refusal> {
        let mut accounts = self.0.lock();
        if password.len() > PASSWORD_BYTES_MAX || DeviceId::parse(user).is_err() {
            return Err(Refusal::TooBig);
        }
        let count = accounts.len();
        match accounts.get_mut(user) {
            Some(account) if own == Some(user) => account.password = password.into(),
            Some(_) => return Err(Refusal::Conflict),
            None if own.is_some() => return Err(Refusal::Forbidden),
            None if count >= ACCOUNTS_MAX => return Err(Refusal::Overloaded),
            None => drop(accounts.insert(user.into(), Account::new(password))),
        }
        Ok(())
    }

    fn route(&self, to: &str, resource: Option<&str>, stanza: &Bytes) -> Routed {
        let (name, kind) = kind_of(stanza);
        let mut accounts = self.0.lock();
        let Some(account) = accounts.get_mut(to) else { return Routed::Refused };
        let present = account.present.as_ref();
        // Named itself, or meant as the account's (RFC 6121 §8.5.2, §8.5.3).
        let named = present.filter(|present| resource == Some(&*present.resource));
        let meant = present.filter(|present| present.available);
        match (name, &*kind) {
            ("iq", _) => named.map_or(Routed::Refused, Present::to),
            ("presence", _) if resource.is_some() => named.map_or(Routed::Dropped, Present::to),
            ("presence", _) => meant.map_or(Routed::Dropped, Present::to),
            (_, "error") => named.map_or(Routed::Dropped, Present::to),
            (_, "groupchat") => named.map_or(Routed::Refused, Present::to),
            (_, "headline") if resource.is_some() => named.map_or(Routed::Dropped, Present::to),
            (_, "headline") => meant.map_or(Routed::Dropped, Present::to),
            _ => match named.or(meant) {
                Some(present) => present.to(),
                None if account.kept.len() < KEPT_MAX => {
                    account.kept.push_back(stanza.clone());
                    Routed::Kept
                }
                None => Routed::Refused,
            },
        }
    }
}

impl Account {
    fn new(password: &str) -> Self {
        Self { password: password.into(), present: None, kept: VecDeque::new() }
    }
}

impl Present {
    fn to(&self) -> Routed {
        Routed::To(self.address)
    }
}

/// A stanza's name and type. It is one that a conversation made.
fn kind_of(stanza: &Bytes) -> (&'static str, String) {
    let text = std::str::from_utf8(stanza).unwrap_or_default();
    let names = ["iq", "presence", "message"];
    let name = names.into_iter().find(|name| text[1.min(text.len())..].starts_with(name));
    let limits = Limits { element_bytes_max: usize::MAX, ..Limits::default() };
    let kind =
        parse_element(text, None, &limits).map(|tree| tree.root().attribute("type").map(str::to_owned));
    (name.unwrap_or("message"), kind.ok().flatten().unwrap_or_default())
}

/// XEP-0203: what waited says since when.
fn delayed(stanza: &Bytes, domain: &str, since: Timestamp) -> Bytes {
    let end = b"</message>";
    let Some(begin) = stanza.strip_suffix(end) else { return stanza.clone() };
    let delay = format!("<delay xmlns='urn:xmpp:delay' from='{domain}' stamp='{since}'/>");
    [begin, delay.as_bytes(), end].concat().into()
}

impl Shared {
    /// Who an account is; none if there is none of this name, or no app for accounts.
    pub(super) fn account_identity(&self, user: &str) -> Option<Identity> {
        self.xmpp.accounts.0.lock().get(user)?;
        let app = self.auth.app(&self.config.xmpp.accounts_app)?;
        let expires_at = Timestamp(u64::MAX);
        let device = DeviceId::parse(user).ok()?;
        let (user, token_version, topics) = (None, None, Vec::new());
        Some(Identity { app: app.id, device, user, create: true, token_version, topics, expires_at })
    }
}

impl Shard {
    /// The account that a connection belongs to, if it is one.
    fn account_of(&self, slot: u32) -> Option<(Box<str>, Address)> {
        let session = self.connections.get(slot as usize)?.session.as_ref()?;
        let app = self.shared.auth.app(&self.shared.config.xmpp.accounts_app)?;
        (app.id == session.app).then(|| (session.device.as_str().into(), session.address))
    }

    fn has_accounts(&self) -> bool {
        self.shared.config.xmpp.protocol.relay
    }

    /// A session began.
    pub(super) fn note_account(&mut self, slot: u32) {
        if !self.has_accounts() {
            return;
        }
        let Some((name, address)) = self.account_of(slot) else { return };
        let Some(xmpp) = self.xmpp(slot) else { return };
        let resource = xmpp.conversation.address().and_then(|jid| jid.split_once('/')).map(|(_, it)| it);
        let available = xmpp.conversation.presence() != Presence::Offline;
        let present = resource.map(|resource| Present { address, resource: resource.into(), available });
        if let Some(account) = self.shared.xmpp.accounts.0.lock().get_mut(&name) {
            account.present = present;
        }
    }

    /// What waited for the account it gets now.
    pub(super) fn tell_account(&mut self, slot: u32, presence: Presence) {
        if !self.has_accounts() {
            return;
        }
        let Some((name, address)) = self.account_of(slot) else { return };
        let mut kept = VecDeque::new();
        if let Some(account) = self.shared.xmpp.accounts.0.lock().get_mut(&name)
            && let Some(present) = account.present.as_mut().filter(|present| present.address == address)
        {
            present.available = presence != Presence::Offline;
            if present.available {
                kept = std::mem::take(&mut account.kept);
            }
        }
        for stanza in kept {
            self.deliver_stanza(slot, &stanza);
        }
    }

    /// A session ends.
    pub(super) fn forget_account(&mut self, slot: u32, conversation: &Conversation) {
        if !self.has_accounts() || conversation.address().is_none() {
            return;
        }
        let Some((name, address)) = self.account_of(slot) else { return };
        if let Some(account) = self.shared.xmpp.accounts.0.lock().get_mut(&name) {
            account.present.take_if(|present| present.address == address);
        }
    }

    pub(super) fn relay(
        &mut self,
        slot: u32,
        to: &str,
        resource: Option<&str>,
        stanza: Bytes,
        request: Option<Request>,
    ) {
        let domain = &self.shared.config.xmpp.protocol.domain;
        // Were it to be kept.
        let waiting = delayed(&stanza, domain, self.now.wall);
        match self.shared.xmpp.accounts.route(to, resource, &waiting) {
            Routed::To(address) => {
                let mailbox = &self.shared.mailboxes[usize::from(address.shard)];
                mailbox.deliver(Mail::Stanza { to: address, stanza });
            }
            Routed::Refused => {
                if let Some(request) = request {
                    self.answer_xmpp(slot, request, Answer::Refused(Refusal::Unavailable));
                }
            }
            Routed::Kept | Routed::Dropped => {}
        }
    }

    pub(super) fn register_account(&mut self, slot: u32, user: &str, password: &str, request: Request) {
        let own = self.account_of(slot).map(|(name, _)| name);
        let answer = match self.shared.xmpp.accounts.put(&user.to_lowercase(), password, own.as_deref()) {
            Ok(()) => Answer::Done,
            Err(refusal) => Answer::Refused(refusal),
        };
        self.answer_xmpp(slot, request, answer);
    }

    pub(super) fn unregister_account(&mut self, slot: u32, request: Request) {
        let removed = self
            .account_of(slot)
            .and_then(|(name, _)| self.shared.xmpp.accounts.0.lock().remove(&name))
            .is_some();
        let answer = if removed { Answer::Done } else { Answer::Refused(Refusal::Forbidden) };
        self.answer_xmpp(slot, request, answer);
        if removed {
            self.begin_close(slot, CloseReason::Revoked); // XEP-0077 §3.2
        }
    }
}

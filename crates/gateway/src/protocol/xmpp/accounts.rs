//! Accounts with passwords, for conformance suites: given at the start or registered in band (XEP-0077), devices
//! of one app like others, one for each resource. What they are to each other is `protocol::xmpp::accounts`'s;
//! here it is asked, and what it tells is brought to the sessions.
//!
//! Without an account nothing here does anything: none can be made unless the configuration says so.

use bytes::Bytes;
use noroshi_auth::Identity;
use noroshi_protocol::native::Token;
use noroshi_protocol::xmpp::accounts::{
    ArchiveRules, Card, NodeError, NodeRequest, Outcome, PersonalItem, PushChange, Recipient, Relayed,
    RosterChange, Told,
};
use noroshi_protocol::xmpp::error::StanzaError;
use noroshi_protocol::xmpp::{self, Answer, ArchiveQuery, Refusal, Request};
use noroshi_types::{CloseReason, DeviceId};
use parking_lot::Mutex;
use std::time::Duration;

use crate::config::xmpp as config;
use crate::fanout::mail::Mail;
use crate::session::registry::Address;
use crate::shard::Shard;
use crate::shard::shared::Shared;

/// A suite's connection that makes accounts for the others stays for as long as the suite may take.
const REGISTRAR_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Its lock guards the table only; nothing else is locked under it, and nothing waits.
pub(super) struct Accounts(Mutex<xmpp::Accounts<Address>>);

impl Accounts {
    pub(super) fn new(domain: &str, epoch: u64, given: &[config::Account]) -> Self {
        let given: Vec<_> = given.iter().map(|it| (it.name.to_lowercase(), &*it.password)).collect();
        let given = given.iter().map(|(name, password)| (&**name, *password));
        Self(Mutex::new(xmpp::Accounts::new(domain, epoch, given)))
    }

    pub(super) fn is_password(&self, user: &str, password: &str) -> bool {
        self.0.lock().is_password(user, password)
    }

    pub(super) fn password(&self, user: &str) -> Option<Token> {
        self.0.lock().password(user)
    }
}

/// The device of an account's resource; that of the first one has the account's name.
fn device_at(user: &str, place: u8) -> Option<DeviceId> {
    match place {
        0 => DeviceId::parse(user).ok(),
        place => DeviceId::parse(&format!("{user}/{place}")).ok(),
    }
}

impl Shared {
    /// Who an account is; none if there is none of this name, or no app for accounts.
    pub(super) fn account_identity(&self, user: &str) -> Option<Identity> {
        if !self.xmpp.accounts.0.lock().has(user) {
            return None;
        }
        let app = self.auth.app_id(&self.config.xmpp.accounts_app)?;
        Some(Identity::anonymous(app, DeviceId::parse(user).ok()?))
    }

    /// The device that a resource of an account is; none if the account has no room for it.
    pub(super) fn account_device(&self, user: &str, resource: &str) -> Option<DeviceId> {
        let place = self.xmpp.accounts.0.lock().reserve(user, resource)?;
        device_at(user, place)
    }

    /// The same of one that it has or had.
    pub(super) fn known_device(&self, user: &str, resource: &str) -> Option<DeviceId> {
        let place = self.xmpp.accounts.0.lock().place(user, resource)?;
        device_at(user, place)
    }
}

impl Shard {
    /// The account that a connection belongs to, if it is one, and its session.
    fn account_of(&mut self, slot: u32) -> Option<(Box<str>, Address)> {
        let address = self.connection(slot)?.session.as_ref()?.address;
        let name = self.xmpp(slot)?.conversation.account()?.into();
        Some((name, address))
    }

    /// Asks the table, and brings what it tells to the sessions. None: the connection is no account's, or its account was
    /// removed, and it is about to be closed for that.
    fn with_accounts<T>(
        &mut self,
        slot: u32,
        ask: impl FnOnce(&mut xmpp::Accounts<Address>, &str, Address, &mut Told<Address>) -> T,
    ) -> Option<T> {
        let (name, address) = self.account_of(slot)?;
        self.ask_table(|accounts, told| {
            (!accounts.has_ended(address)).then(|| ask(accounts, &name, address, told))
        })
    }

    /// Asks the table, and delivers what it tells. Every session receives stanzas in the order in which the table changed:
    /// those for other shards are queued under the lock, and those for this one behind what other shards queued before.
    fn ask_table<T>(&mut self, ask: impl FnOnce(&mut xmpp::Accounts<Address>, &mut Told<Address>) -> T) -> T {
        let shared = self.shared.clone();
        let mut told = Told::new();
        let mut accounts = shared.xmpp.accounts.0.lock();
        let answer = ask(&mut accounts, &mut told);
        let has_mail = !self.inlet.mail.is_empty() || !self.fanout.stalled.is_empty();
        told.retain(|(to, stanza)| {
            let is_at_once = to.shard == self.index && !has_mail;
            if !is_at_once {
                let mail = Mail::Stanza { to: *to, stanza: stanza.clone() };
                // Stanzas between accounts are not kept: without room, or without the shard, the stanza is lost.
                let _ = shared.mailboxes[usize::from(to.shard)].deliver(mail);
            }
            is_at_once
        });
        drop(accounts);
        for (to, stanza) in told {
            if self.at(to.slot, to.generation).is_some() {
                self.deliver_stanza(to.slot, &stanza);
                self.arm(to.slot);
            }
        }
        answer
    }

    /// A session began or goes on. It may be known already: what its client said at once was heard first.
    pub(super) fn note_account(&mut self, slot: u32) {
        let Some(xmpp) = self.xmpp(slot) else { return };
        let (resumed, full) = (xmpp.resumed, xmpp.conversation.address());
        let resource = full.and_then(|full| full.split_once('/')).map(|(_, resource)| resource.to_owned());
        let Some(resource) = resource else { return };
        self.with_accounts(slot, |accounts, user, session, told| {
            accounts.attach(user, session, &resource, resumed, told);
        });
    }

    /// A session ends. Its client may come back for it.
    pub(super) fn forget_account(&mut self, slot: u32, user: &str) {
        let session = self.connections.get(slot as usize).and_then(|it| it.session.as_ref());
        let Some(address) = session.map(|session| session.address) else { return };
        self.ask_table(|accounts, told| accounts.detach(user, address, told));
    }

    pub(super) fn announce(&mut self, slot: u32, presence: Relayed) {
        self.note_account(slot);
        self.with_accounts(slot, |accounts, user, session, told| {
            accounts.announce(user, session, presence, told);
        });
    }

    pub(super) fn relay(&mut self, slot: u32, to: &Recipient, stanza: &Relayed, request: Option<Request>) {
        self.note_account(slot);
        let now = self.now.wall;
        let outcome = self.with_accounts(slot, |accounts, user, session, told| {
            match stanza.is_presence() {
                true => accounts.direct(user, session, to, stanza, told),
                false => return accounts.route(user, session, to, stanza, now, told),
            }
            Outcome::Done
        });
        match (outcome, request) {
            (Some(Outcome::Refused), Some(request)) => {
                self.answer_xmpp(slot, request, Answer::Refused(Refusal::Unavailable));
            }
            (Some(Outcome::Refused | Outcome::Done) | None, _) => {}
        }
    }

    pub(super) fn tell_roster(&mut self, slot: u32, known: Option<&str>, request: Request) {
        self.note_account(slot);
        let roster =
            self.with_accounts(slot, |accounts, user, session, _| accounts.roster(user, session, known));
        if let Some(roster) = roster {
            self.answer_xmpp(slot, request, roster.map_or(Answer::Done, Answer::Content));
        }
    }

    pub(super) fn change_roster(&mut self, slot: u32, change: RosterChange, request: Request) {
        self.note_account(slot);
        let changed =
            self.with_accounts(slot, |accounts, user, _, told| accounts.change_roster(user, change, told));
        self.answer_done(slot, request, changed);
    }

    pub(super) fn publish_personal(&mut self, slot: u32, item: PersonalItem, request: Request) {
        self.note_account(slot);
        let published =
            self.with_accounts(slot, |accounts, user, _, told| accounts.publish(user, item, told));
        self.answer_content(slot, request, published);
    }

    pub(super) fn tell_personal(&mut self, slot: u32, owner: &str, node: &str, request: Request) {
        let items = self.with_accounts(slot, |accounts, user, _, _| accounts.items(user, owner, node));
        self.answer_content(slot, request, items);
    }

    pub(super) fn tell_account_archive(&mut self, slot: u32, query: &ArchiveQuery, request: Request) {
        let page = self.with_accounts(slot, |accounts, user, _, _| accounts.archived(user, query));
        match page {
            Some(Ok(page)) => self.answer_xmpp(slot, request, Answer::Archive(page)),
            Some(Err(refusal)) => self.answer_xmpp(slot, request, Answer::Refused(refusal)),
            None => {}
        }
    }

    pub(super) fn rule_archive(&mut self, slot: u32, rules: Option<ArchiveRules>, request: Request) {
        let rules = self.with_accounts(slot, |accounts, user, _, _| accounts.archive_rules(user, rules));
        self.answer_content(slot, request, rules);
    }

    pub(super) fn copy_messages(&mut self, slot: u32, wanted: bool, request: Request) {
        self.note_account(slot);
        let done =
            self.with_accounts(slot, |accounts, user, session, _| accounts.copy(user, session, wanted));
        self.answer_done(slot, request, done.map(Ok));
    }

    /// `topic`: what is to be done where no account made the node.
    pub(super) fn ask_node(
        &mut self,
        slot: u32,
        command: NodeRequest,
        topic: Result<Box<xmpp::Action>, (StanzaError, &'static str)>,
        request: Request,
    ) {
        self.note_account(slot);
        let answer =
            self.with_accounts(slot, |accounts, user, _, told| accounts.ask_node(user, command, told));
        let answer = match (answer, topic) {
            (None, _) => return,
            (Some(Ok(Some(content))), _) => Answer::Content(content),
            (Some(Ok(None)), _) => Answer::Done,
            (Some(Err(NodeError::Absent)), Ok(topic)) => return self.handle_xmpp(slot, *topic),
            (Some(Err(NodeError::Absent)), Err((error, detail))) => Answer::Error(error, detail),
            (Some(Err(NodeError::Refused(error, detail))), _) => Answer::Error(error, detail),
        };
        self.answer_xmpp(slot, request, answer);
    }

    /// Of an account: elements of its subscriptions that are no topics.
    pub(super) fn node_subscriptions(&mut self, slot: u32) -> Option<Bytes> {
        self.with_accounts(slot, |accounts, user, _, _| accounts.subscriptions(user))
    }

    pub(super) fn tell_card(&mut self, slot: u32, owner: Option<&str>, request: Request) {
        let card = self.with_accounts(slot, |accounts, user, _, _| accounts.card(user, owner));
        self.answer_content(slot, request, card);
    }

    pub(super) fn put_card(&mut self, slot: u32, card: Card, request: Request) {
        let put = self.with_accounts(slot, |accounts, user, _, _| accounts.put_card(user, card));
        self.answer_done(slot, request, put);
    }

    pub(super) fn change_push(&mut self, slot: u32, change: PushChange, request: Request) {
        let changed = self.with_accounts(slot, |accounts, user, _, _| accounts.change_push(user, change));
        self.answer_done(slot, request, changed);
    }

    pub(super) fn describe_account(&mut self, slot: u32, owner: &str, request: Request) {
        let known = self.with_accounts(slot, |accounts, user, _, _| accounts.knows(user, owner));
        match known {
            Some(true) => self.answer_xmpp(slot, request, Answer::Done),
            Some(false) => self.answer_xmpp(slot, request, Answer::Refused(Refusal::Unavailable)),
            None => {}
        }
    }

    pub(super) fn want_personal(&mut self, slot: u32, nodes: Vec<Box<str>>) {
        self.with_accounts(slot, |accounts, user, session, told| accounts.want(user, session, nodes, told));
    }

    fn answer_done(&mut self, slot: u32, request: Request, done: Option<Result<(), Refusal>>) {
        match done {
            Some(Ok(())) => self.answer_xmpp(slot, request, Answer::Done),
            Some(Err(refusal)) => self.answer_xmpp(slot, request, Answer::Refused(refusal)),
            None => {}
        }
    }

    fn answer_content(&mut self, slot: u32, request: Request, content: Option<Result<Bytes, Refusal>>) {
        match content {
            Some(Ok(content)) => self.answer_xmpp(slot, request, Answer::Content(content)),
            Some(Err(refusal)) => self.answer_xmpp(slot, request, Answer::Refused(refusal)),
            None => {}
        }
    }

    pub(super) fn register_account(&mut self, slot: u32, user: &str, password: &str, request: Request) {
        let own = self.account_of(slot);
        let user = user.to_lowercase();
        // A slash is between an account and its further resources.
        let answer = if DeviceId::parse(&user).is_err() || user.contains('/') {
            Answer::Refused(Refusal::TooBig)
        } else {
            let mut accounts = self.shared.xmpp.accounts.0.lock();
            let own = own.as_ref().filter(|(_, address)| !accounts.has_ended(*address));
            match accounts.put(&user, password, own.map(|(name, _)| &**name)) {
                Ok(()) => Answer::Done,
                Err(refusal) => Answer::Refused(refusal),
            }
        };
        let deadline = self.now.tick_after(REGISTRAR_TIMEOUT);
        if own.is_none()
            && matches!(answer, Answer::Done)
            && let Some(connection) = self.connection(slot)
        {
            connection.deadline_tick = deadline;
            self.arm(slot);
        }
        self.answer_xmpp(slot, request, answer);
    }

    pub(super) fn unregister_account(&mut self, slot: u32, request: Request) {
        let own = self.account_of(slot).map(|(_, address)| address);
        let sessions = self.with_accounts(slot, |accounts, user, _, told| accounts.remove(user, told));
        let Some(sessions) = sessions else {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::Forbidden));
        };
        self.answer_xmpp(slot, request, Answer::Done);
        // XEP-0077 §3.2
        for other in sessions.into_iter().filter(|session| Some(*session) != own) {
            self.shared.mailboxes[usize::from(other.shard)].close(other, CloseReason::Revoked);
        }
        self.begin_close(slot, CloseReason::Revoked);
    }
}

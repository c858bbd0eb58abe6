//! Accounts with passwords, for conformance suites: given at the start or registered in band (XEP-0077). They are
//! devices of one app, one for each resource. `noroshi_protocol::xmpp::accounts` has the table of them; this asks it
//! and relays its stanzas to sessions.
//!
//! Without an account nothing here does anything: none can be made unless the configuration allows it.

use std::time::Duration;

use bytes::Bytes;
use noroshi_auth::Identity;
use noroshi_protocol::native::Token;
use noroshi_protocol::xmpp::accounts::{Command, NodeError, NodeRequest, Outbox};
use noroshi_protocol::xmpp::error::Refused;
use noroshi_protocol::xmpp::{self, Action, Answer, ArchiveQuery, Refusal, Request};
use noroshi_types::{CloseReason, DeviceId};
use parking_lot::Mutex;

use super::{Service, Xmpp, service};
use crate::config::xmpp as config;
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::protocol::services::Services;
use crate::session::registry::Address;

/// A suite's connection that registers accounts for the others stays for as long as the suite may take.
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

impl Service {
    /// The identity of an account; none if there is no account of this name, or no app for accounts.
    pub(super) fn account_identity(&self, services: &Services, user: &str) -> Option<Identity> {
        if !self.accounts.0.lock().has(user) {
            return None;
        }
        let app = services.auth.app_id(&services.config.xmpp.accounts_app)?;
        Some(Identity::anonymous(app, DeviceId::parse(user).ok()?))
    }

    /// The device of an account's resource; none if the account has no room for it.
    pub(super) fn account_device(&self, user: &str, resource: &str) -> Option<DeviceId> {
        let place = self.accounts.0.lock().reserve(user, resource)?;
        device_at(user, place)
    }

    /// The device of a resource that an account has or had.
    pub(super) fn known_device(&self, user: &str, resource: &str) -> Option<DeviceId> {
        let place = self.accounts.0.lock().place(user, resource)?;
        device_at(user, place)
    }
}

/// Asks the table and relays its stanzas. Every session receives stanzas in the order in which the table changed: those
/// for other shards are queued under the lock, and those for this shard behind what other shards queued before.
fn ask_table<T>(
    cx: &mut Context<'_>,
    ask: impl FnOnce(&mut xmpp::Accounts<Address>, &mut Outbox<Address>) -> T,
) -> T {
    let mut stanzas = Outbox::new();
    let mut accounts = service(cx.services).accounts.0.lock();
    let answer = ask(&mut accounts, &mut stanzas);
    // Under the lock: another shard that changed the table before has queued its stanzas already.
    let has_mail = cx.peers.has_mail();
    for (to, stanza) in stanzas {
        match to.shard == cx.facts.shard && !has_mail {
            true => cx.effects.push(Effect::Relay { to, stanza }),
            // Stanzas between accounts are not stored: without room, or without the shard, the stanza is lost.
            false => cx.peers.network.relay(to, stanza),
        }
    }
    drop(accounts);
    answer
}

impl Xmpp {
    /// The account that the connection belongs to, if any, and its session.
    fn account(&self, cx: &Context<'_>) -> Option<(Box<str>, Address)> {
        Some((self.conversation.account()?.into(), cx.session?.address))
    }

    /// Asks the table for the connection's account. None: the connection has no account, or its account was removed and
    /// the connection is about to be closed for that.
    fn with_account<T>(
        &self,
        cx: &mut Context<'_>,
        ask: impl FnOnce(&mut xmpp::Accounts<Address>, &str, Address, &mut Outbox<Address>) -> T,
    ) -> Option<T> {
        let (name, address) = self.account(cx)?;
        ask_table(cx, |accounts, outbox| {
            (!accounts.has_ended(address)).then(|| ask(accounts, &name, address, outbox))
        })
    }

    /// A session began or continues. The table may know it already: what its client sent at once was handled first.
    pub(super) fn attach_account(&self, cx: &mut Context<'_>) {
        let (resumed, full) = (self.resumed, self.conversation.address());
        let resource = full.and_then(|full| full.split_once('/')).map(|(_, resource)| resource.to_owned());
        let Some(resource) = resource else { return };
        self.with_account(cx, |accounts, user, session, outbox| {
            accounts.attach(user, session, &resource, resumed, outbox);
        });
    }

    /// Detaches the account from a connection that ends. The client may resume the session.
    pub(super) fn detach_account(&self, cx: &mut Context<'_>) {
        if let Some((user, address)) = self.account(cx) {
            ask_table(cx, |accounts, outbox| accounts.detach(&user, address, outbox));
        }
    }

    /// Actions that only connections of accounts have.
    pub(super) fn act_for_account(&mut self, cx: &mut Context<'_>, action: Action) {
        match action {
            Action::Register { user, password, request } => {
                self.register_account(cx, &user, password.as_str(), request);
            }
            Action::Unregister { request } => self.unregister_account(cx, request),
            Action::Account { command, request } => self.execute(cx, command, request),
            Action::Node { command, topic, request } => self.ask_node(cx, command, topic, request),
            _ => {}
        }
    }

    fn execute(&mut self, cx: &mut Context<'_>, command: Command, request: Option<Request>) {
        if command.is_for_attached() {
            self.attach_account(cx);
        }
        let now = cx.now.wall;
        let answer = self.with_account(cx, |accounts, user, session, outbox| {
            accounts.execute(user, session, command, now, outbox)
        });
        if let (Some(Some(answer)), Some(request)) = (answer, request) {
            self.answer_later(cx, request, answer);
        }
    }

    pub(super) fn query_account_archive(
        &mut self,
        cx: &mut Context<'_>,
        query: &ArchiveQuery,
        request: Request,
    ) {
        let page = self.with_account(cx, |accounts, user, _, _| accounts.archived(user, query));
        if let Some(page) = page {
            self.answer_later(cx, request, page.map_or_else(Answer::Refused, Answer::Archive));
        }
    }

    /// `topic`: what to do if no account made the node.
    fn ask_node(
        &mut self,
        cx: &mut Context<'_>,
        command: NodeRequest,
        topic: Result<Box<Action>, Refused>,
        request: Request,
    ) {
        self.attach_account(cx);
        let answer =
            self.with_account(cx, |accounts, user, _, outbox| accounts.ask_node(user, command, outbox));
        let answer = match (answer, topic) {
            (None, _) => return,
            (Some(Ok(Some(content))), _) => Answer::Content(content),
            (Some(Ok(None)), _) => Answer::Done,
            (Some(Err(NodeError::Absent)), Ok(topic)) => {
                return cx.continue_with(super::Request::Act(*topic));
            }
            (Some(Err(NodeError::Absent)), Err((error, detail))) => Answer::Error(error, detail),
            (Some(Err(NodeError::Refused(error, detail))), _) => Answer::Error(error, detail),
        };
        self.answer_later(cx, request, answer);
    }

    /// Elements of an account's subscriptions that are no topics.
    pub(super) fn node_subscriptions(&self, cx: &mut Context<'_>) -> Option<Bytes> {
        self.with_account(cx, |accounts, user, _, _| accounts.subscriptions(user))
    }

    fn register_account(&mut self, cx: &mut Context<'_>, user: &str, password: &str, request: Request) {
        let own = self.account(cx);
        let user = user.to_lowercase();
        // A slash separates an account from its further resources.
        let answer = if DeviceId::parse(&user).is_err() || user.contains('/') {
            Answer::Refused(Refusal::TooBig)
        } else {
            let mut accounts = service(cx.services).accounts.0.lock();
            let own = own.as_ref().filter(|(_, address)| !accounts.has_ended(*address));
            match accounts.put(&user, password, own.map(|(name, _)| &**name)) {
                Ok(()) => Answer::Done,
                Err(refusal) => Answer::Refused(refusal),
            }
        };
        if own.is_none() && matches!(answer, Answer::Done) {
            cx.set_deadline(cx.now.tick_after(REGISTRAR_TIMEOUT));
        }
        self.answer_later(cx, request, answer);
    }

    fn unregister_account(&mut self, cx: &mut Context<'_>, request: Request) {
        let own = self.account(cx).map(|(_, address)| address);
        let sessions = self.with_account(cx, |accounts, user, _, outbox| accounts.remove(user, outbox));
        let Some(sessions) = sessions else {
            return self.answer_later(cx, request, Answer::Refused(Refusal::Forbidden));
        };
        self.answer_later(cx, request, Answer::Done);
        // XEP-0077 §3.2
        for other in sessions.into_iter().filter(|session| Some(*session) != own) {
            cx.push(Effect::CloseSession { at: other, reason: CloseReason::Revoked });
        }
        cx.close(CloseReason::Revoked);
    }
}

//! Log-ins and renewals: verifies tokens, reads the store in batches, and opens sessions.
//!
//! The state is in [`crate::session`]: [`crate::session::verification`], [`crate::session::login`],
//! [`crate::session::renewal`].
//!
//! Invariant: [`Shard::open_session`] attaches the session, adds its topics to the index, and only then looks at the
//! stamps ([`crate::session::stamp`]). So no message is missed between the read and live delivery.

use std::sync::Arc;

use noroshi_auth::{Checked, ClientNetwork, Costly, Credential, Identity, Refused};
use noroshi_delivery::rules::Reason;
use noroshi_delivery::{LoginAttempt, LoginResult, OverQuota};
use noroshi_events::Event;
use noroshi_events::event::{Connected, Rejected};
use noroshi_protocol::ws::Input;
use noroshi_store::{BacklogPage, LoggedIn, Login, LoginRefused, Place};
use noroshi_types::rule::Denied;
use noroshi_types::{AppId, AppName, CloseReason, NotificationId, Quota, SessionId, Topic, UserId};

use crate::lifecycle::Origin;
use crate::protocol::effect::{REFUSED_BY_PROTOCOL, Refusal, Reply as Outcome, TopicNotice};
use crate::session::catch_up::CatchUp;
use crate::session::following::Following;
use crate::session::login::{LOG_IN_TIMEOUT, OpenedSession, PendingLogIn, Succession, login_of, session_of};
use crate::session::permission::Permissions;
use crate::session::phase::Phase;
use crate::session::registry::{Address, Attached, Registry, Session};
use crate::session::renewal::{self, NotRenewed};
use crate::session::request::BoxedRequest;
use crate::session::stamp::Moment;
use crate::session::topic_index::Subscription;
use crate::session::topic_rules::renew_claims;
use crate::session::verification::{Pending, VERIFYING_MAX};
use crate::shard::Shard;
use crate::shard::connection::Opening;
use crate::shard::mailbox::{Close, Reply};
use crate::wire::Protocol;

/// Whose token it is, or why it is refused.
type Answer = Result<Identity, Refused>;

/// What became of a session that was to be attached.
enum Attaching {
    /// `succeeds`: it waits for the end of the session that it displaced.
    Attached { succeeds: bool },
    /// A newer session has the device's place.
    Displaced,
    /// The device changed after the read.
    Stale,
}

impl Shard {
    /// Logs, counts and emits the log-in of a device that is refused. `reason`: one of docs/events.md.
    pub(crate) fn report_refused_log_in(
        &mut self,
        slot: u32,
        reason: &'static str,
        why: &dyn std::fmt::Display,
    ) {
        self.shared.metrics.log_ins_refused.inc();
        self.emit_refused_log_in(slot, reason, why);
        let now = self.now.wall;
        let shared = self.shared.clone();
        if self.connection(slot).is_none() {
            return;
        }
        let Some(not_told) = shared.refusals.take(now) else { return };
        let peer = self.peer(slot).map(|peer| peer.to_string());
        let Some(connection) = self.connection(slot) else { return };
        let login = connection.opening.as_ref().and_then(|opening| opening.login.as_ref());
        tracing::info!(
            protocol = connection.protocol.as_str(),
            peer,
            device = login.map(|pending| pending.login.device.as_str()),
            not_told,
            "a log-in was refused: {why}"
        );
    }

    fn emit_refused_log_in(&mut self, slot: u32, reason: &'static str, why: &dyn std::fmt::Display) {
        if !self.delivery.context.outcomes.events().is_on() {
            return;
        }
        let Some(suppressed) = self.sessions.rejections.take(self.now) else { return };
        let client = self.client(slot).filter(|client| *client != ClientNetwork::NONE);
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        let protocol = connection.protocol.as_str();
        // What a protocol lets in without a token belongs to one app.
        let config = &shared.config;
        let without_token = match connection.protocol {
            Protocol::Xmpp => Some(&*config.xmpp.accounts_app),
            _ => config.anonymous_app.as_deref(),
        };
        let without_token = || shared.auth.app_id(without_token.filter(|_| reason == REFUSED_BY_PROTOCOL)?);
        let opening = connection.opening.as_ref();
        let login = opening.and_then(|opening| opening.login.as_ref()).map(|pending| &pending.login);
        let claimed = opening.and_then(|opening| opening.claimed_app);
        let rejected = Rejected {
            app: login.map(|login| login.app).or(claimed).or_else(without_token),
            device_id: login.map(|login| login.device.clone()),
            user: login.and_then(|login| login.user.clone()),
            protocol,
            reason,
            detail: why.to_string().into(),
            network: client.map(|client| client.to_string().into()),
            suppressed,
        };
        let event = || Event::Rejected(Box::new(rejected));
        self.delivery.context.outcomes.events().emit(self.now.wall, event);
    }

    /// Keeps for which app a log-in is, if its rejection is to be emitted. Replaces that of an earlier attempt.
    fn note_claimed_app(&mut self, slot: u32, app: impl FnOnce(&Self) -> Option<AppId>) {
        let app = if self.delivery.context.outcomes.events().is_on() { app(self) } else { None };
        let opening = self.connection(slot).and_then(|connection| connection.opening.as_ref());
        if opening.and_then(|opening| opening.claimed_app) == app {
            return;
        }
        if let Some(connection) = self.connection(slot) {
            connection.opening().claimed_app = app;
        }
    }

    pub(crate) fn start_log_in(
        &mut self,
        slot: u32,
        identity: Identity,
        session_topics: Vec<Topic>,
        resume: Option<NotificationId>,
    ) {
        let (deadline, now) = (self.now.tick_after(LOG_IN_TIMEOUT), self.now.wall);
        let generation = self.shared.services.generations.next(now);
        let (delivery, shared) = (self.delivery.clone(), self.shared.clone());
        self.end_unauthenticated(slot);
        // A drain may have started while the token was verified.
        if let Some(reason) = self.reject_reason(slot) {
            return self.begin_close(slot, reason);
        }
        let Some(connection) = self.connection(slot) else { return };
        // The permit of an earlier session on this connection.
        connection.attachment.permit = None;
        let registry = &shared.registry;
        // A device that reconnects before its old connection is found broken takes the place of that.
        let replaces = || registry.device(registry.device_key(identity.app, &identity.device)).is_some();
        match delivery.quotas.enter(identity.app, replaces) {
            Ok(permit) => connection.attachment.permit = permit,
            Err(over) => {
                self.note_claimed_app(slot, |_| Some(identity.app));
                return self.refuse_over_quota(slot, &over);
            }
        }
        connection.generation = generation;
        connection.phase = Phase::LoggingIn;
        connection.deadline_tick = deadline;
        connection.attachment.expires_at = identity.expires_at;
        let mut identity = identity;
        let claims = identity.claims.take();
        let denied = |topic| (topic, Reason::Rule(Denied::NoRule));
        let denied = std::mem::take(&mut identity.denied_topics).into_iter().map(denied).collect();
        let login = Login { session_topics, resume, ..login_of(identity, now) };
        let permitted = Permissions::default();
        connection.opening().login = Some(PendingLogIn { login, claims, denied, permitted, passes: 0 });
        self.queue_log_in(slot, generation);
    }

    /// The app's quota is used up: the client learns it in its protocol, with the time to reconnect.
    pub(crate) fn refuse_over_quota(&mut self, slot: u32, over: &OverQuota) {
        let why = over.to_string();
        self.report_refused_log_in(slot, CloseReason::QuotaExceeded.as_str(), &why);
        self.refuse_login(
            slot,
            &Refusal {
                code: CloseReason::QuotaExceeded.as_str(),
                text: why,
                reason: CloseReason::QuotaExceeded,
                after_s: Some(over.after_s()),
            },
        );
    }

    /// Why devices are refused now, if they are.
    pub(crate) fn reject_reason(&mut self, slot: u32) -> Option<CloseReason> {
        let over_rate = self.connection(slot).is_some_and(|it| it.origin == Origin::OverRate);
        let reason = match self.shared.drain.is_active() {
            true => CloseReason::Drain,
            false if over_rate || self.sessions.log_ins.is_behind(self.now.ms) => CloseReason::Overloaded,
            false => return None,
        };
        self.shared.metrics.admission_refused.inc();
        Some(reason)
    }

    pub(crate) fn queue_log_in(&mut self, slot: u32, generation: u64) {
        self.sessions.log_ins.push((slot, generation), self.now.ms);
    }

    /// Sends the log-ins that are due.
    pub(crate) fn send_log_ins(&mut self) {
        while let Some(mut to) = self.sessions.log_ins.next_batch(self.now.ms) {
            let mut logins = Vec::with_capacity(to.len());
            to.retain(|(slot, generation)| {
                let connection = self.connections.get(*slot as usize);
                let login = connection
                    .filter(|connection| connection.generation == *generation)
                    .and_then(|connection| Some(connection.opening.as_ref()?.login.as_ref()?.login.clone()));
                let wanted = login.is_some();
                logins.extend(login.map(|login| LoginAttempt { login, generation: *generation }));
                wanted
            });
            if logins.is_empty() {
                continue;
            }
            self.sessions.log_ins.batches_out += 1;
            self.shared.metrics.log_in_batches.inc();
            let (shared, index) = (self.shared.clone(), usize::from(self.index));
            let asked = shared.stamps.present();
            self.delivery.logins.log_in(logins, move |result| {
                shared.mailboxes[index].reply(Reply::LoggedIn { to, asked, result });
            });
        }
    }

    pub(crate) fn handle_log_in(&mut self, slot: u32, generation: u64, asked: Moment, answer: LoginResult) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase != Phase::LoggingIn {
            return;
        }
        let is_stream = connection.is_event_stream();
        match answer {
            LoginResult::In { logged_in, .. } if !self.authorize_log_in(slot, &logged_in) => {}
            LoginResult::In { logged_in, behind } => {
                self.open_session(slot, generation, asked, *logged_in, behind);
            }
            LoginResult::GenerationTooLow(present) => {
                self.shared.services.generations.outrun(present);
                let generation = self.shared.services.generations.next(self.now.wall);
                if let Some(connection) = self.connection(slot) {
                    connection.generation = generation;
                }
                self.queue_log_in(slot, generation);
            }
            LoginResult::OverQuota(over) => self.refuse_over_quota(slot, &over),
            LoginResult::Unavailable => self.begin_close(slot, CloseReason::Overloaded),
            LoginResult::Refused(refused) => {
                let why = match refused {
                    LoginRefused::Revoked => CloseReason::Revoked.explain(),
                    LoginRefused::TooManyTopics => "more topics than a device may have",
                };
                let name = match refused {
                    LoginRefused::Revoked => CloseReason::Revoked.as_str(),
                    LoginRefused::TooManyTopics => "too_many_topics",
                };
                self.report_refused_log_in(slot, name, &why);
                let (code, reason) = match refused {
                    LoginRefused::Revoked if !is_stream => {
                        return self.begin_close(slot, CloseReason::Revoked);
                    }
                    LoginRefused::Revoked => ("revoked", CloseReason::Revoked),
                    LoginRefused::TooManyTopics => ("too_many_topics", CloseReason::BadMessage),
                };
                self.refuse_login(slot, &Refusal { code, text: why.to_owned(), reason, after_s: None });
            }
        }
    }

    /// The store let the device in: attaches the session. From here on no message is missed.
    fn open_session(&mut self, slot: u32, generation: u64, asked: Moment, logged_in: LoggedIn, behind: bool) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(mut opening) = connection.opening.take() else { return };
        let Some(PendingLogIn { login, claims, permitted, denied, .. }) = opening.login.as_mut() else {
            return;
        };
        let address = Address { shard: self.index, slot, generation };
        let has_rules = self.delivery.rules.of(login.app).is_some();
        let claims = has_rules.then_some(&*claims);
        let session = session_of(login, &logged_in, claims, &self.shared.registry, address);
        // The session to resume is gone, or belongs to another device by now.
        let services = &self.shared.services;
        let may_resume = connection.adapter.as_ref().is_none_or(|it| it.may_resume(services, &session));
        if !login.session_topics.is_empty() && !may_resume {
            login.session_topics.clear();
            connection.opening = Some(opening);
            return self.queue_log_in(slot, generation);
        }
        let succeeds = match self.attach(slot, &session, asked) {
            Attaching::Attached { succeeds } => succeeds,
            Attaching::Displaced => {
                self.restore_opening(slot, opening); // the answer carries the request's id
                return self.begin_close(slot, CloseReason::Replaced);
            }
            Attaching::Stale => {
                self.restore_opening(slot, opening);
                return self.queue_log_in(slot, generation);
            }
        };
        let LoggedIn { user, topics, page, as_of, kept, followed, .. } = logged_in;
        if let Some(connection) = self.connection(slot) {
            connection.attachment.following = Following::new(followed);
        }
        self.report_connected(slot, &session, user, as_of);
        let missed = self.subscribe_log_in(slot, &session, &topics, &login.session_topics, asked) || behind;
        self.shared.metrics.log_ins.inc();
        self.schedule_pings(slot);
        self.cork(slot);
        let has_adapter = self.adapter(slot).is_some();
        let topics = topics.into_iter().filter(|topic| !topic.is_everyone()).collect();
        let complete = page.heads.iter().all(|head| head.complete);
        let (permitted, asks_gzip) = (std::mem::take(permitted), opening.asks_gzip);
        let begun = OpenedSession { session, topics, complete, kept, as_of, permitted, asks_gzip };
        if !has_adapter {
            self.begin_adapter(slot, &begun);
        }
        let resumed = login.resume.is_some();
        let mut catch_up = CatchUp::after_log_in(login.resume, login.session_topics.clone(), missed);
        catch_up.ask_at(as_of);
        if !resumed {
            // Pages reach further than held messages, so they also bring messages accepted from here on.
            catch_up.receive_own_from(noroshi_delivery::id_at(as_of));
        }
        if let Some(connection) = self.connection(slot) {
            connection.attachment.catch_up = Some(Box::new(catch_up));
        }
        if has_adapter {
            match succeeds {
                true => {
                    let succession = Succession { generation, begun, page };
                    self.sessions.successions.insert(slot, succession);
                }
                false => self.begin_session(slot, &begun, page),
            }
            self.report_denied_topics(slot, denied);
            return self.arm(slot);
        }
        self.report_denied_topics(slot, denied);
        self.handle_page(slot, page);
        for text in opening.early {
            if self.is_alive(slot) {
                self.handle_websocket_message(slot, Input::Text(&text));
            }
        }
        self.flush_unsent(slot);
        self.arm(slot);
    }

    /// Puts a session in its device's place.
    fn attach(&mut self, slot: u32, session: &Arc<Session>, asked: Moment) -> Attaching {
        let shared = &self.shared;
        let has_adapter = self.adapter(slot).is_some();
        let mut succeeds = false;
        match shared.registry.attach(session) {
            Attached::Displaced => return Attaching::Displaced,
            Attached::Now(Some(old)) => {
                let successor = has_adapter.then_some(session.address);
                succeeds = successor.is_some();
                let its_shard = shared.mailbox_of(old.address);
                match successor.filter(|_| its_shard.is_gone()) {
                    // That shard reports nothing any more.
                    Some(address) => self.mailbox().report_predecessor_gone(address),
                    None => {
                        let (address, reason) = (old.address, CloseReason::Replaced);
                        its_shard.request_close(Close { address, reason, successor, previd: None });
                    }
                }
            }
            Attached::Now(None) => {}
        }
        let keys = [session.device_key, session.user_key].map(Registry::change_key);
        if keys.into_iter().any(|key| shared.stamps.is_newer(key, asked)) {
            // Subscriptions, tokens or preferences changed after the read.
            shared.registry.detach(session);
            return Attaching::Stale;
        }
        Attaching::Attached { succeeds }
    }

    fn restore_opening(&mut self, slot: u32, opening: Box<Opening>) {
        if let Some(connection) = self.connection(slot) {
            connection.opening = Some(opening);
        }
    }

    /// The session is attached: the connection is open.
    fn report_connected(&mut self, slot: u32, session: &Arc<Session>, user: Option<UserId>, as_of: Place) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.attachment.session = Some(session.clone());
        connection.attachment.as_of = noroshi_delivery::id_at(as_of);
        connection.phase = Phase::Open;
        connection.deadline_tick = u32::MAX;
        let (id, protocol) = (SessionId(session.address.generation), connection.protocol.as_str());
        tracing::debug!(
            app = session.app.0,
            device = session.device.as_str(),
            session = %id,
            protocol,
            "a session began"
        );
        self.delivery.context.outcomes.events().emit(self.now.wall, || {
            Event::Connected(Box::new(Connected {
                app: session.app,
                device: session.num,
                device_id: session.device.clone(),
                user,
                session: id,
                protocol,
            }))
        });
    }

    /// Adds the topics of a log-in to the index. Returns whether something may have been sent since the read.
    fn subscribe_log_in(
        &mut self,
        slot: u32,
        session: &Session,
        topics: &[Topic],
        own_topics: &[Topic],
        asked: Moment,
    ) -> bool {
        let (registry, stamps) = (&self.shared.registry, &self.shared.stamps);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return false };
        let keys = [session.device_key, session.user_key, registry.conditions_key(session.app)];
        let mut missed = keys.into_iter().any(|key| stamps.is_newer(key, asked));
        for topic in topics {
            let key = registry.topic_key(session.app, topic);
            let kind = if own_topics.contains(topic) { Subscription::own } else { Subscription::durable };
            let (index, new) = self.sessions.topics.subscribe(registry, key, topic, slot);
            if new {
                connection.attachment.topics.push(kind(index));
            }
            missed |= stamps.is_newer(key, asked);
        }
        missed
    }

    fn report_denied_topics(&mut self, slot: u32, denied: &[(Topic, Reason)]) {
        for (topic, reason) in denied {
            let notice = TopicNotice { code: "topic_forbidden", topic, reason: *reason };
            self.send_topic_notice(slot, &notice);
        }
    }

    /// The previous connection of a session has ended.
    pub(crate) fn handle_predecessor_gone(&mut self, address: Address) {
        let slot = address.slot;
        if self.at(slot, address.generation).is_none_or(|connection| !connection.is_alive()) {
            return;
        }
        // It requests a session and has none yet.
        if self.session(slot).is_none() {
            self.converse(slot, |adapter, cx| adapter.handle_predecessor_gone(cx));
            return;
        }
        let succession = self.sessions.successions.remove(&slot);
        if let Some(next) = succession.filter(|next| next.generation == address.generation) {
            self.cork(slot);
            self.begin_session(slot, &next.begun, next.page);
            self.arm(slot);
        }
    }

    /// Starts the session of a protocol with an adapter: the client is notified, and gets its backlog.
    fn begin_session(&mut self, slot: u32, begun: &OpenedSession, page: BacklogPage) {
        let early = self.begin_adapter(slot, begun);
        self.handle_page(slot, page);
        if !early.is_empty() && self.is_alive(slot) {
            self.handle_stream(slot, &early);
        }
        self.flush_unsent(slot);
    }

    /// The client whose failed log-ins are limited.
    pub(crate) fn client(&mut self, slot: u32) -> Option<ClientNetwork> {
        let network = self.lifecycle.seats.client(slot);
        if network == ClientNetwork::NONE {
            // A polling session has no socket.
            return self.opener(slot);
        }
        if self.shared.config.proxies.networks.is_empty() {
            return Some(network);
        }
        // A trusted proxy that named no client serves many.
        let peer = self.peer(slot)?.ip();
        let proxies = &self.shared.config.proxies;
        (network != ClientNetwork::of(peer) || !proxies.trusts(peer)).then_some(network)
    }

    /// Verifies the token of a log-in. Counts and logs a refusal.
    pub(crate) fn identify(
        &mut self,
        slot: u32,
        token: Option<&str>,
        app: Option<&str>,
        request: BoxedRequest,
    ) {
        let client = self.client(slot);
        // The app that the log-in names takes precedence over the app that the request named.
        let opening = self.connection(slot).and_then(|connection| connection.opening.as_ref());
        let of_request = opening.and_then(|opening| opening.app.clone());
        let app = app.or(of_request.as_deref());
        let Some(token) = token else {
            self.note_claimed_app(slot, |shard| shard.shared.auth.claimed_app(None, app));
            return self.continue_log_in(slot, request, Err(Refused::Missing));
        };
        match self.shared.auth.check(Credential { token, app, client }, self.now.wall) {
            Checked::Known(answer) => {
                self.note_claimed_app(slot, |shard| match &answer {
                    Ok(identity) => Some(identity.app),
                    Err(_) => shard.shared.auth.claimed_app(Some(token), app),
                });
                self.continue_log_in(slot, request, answer);
            }
            // The app would refuse the log-in also after the verification.
            Checked::Costly(costly) => {
                self.note_claimed_app(slot, |_| Some(costly.app()));
                match self.delivery.quotas.check_rate(costly.app(), Quota::ConnectsPerSecond) {
                    Ok(()) => self.submit(slot, costly, Pending::LogIn(request)),
                    Err(over) => self.refuse_over_quota(slot, &over),
                }
            }
        }
    }

    /// Continues a log-in whose token is verified or refused.
    fn continue_log_in(&mut self, slot: u32, request: BoxedRequest, answer: Answer) {
        if let Err(refused) = &answer {
            self.report_refused_log_in(slot, refused.as_str(), refused);
            // Kept for the close, which names the time.
            if let (Refused::TooManyFailures { retry_after_s }, Some(connection)) =
                (refused, self.connection(slot))
            {
                connection.opening().retry_after_s = *retry_after_s;
            }
        }
        self.reply_to_adapter(slot, request, Outcome::Verified(answer));
    }

    fn continue_pending(&mut self, slot: u32, pending: Pending, answer: Answer) {
        match pending {
            Pending::LogIn(request) => self.continue_log_in(slot, request, answer),
            Pending::Renewal { number, request } => self.continue_renewal(slot, number, request, answer),
        }
    }

    /// Passes a token to the pool.
    fn submit(&mut self, slot: u32, costly: Box<Costly>, pending: Pending) {
        if self.sessions.verifying == VERIFYING_MAX {
            return self.continue_pending(slot, pending, Err(Refused::Busy));
        }
        let deadline = self.now.tick_after(LOG_IN_TIMEOUT);
        let Some(connection) = self.connection(slot) else { return };
        if connection.attachment.session.is_none() && connection.protocol != Protocol::Xmpp {
            connection.phase = Phase::LoggingIn;
            connection.deadline_tick = deadline;
        }
        let to = (slot, connection.generation);
        self.sessions.verifying += 1;
        let (shared, index) = (self.shared.clone(), usize::from(self.index));
        self.shared.auth.submit(costly, move |answer| {
            #[cfg(debug_assertions)]
            noroshi_supervision::fault::strike("verified");
            shared.mailboxes[index].reply(Reply::Verified { to, answer, pending });
        });
    }

    /// The result of the pool.
    pub(crate) fn handle_verified(
        &mut self,
        (slot, generation): (u32, u64),
        answer: Answer,
        pending: Pending,
    ) {
        self.sessions.verifying -= 1;
        if self.at(slot, generation).is_some_and(|connection| connection.is_alive()) {
            self.guard(Some(slot), |shard| {
                shard.continue_pending(slot, pending, answer);
                shard.arm(slot);
            });
        }
    }

    /// Replaces the token of the session, in a later turn if it needs a public key. The session continues meanwhile.
    pub(crate) fn renew(&mut self, slot: u32, token: &str, request: BoxedRequest) {
        let Some(session) = self.session(slot).cloned() else {
            return self.reply_to_adapter(slot, request, Outcome::Renewed(Ok(())));
        };
        let name = self.shared.auth.app_name(session.app);
        let credential =
            Credential { token, app: name.as_ref().map(AppName::as_str), client: self.client(slot) };
        let number = self.sessions.renewals.begin(slot);
        match self.shared.auth.check(credential, self.now.wall) {
            Checked::Known(answer) => self.continue_renewal(slot, number, request, answer),
            Checked::Costly(costly) => self.submit(slot, costly, Pending::Renewal { number, request }),
        }
    }

    /// Continues a renewal whose token is verified or refused.
    fn continue_renewal(&mut self, slot: u32, number: u64, request: BoxedRequest, answer: Answer) {
        let renewed = match answer {
            Ok(identity) => self.take_renewed(slot, number, identity),
            Err(Refused::Expired) => Err(NotRenewed::Expired),
            Err(refused) => Err(NotRenewed::Refused(refused)),
        };
        self.sessions.renewals.end(slot);
        // Topic rules may allow less with the new claims.
        let has_other_claims = renewed == Ok(true);
        self.reply_to_adapter(slot, request, Outcome::Renewed(renewed.map(drop)));
        if has_other_claims {
            self.recheck_now(slot);
        }
    }

    /// Returns whether the claims changed.
    fn take_renewed(&mut self, slot: u32, number: u64, identity: Identity) -> Result<bool, NotRenewed> {
        let Some(session) = self.session(slot).cloned() else { return Ok(false) };
        renewal::check(&session, &identity, &self.shared.registry, self.now.wall)?;
        if !self.sessions.renewals.apply(slot, number) {
            return Ok(false);
        }
        let is_of_jwt = identity.user.is_some();
        let has_other_claims = renew_claims(&session, is_of_jwt, identity.claims);
        if let Some(connection) = self.connection(slot) {
            connection.attachment.expires_at = identity.expires_at;
        }
        self.arm(slot);
        Ok(has_other_claims)
    }
}

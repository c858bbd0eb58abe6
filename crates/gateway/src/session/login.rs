//! Log-ins: [`crate::session::verification`] says whose token it is, everything else is one read of the store for all
//! that log in within the same few milliseconds.
//!
//! While no batch is out, a log-in leaves with the turn it came in. While one is out, the next
//! gathers until the answer comes, it is large enough, or [`LINGER_MS`] have passed: the busier the
//! node, the larger the batches.
//!
//! The order in [`Shard::open_session`] is what makes the way from the read to live delivery free of
//! gaps: attach, put into the topic index, and only then look at the stamps ([`crate::session::stamp`]).

use noroshi_auth::Identity;
use noroshi_delivery::rules::Known;
use noroshi_delivery::{Entered, Entering, OverQuota};
use noroshi_events::Event;
use noroshi_events::event::Connected;
use noroshi_protocol::native;
use noroshi_store::{BacklogPage, LoggedIn, Login, LoginRefused, Place};
use noroshi_types::{CloseReason, NotificationId, SessionId, Timestamp, Topic};
use std::sync::Arc;
use std::time::Duration;

use crate::fanout::mailbox::Reply;
use crate::session::catch_up::CatchUp;
use crate::session::permission::Permissions;
use crate::session::registry::{Address, Attached, Registry, Session, Versions};
use crate::session::stamp::Moment;
use crate::session::verification::close_reason;
use crate::shard::Shard;
use crate::shard::connection::{Framing, Origin, Phase, Protocol, Subscription};

/// Batches out at once: readers of the store work side by side.
pub(crate) const BATCHES_MAX: usize = 8;
const BATCH_MAX: usize = 256;
const LINGER_MS: u64 = 5;
/// The store answers in milliseconds or is beyond help.
pub(crate) const LOG_IN_TIMEOUT: Duration = Duration::from_secs(30);

/// A session that is attached, as its conversation is told.
pub(crate) struct Begun {
    pub(crate) session: Arc<Session>,
    /// Durable ones, without `$everyone`.
    pub(crate) topics: Vec<Topic>,
    /// Nothing behind the place to resume from is lost, as far as its topics go.
    pub(crate) complete: bool,
    /// What the protocol kept of an earlier connection.
    pub(crate) kept: Option<Vec<u8>>,
    pub(crate) as_of: Place,
    /// What a webhook allowed for the log-in.
    pub(crate) permitted: Permissions,
}

/// A session that is attached and begins when the one it displaced is gone, since it goes on with what
/// that leaves. What comes meanwhile is held.
pub(crate) struct Succession {
    generation: u64,
    begun: Begun,
    page: BacklogPage,
}

/// Log-ins on their way to the store.
#[derive(Default)]
pub(crate) struct LogIns {
    waiting: Vec<(u32, u64)>,
    /// When the first of `waiting` came.
    since_ms: u64,
    batches_out: usize,
}

impl LogIns {
    /// How long the loop may sleep if log-ins wait.
    pub(crate) fn patience_ms(&self) -> Option<u64> {
        (!self.waiting.is_empty() && self.batches_out < BATCHES_MAX).then_some(LINGER_MS)
    }
}

/// What the store is asked of who brought a valid token.
pub(crate) fn login_of(identity: Identity, now: Timestamp) -> Login {
    Login {
        app: identity.app,
        device: identity.device,
        user: identity.user,
        create: identity.create,
        token_version: identity.token_version,
        issued: identity.issued,
        topics: identity.topics,
        session_topics: Vec::new(),
        resume: None,
        now,
    }
}

impl Shard {
    /// A token on a WebSocket.
    pub(crate) fn authenticate(&mut self, slot: u32, token: &str) {
        self.identify(slot, Some(token), None, |shard, slot, answer| match answer {
            Ok(identity) => shard.start_log_in(slot, identity, Vec::new(), None),
            Err(refused) => shard.begin_close(slot, close_reason(&refused)),
        });
    }

    /// A device that is not let in for what it brought: whoever runs the node finds it in the log.
    pub(crate) fn tell_refused(&mut self, slot: u32, why: &dyn std::fmt::Display) {
        self.shared.metrics.log_ins_refused.inc();
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
            device = login.map(|login| login.device.as_str()),
            not_told,
            "a log-in was refused: {why}"
        );
    }

    pub(crate) fn start_log_in(
        &mut self,
        slot: u32,
        identity: Identity,
        session_topics: Vec<Topic>,
        resume: Option<NotificationId>,
    ) {
        let (deadline, now) = (self.now.tick_after(LOG_IN_TIMEOUT), self.now.wall);
        let generation = self.shared.next_generation(now);
        let (delivery, shared) = (self.delivery.clone(), self.shared.clone());
        self.end_stranger(slot);
        // A drain may have begun while the token was verified.
        if let Some(reason) = self.turns_away(slot) {
            return self.begin_close(slot, reason);
        }
        let Some(connection) = self.connection(slot) else { return };
        // Of an earlier session on this connection.
        connection.permit = None;
        let registry = &shared.registry;
        // A device that comes back before its old connection is found to be gone takes the place of that.
        let replaces = || registry.device(registry.device_key(identity.app, &identity.device)).is_some();
        match delivery.quotas().enter(identity.app, replaces) {
            Ok(permit) => connection.permit = permit,
            Err(over) => return self.refuse_over_quota(slot, &over),
        }
        connection.generation = generation;
        connection.phase = Phase::LoggingIn;
        connection.deadline_tick = deadline;
        connection.expires_at = identity.expires_at;
        let mut identity = identity;
        let opening = connection.opening();
        opening.claims = identity.claims.take();
        let denied = |topic| (topic, "no_rule", "no topic rule of the app allows it");
        opening.denied = std::mem::take(&mut identity.denied_topics).into_iter().map(denied).collect();
        opening.login = Some(Login { session_topics, resume, ..login_of(identity, now) });
        self.queue_log_in(slot, generation);
    }

    /// The app has used up its quota: told in the words of each protocol, with when to come back.
    pub(crate) fn refuse_over_quota(&mut self, slot: u32, over: &OverQuota) {
        let why = over.to_string();
        self.tell_refused(slot, &why);
        let Some(connection) = self.connection(slot) else { return };
        if connection.is_event_stream() {
            return self.refuse_stream_over_quota(slot, over);
        }
        if !self.refuse_socket_io(slot, CloseReason::QuotaExceeded.as_str(), &why) {
            // Reaches native clients only; others have the reason.
            self.tell_error(slot, CloseReason::QuotaExceeded.as_str(), &why);
            self.begin_close(slot, CloseReason::QuotaExceeded);
        }
    }

    /// Whether devices are let in now; if not, the reason.
    pub(crate) fn turns_away(&mut self, slot: u32) -> Option<CloseReason> {
        let over_rate = self.connection(slot).is_some_and(|it| it.origin == Origin::OverRate);
        let reason = match self.shared.drain.is_active() {
            true => CloseReason::Drain,
            false if over_rate => CloseReason::Overloaded,
            false => return None,
        };
        self.shared.metrics.admission_refused.inc();
        Some(reason)
    }

    pub(crate) fn queue_log_in(&mut self, slot: u32, generation: u64) {
        if self.log_ins.waiting.is_empty() {
            self.log_ins.since_ms = self.now.ms;
        }
        self.log_ins.waiting.push((slot, generation));
    }

    /// Sends the log-ins that are due.
    pub(crate) fn send_log_ins(&mut self) {
        while !self.log_ins.waiting.is_empty() && self.log_ins.batches_out < BATCHES_MAX {
            let due = self.log_ins.batches_out == 0
                || self.log_ins.waiting.len() >= BATCH_MAX
                || self.now.ms >= self.log_ins.since_ms + LINGER_MS;
            if !due {
                return;
            }
            let take = self.log_ins.waiting.len().min(BATCH_MAX);
            let mut to: Vec<(u32, u64)> = self.log_ins.waiting.drain(..take).collect();
            let mut logins = Vec::with_capacity(to.len());
            to.retain(|(slot, generation)| {
                let connection = self.connections.get(*slot as usize);
                let login = connection
                    .filter(|connection| connection.generation == *generation)
                    .and_then(|connection| connection.opening.as_ref()?.login.clone());
                let wanted = login.is_some();
                logins.extend(login.map(|login| Entering { login, generation: *generation }));
                wanted
            });
            if logins.is_empty() {
                continue;
            }
            self.log_ins.batches_out += 1;
            self.shared.metrics.log_in_batches.inc();
            let (shared, index) = (self.shared.clone(), usize::from(self.index));
            let asked = shared.stamps.present();
            self.delivery.log_in(logins, move |result| {
                shared.mailboxes[index].reply(Reply::LoggedIn { to, asked, result });
            });
        }
    }

    pub(crate) fn handle_reply(&mut self, reply: Reply) {
        match reply {
            Reply::LoggedIn { to, asked, result: Ok(answers) } => {
                self.log_ins.batches_out -= 1;
                for ((slot, generation), answer) in to.into_iter().zip(answers) {
                    if self.at(slot, generation).is_some() {
                        self.guard(Some(slot), |shard| shard.handle_log_in(slot, generation, asked, answer));
                    }
                }
            }
            Reply::LoggedIn { to, result: Err(error), .. } => {
                self.log_ins.batches_out -= 1;
                tracing::warn!(%error, count = to.len(), "log-ins failed");
                for (slot, generation) in to {
                    if self.at(slot, generation).is_some() {
                        self.fail_log_in(slot);
                    }
                }
            }
            Reply::Permitted { to, permitted } => self.handle_permitted(to, permitted),
            Reply::Verified { to, answer, then } => self.handle_verified(to, answer, then),
            Reply::Worked { to, session, done } => self.handle_worked(to, &session, *done),
            Reply::Log { to, result } => self.handle_log(to, result),
            Reply::Outstanding { to, result } => self.handle_outstanding(to, result),
            Reply::Backlog { to, result } => self.handle_read(to, None, result),
            Reply::Recovered { to, recovery, result } => self.handle_read(to, Some(recovery), result),
            Reply::Checked { to, result } => self.handle_checked(to, result),
            Reply::Xmpp { to, request, answer } => self.handle_xmpp_answer(to, request, answer),
        }
    }

    pub(crate) fn fail_log_in(&mut self, slot: u32) {
        match self.connection(slot).is_some_and(|connection| connection.is_event_stream()) {
            true => {
                self.set_protocol(slot, Protocol::Http, Framing::Stream);
                self.refuse(slot);
            }
            false => self.begin_close(slot, CloseReason::Overloaded),
        }
    }

    fn handle_log_in(&mut self, slot: u32, generation: u64, asked: Moment, answer: Entered) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase != Phase::LoggingIn {
            return;
        }
        let is_stream = connection.is_event_stream();
        match answer {
            Entered::In { logged_in, .. } if !self.settle_log_in(slot, &logged_in) => {}
            Entered::In { logged_in, behind } => {
                self.open_session(slot, generation, asked, *logged_in, behind);
            }
            Entered::Outrun(present) => {
                self.shared.outrun(present);
                let generation = self.shared.next_generation(self.now.wall);
                if let Some(connection) = self.connection(slot) {
                    connection.generation = generation;
                }
                self.queue_log_in(slot, generation);
            }
            Entered::OverQuota(over) => self.refuse_over_quota(slot, &over),
            Entered::Unavailable => self.fail_log_in(slot),
            Entered::Refused(refused) => {
                let why = match refused {
                    LoginRefused::Revoked => CloseReason::Revoked.explain(),
                    LoginRefused::TooManyTopics => "more topics than a device may have",
                };
                self.tell_refused(slot, &why);
                match (refused, is_stream) {
                    (LoginRefused::Revoked, true) => {
                        self.refuse_stream(slot, 401, "revoked", why);
                    }
                    (LoginRefused::Revoked, false) => self.begin_close(slot, CloseReason::Revoked),
                    (LoginRefused::TooManyTopics, true) => {
                        self.refuse_stream(slot, 400, "too_many_topics", why);
                    }
                    (LoginRefused::TooManyTopics, false)
                        if self.refuse_socket_io(slot, "too_many_topics", why) => {}
                    (LoginRefused::TooManyTopics, false) => {
                        // Reaches native clients only; others have the reason.
                        self.tell_error(slot, "too_many_topics", why);
                        self.begin_close(slot, CloseReason::BadMessage);
                    }
                }
            }
        }
    }

    /// The store knows the device: attach, and from here on nothing can be missed.
    fn open_session(&mut self, slot: u32, generation: u64, asked: Moment, logged_in: LoggedIn, behind: bool) {
        let shared = self.shared.clone();
        let registry = &shared.registry;
        let LoggedIn { num, user, token_version, revoked, revision, topics, page, as_of, kept } = logged_in;
        let may_resume = self.resumes_xmpp(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(mut opening) = connection.opening.take() else { return };
        let Some(login) = opening.login.as_mut() else { return };
        let address = Address { shard: self.index, slot, generation };
        let device = login.device.clone();
        let versions = Versions { token_version, revision, revoked_at: revoked.latest() };
        let session = Session::new(registry, login.app, device, user.as_ref(), num, address, versions);
        session.set_of_jwt(login.user.is_some());
        let session = Arc::new(session);
        // Topics of a session that is gone, or another holder's by now: they were read for nothing.
        if !login.session_topics.is_empty() && may_resume.is_some_and(|may_resume| !may_resume(&session)) {
            login.session_topics.clear();
            connection.opening = Some(opening);
            return self.queue_log_in(slot, generation);
        }
        if self.delivery.rules().of(login.app).is_some() {
            let known = Known { user: user.clone(), claims: opening.claims.clone() };
            session.known.store(Some(Arc::new(known)));
        }
        let mut succeeds = false;
        match registry.attach(&session) {
            Attached::Displaced => {
                connection.opening = Some(opening); // the answer names its request
                return self.begin_close(slot, CloseReason::Replaced);
            }
            Attached::Now(Some(old)) => {
                let successor = connection.talk.is_some().then_some(address);
                succeeds = successor.is_some();
                let its_shard = &shared.mailboxes[usize::from(old.address.shard)];
                match successor.filter(|_| its_shard.is_gone()) {
                    // Nothing comes from there any more.
                    Some(address) => shared.mailboxes[usize::from(self.index)].succeed(address),
                    None => its_shard.replace(old.address, successor),
                }
            }
            Attached::Now(None) => {}
        }
        if shared.stamps.is_newer(Registry::change_key(session.device_key), asked) {
            // Subscriptions or tokens changed after the read: what it said no longer holds.
            registry.detach(&session);
            connection.opening = Some(opening);
            return self.queue_log_in(slot, generation);
        }
        let (is_stream, own_topics) = (connection.is_event_stream(), &login.session_topics);
        connection.session = Some(session.clone());
        connection.as_of = noroshi_delivery::id_at(as_of);
        tracing::debug!(
            app = session.app.0,
            device = session.device.as_str(),
            session = %SessionId(generation),
            protocol = connection.protocol.as_str(),
            "a session began"
        );
        self.delivery.events().emit(self.now.wall, || {
            Event::Connected(Box::new(Connected {
                app: session.app,
                device: session.num,
                device_id: session.device.clone(),
                user,
                session: SessionId(generation),
                protocol: connection.protocol.as_str(),
            }))
        });
        connection.phase = Phase::Open;
        connection.deadline_tick = u32::MAX;
        let mut missed = behind
            || shared.stamps.is_newer(session.device_key, asked)
            || shared.stamps.is_newer(session.user_key, asked)
            || shared.stamps.is_newer(registry.conditions_key(session.app), asked);
        for topic in &topics {
            let key = registry.topic_key(session.app, topic);
            let kind = if own_topics.contains(topic) { Subscription::own } else { Subscription::durable };
            let (index, new) = self.topics.subscribe(registry, key, topic, slot);
            if new {
                connection.topics.push(kind(index));
            }
            missed |= shared.stamps.is_newer(key, asked);
        }
        shared.metrics.log_ins.inc();
        self.schedule_pings(slot);
        self.cork(slot);
        let talks = self.connections.get(slot as usize).is_some_and(|connection| connection.talk.is_some());
        if is_stream {
            self.begin_stream(slot, opening.asks_gzip);
        } else if !talks {
            let mut ready = Vec::with_capacity(128);
            native::ready(
                &mut ready,
                &session.device,
                SessionId(generation),
                shared.config.ping_interval.as_secs(),
            );
            self.send_json(slot, "ready", &ready);
        }
        let resumed = login.resume.is_some();
        let mut catch_up = CatchUp::after_log_in(login.resume, login.session_topics.clone(), missed);
        catch_up.ask_at(as_of);
        if !resumed {
            // Pages reach further than what is held, so they bring what it hears from here on too.
            catch_up.hear_from(noroshi_delivery::id_at(as_of));
        }
        if let Some(connection) = self.connection(slot) {
            connection.catch_up = Some(Box::new(catch_up));
        }
        if talks {
            let topics = topics.into_iter().filter(|topic| !topic.is_everyone()).collect();
            let complete = page.heads.iter().all(|head| head.complete);
            let permitted = opening.permitted;
            let begun = Begun { session, topics, complete, kept, as_of, permitted };
            match succeeds {
                true => drop(self.succeeding.insert(slot, Succession { generation, begun, page })),
                false => self.begin_session(slot, &begun, page),
            }
            self.tell_denied(slot, &opening.denied);
            return self.arm(slot);
        }
        self.tell_denied(slot, &opening.denied);
        self.handle_page(slot, page);
        for text in opening.early {
            if self.is_alive(slot) {
                self.handle_text(slot, &text);
            }
        }
        self.write_tail(slot);
        self.arm(slot);
    }

    fn tell_denied(&mut self, slot: u32, denied: &[(Topic, &'static str, &'static str)]) {
        for (topic, reason, text) in denied {
            self.tell_topic(slot, "topic_forbidden", topic, reason, text);
        }
    }

    /// The predecessor of a session is gone.
    pub(crate) fn succeed(&mut self, address: Address) {
        let slot = address.slot;
        if self.at(slot, address.generation).is_none_or(|connection| !connection.is_alive()) {
            return;
        }
        // It asks for a session, and has none yet.
        if self.at(slot, address.generation).is_some_and(|connection| connection.session.is_none()) {
            return self.look_for_session(slot);
        }
        if let Some(Succession { begun, page, .. }) =
            self.succeeding.remove(&slot).filter(|succession| succession.generation == address.generation)
        {
            self.cork(slot);
            self.begin_session(slot, &begun, page);
            self.arm(slot);
        }
    }

    /// The client of another protocol is told, and gets what it missed.
    fn begin_session(&mut self, slot: u32, begun: &Begun, page: BacklogPage) {
        let early = self.begin_talk(slot, begun);
        self.handle_page(slot, page);
        if !early.is_empty() && self.is_alive(slot) {
            self.feed_talk(slot, &early);
        }
        self.write_tail(slot);
    }
}

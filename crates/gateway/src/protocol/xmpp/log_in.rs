//! From a password to a session: the token is verified first, the rest is the core's log-in, as for every
//! protocol. A session is resumed by a log-in of its device too (XEP-0198 §5): what was sent and not confirmed
//! is sent again, and what came meanwhile is read from the store.
//!
//! A client that asks for a session has proved only that its token was once issued. So the store checks the token
//! before anything changes for the session: a parked one stays until the log-in has succeeded, and a connection that
//! still seems to be alive, here or on another shard, is closed after the check, and only if the id is its own.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use noroshi_auth::Identity;
use noroshi_protocol::xmpp::{self, Credentials, Resumed};
use noroshi_store::{Error as StoreError, LoggedIn, Login, LoginRefused};
use noroshi_types::{CloseReason, Presence};

use super::{ASKED_MAX, framing_of};
use crate::session::login::{Begun, login_of};
use crate::session::registry::{Address, Holder, Key, Session};
use crate::session::verification::close_reason;
use crate::shard::Shard;
use crate::shard::mailbox::Reply;

/// A session that a client asks for.
pub(crate) struct Resuming {
    id: Box<str>,
    device_key: Key,
}

impl Shard {
    /// Whether devices are let in now; if not, the connection is closed.
    fn admits_xmpp(&mut self, slot: u32) -> bool {
        let reason = self.turns_away(slot);
        if let Some(reason) = reason {
            self.begin_close(slot, reason);
        }
        reason.is_none()
    }

    /// PLAIN: a device with its token, or a conformance account with its password.
    pub(super) fn authenticate_xmpp(&mut self, slot: u32, user: &str, app: Option<&str>, password: &str) {
        if !self.admits_xmpp(slot) {
            return;
        }
        if self.shared.xmpp.accounts.is_password(user, password) {
            let identity = self.shared.account_identity(user);
            if identity.is_none() {
                self.tell_refused(slot, &"accounts have no app, or this one's name is no device's");
            }
            return self.authenticated_xmpp(slot, identity.ok_or(CloseReason::Unauthorized), true);
        }
        self.identify(slot, Some(password), app, |shard, slot, answer| {
            shard.authenticated_xmpp(slot, answer.map_err(|refused| close_reason(&refused)), false);
        });
    }

    fn authenticated_xmpp(&mut self, slot: u32, identity: Result<Identity, CloseReason>, account: bool) {
        match identity {
            Ok(identity) => {
                let device = identity.device.clone();
                if let Some(xmpp) = self.xmpp(slot) {
                    xmpp.identity = Some(Box::new(identity));
                    xmpp.conversation.set_account(account);
                }
                self.converse(slot, |conversation, cx, out| conversation.authenticated(cx, device, out));
            }
            Err(reason) => self.converse(slot, |conversation, cx, out| conversation.refused(cx, reason, out)),
        }
    }

    /// SCRAM, which only accounts can do: of a token nothing is kept that a proof could be checked with.
    pub(super) fn find_keys(&mut self, slot: u32, user: &str) {
        if !self.admits_xmpp(slot) {
            return;
        }
        let identity = self.shared.account_identity(user);
        let password = self.shared.xmpp.accounts.password(user);
        let credentials = identity.zip(password).map(|(identity, password)| {
            let device = identity.device.clone();
            if let Some(xmpp) = self.xmpp(slot) {
                xmpp.identity = Some(Box::new(identity));
                xmpp.conversation.set_account(true);
            }
            Credentials::Password { device, password }
        });
        self.converse(slot, |conversation, cx, out| conversation.keys(cx, credentials, out));
    }

    pub(super) fn log_in_xmpp(&mut self, slot: u32, resource: &str) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.session.is_some() {
            // It was to be resumed and could not: the log-in was done for that.
            return self.converse(slot, |conversation, cx, out| conversation.logged_in(cx, out));
        }
        let shared = self.shared.clone();
        let Some(xmpp) = self.xmpp(slot) else { return };
        if let Some((account, identity)) = xmpp.conversation.account().zip(xmpp.identity.as_mut()) {
            match shared.account_device(account, resource) {
                Some(device) => identity.device = device,
                // RFC 6120 §7.6.2.1
                None => {
                    let reason = CloseReason::Overloaded;
                    return self
                        .converse(slot, |conversation, cx, out| conversation.refused(cx, reason, out));
                }
            }
        }
        if let Some(identity) = xmpp.identity.take() {
            self.start_log_in(slot, *identity, Vec::new(), None);
        }
    }

    /// A parked session waits for the log-in. One whose connection seems to be alive has to leave that first.
    pub(super) fn resume_xmpp(&mut self, slot: u32, id: Box<str>) {
        if !self.admits_xmpp(slot) {
            return;
        }
        let shared = self.shared.clone();
        let Some(xmpp) = self.xmpp(slot) else { return };
        let Some(identity) = &mut xmpp.identity else { return };
        // Of an account it is one resource's.
        if let Some((account, resource)) = xmpp.conversation.account().zip(xmpp::resource_of(&id))
            && let Some(device) = shared.known_device(account, resource)
        {
            identity.device = device;
        }
        let device_key = shared.registry.device_key(identity.app, &identity.device);
        xmpp.resuming = Some(Box::new(Resuming { id, device_key }));
        if self.log_in_to_parked(slot) {
            return;
        }
        match shared.registry.device(device_key) {
            Some(_) => self.check_before_resuming(slot),
            // A connection parks its session before it leaves the registry, perhaps after the look above.
            None => self.look_for_session(slot),
        }
    }

    /// False if no session is parked under the id. It is taken out when the store has let its holder in.
    fn log_in_to_parked(&mut self, slot: u32) -> bool {
        let (shared, now) = (self.shared.clone(), self.now.wall);
        let Some(framing) = self.connection(slot).map(|connection| framing_of(connection.framing)) else {
            return true;
        };
        let Some(xmpp) = self.xmpp(slot) else { return true };
        let Some(Resuming { id, device_key }) = xmpp.resuming.as_deref() else { return true };
        let Some(topics) = shared.xmpp.parking.topics(*device_key, id, framing, now) else { return false };
        if let Some(identity) = xmpp.identity.take() {
            self.start_log_in(slot, *identity, topics, None);
        }
        true
    }

    /// Asks the store whether the credential holds. Nothing is made or changed for it.
    fn check_before_resuming(&mut self, slot: u32) {
        if self.asked == ASKED_MAX {
            return self.tell_gone(slot);
        }
        let (shared, index, now) = (self.shared.clone(), usize::from(self.index), self.now.wall);
        let Some(generation) = self.connection(slot).map(|connection| connection.generation) else { return };
        let identity = self.xmpp(slot).and_then(|xmpp| xmpp.identity.as_deref().cloned());
        let Some(identity) = identity else { return };
        let login = Login { create: false, topics: Vec::new(), ..login_of(identity, now) };
        self.asked += 1;
        let delivery = self.delivery.clone();
        self.delivery.work(async move {
            let check = AssertUnwindSafe(delivery.store().log_in(vec![login])).catch_unwind().await;
            let result = match check {
                Ok(answers) => answers.and_then(|mut answers| answers.pop().ok_or(StoreError::NotFound)),
                Err(_) => {
                    shared.metrics.panics.inc();
                    Err(StoreError::Overloaded)
                }
            };
            shared.mailboxes[index].reply(Reply::Checked { to: (slot, generation), result });
        });
    }

    pub(crate) fn handle_checked(
        &mut self,
        (slot, generation): (u32, u64),
        result: Result<Result<LoggedIn, LoginRefused>, StoreError>,
    ) {
        self.asked -= 1;
        if self.at(slot, generation).is_some_and(|connection| connection.is_alive()) {
            self.guard(Some(slot), |shard| match result {
                Ok(Ok(found)) => shard.ask_for_session(slot, generation, &found),
                Ok(Err(_)) => shard.refuse_resumption(slot),
                Err(error) => {
                    tracing::warn!(%error, "a session is not resumed: its token could not be checked");
                    shard.begin_close(slot, CloseReason::Overloaded);
                }
            });
            self.arm(slot);
        }
    }

    /// No such device, or the token was revoked. An app JWT may make its device anew: that has nothing to resume.
    fn refuse_resumption(&mut self, slot: u32) {
        let creates = self.xmpp(slot).and_then(|xmpp| Some(xmpp.identity.as_ref()?.create));
        if creates == Some(true) {
            return self.tell_gone(slot);
        }
        self.tell_refused(slot, &CloseReason::Revoked.explain());
        self.begin_close(slot, CloseReason::Revoked);
    }

    /// The credential holds. The connection that has the session leaves it, if the session is what the client says.
    fn ask_for_session(&mut self, slot: u32, generation: u64, found: &LoggedIn) {
        let shared = self.shared.clone();
        let successor = Address { shard: self.index, slot, generation };
        let Some(xmpp) = self.xmpp(slot) else { return };
        let (Some(identity), Some(resuming)) = (&xmpp.identity, &xmpp.resuming) else { return };
        // An app JWT may name another user, to whom the device goes over with the log-in.
        let user = identity.user.as_ref().or(found.user.as_ref());
        let user_key = user.map_or(0, |user| shared.registry.user_key(identity.app, user));
        let holder = Holder { num: found.num, user_key, token_version: found.token_version };
        let present = shared.registry.device(resuming.device_key);
        match present.filter(|present| present.holder() == holder) {
            Some(present) => {
                let mailbox = &shared.mailboxes[usize::from(present.address.shard)];
                mailbox.resume(present.address, resuming.id.clone(), successor);
            }
            // Its connection may have broken meanwhile.
            None => self.look_for_session(slot),
        }
    }

    /// The connection that had the session has left it, or has another one.
    pub(crate) fn look_for_session(&mut self, slot: u32) {
        if self.xmpp(slot).is_some_and(|xmpp| xmpp.resuming.is_some()) && !self.log_in_to_parked(slot) {
            self.tell_gone(slot);
        }
    }

    fn tell_gone(&mut self, slot: u32) {
        if let Some(xmpp) = self.xmpp(slot) {
            xmpp.resuming = None;
        }
        let gone = Resumed::Gone { handled: None };
        self.converse(slot, |conversation, cx, out| conversation.resumed(cx, gone, out));
    }

    /// Whether the session of this connection is the one with this id.
    pub(crate) fn is_resumed_by(&mut self, slot: u32, id: &str) -> bool {
        self.xmpp(slot).is_some_and(|xmpp| xmpp.conversation.resume_id() == Some(id))
    }

    /// Where a session is asked for: whether who logged in may have it.
    pub(crate) fn resumes_xmpp(&mut self, slot: u32) -> Option<impl Fn(&Session) -> bool + use<>> {
        let shared = self.shared.clone();
        let id = self.xmpp(slot)?.resuming.as_ref()?.id.clone();
        Some(move |session: &Session| {
            shared.xmpp.parking.is_held_by(session.device_key, &id, session.holder())
        })
    }

    /// The session is attached.
    pub(crate) fn begin_xmpp(&mut self, slot: u32, begun: &Begun) {
        // Until the client says that it is there.
        begun.session.set_presence(Presence::Offline);
        self.refill_frames(slot);
        let Some(xmpp) = self.xmpp(slot) else { return };
        let Some(resuming) = xmpp.resuming.take() else {
            self.shared.xmpp.parking.forget(begun.session.device_key);
            self.converse(slot, |conversation, cx, out| conversation.logged_in(cx, out));
            return self.note_account(slot);
        };
        let (session, now) = (&begun.session, self.now.wall);
        let parking = &self.shared.xmpp.parking;
        let resumed = match parking.take(session.device_key, &resuming.id, session.holder(), now) {
            Some(parked) => Resumed::Yes(parked.suspended),
            None => {
                parking.forget(session.device_key);
                Resumed::Gone { handled: None }
            }
        };
        if matches!(resumed, Resumed::Yes(_)) {
            if let Some(xmpp) = self.xmpp(slot) {
                (xmpp.resumed, xmpp.repeats) = (true, true);
            }
            self.shared.metrics.xmpp_resumed.inc();
        }
        self.converse(slot, |conversation, cx, out| conversation.resumed(cx, resumed, out));
        self.note_account(slot);
    }
}

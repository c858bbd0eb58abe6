//! From a password to a session: the token is verified first, the rest is the core's log-in, as for every
//! protocol. A session is resumed by a log-in of its device too (XEP-0198 §5): what was sent and not confirmed
//! is sent again, and what came meanwhile is read from the store.
//!
//! The connection that a session is resumed from may seem to be alive still, here or on another shard. It is
//! told to leave, and its session is looked for until it has.

use noroshi_auth::Identity;
use noroshi_protocol::xmpp::{self, Credentials, Resumed};
use noroshi_types::{CloseReason, Presence};

use super::{Parked, framing_of};
use crate::login::Begun;
use crate::shard::Shard;
use crate::verification::close_reason;

/// A tenth of a second each.
const LOOKS_MAX: u8 = 30;

/// A session that is to be resumed when its connection has left it.
pub(crate) struct Waiting {
    id: Box<str>,
    looks_left: u8,
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
    pub(super) fn authenticate_xmpp(&mut self, slot: u32, user: &str, password: &str) {
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
        self.identify(slot, Some(password), None, |shard, slot, answer| {
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
        if !self.admits_xmpp(slot) {
            return;
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

    pub(super) fn resume_xmpp(&mut self, slot: u32, id: Box<str>) {
        if !self.admits_xmpp(slot) {
            return;
        }
        let Some(xmpp) = self.xmpp(slot) else { return };
        xmpp.waiting = Some(Box::new(Waiting { id, looks_left: LOOKS_MAX }));
        self.look_for_session(slot);
    }

    /// Whether the session is there by now.
    pub(super) fn look_for_session(&mut self, slot: u32) {
        let shared = self.shared.clone();
        let (now, tick) = (self.now.wall, self.now.tick);
        let Some(xmpp) = self.xmpp(slot) else { return };
        let (Some(identity), Some(waiting)) = (&mut xmpp.identity, &mut xmpp.waiting) else { return };
        // Of an account it is one resource's.
        let resource = xmpp::resource_of(&waiting.id);
        if let Some((account, resource)) = xmpp.conversation.account().zip(resource)
            && let Some(device) = shared.known_device(account, resource)
        {
            identity.device = device;
        }
        let key = shared.registry.device_key(identity.app, &identity.device);
        if let Some(parked) = shared.xmpp.parking.take(key, &waiting.id, now) {
            return self.take_up(slot, parked);
        }
        match shared.registry.device(key).filter(|_| waiting.looks_left > 0) {
            Some(session) => {
                if waiting.looks_left == LOOKS_MAX {
                    let mailbox = &shared.mailboxes[usize::from(session.address.shard)];
                    mailbox.close(session.address, CloseReason::Replaced);
                }
                waiting.looks_left -= 1;
                if let Some(connection) = self.connection(slot) {
                    connection.ping_tick = tick + 1;
                    self.arm(slot);
                }
            }
            None => {
                xmpp.waiting = None;
                let gone = Resumed::Gone { handled: None };
                self.converse(slot, |conversation, cx, out| conversation.resumed(cx, gone, out));
            }
        }
    }

    fn take_up(&mut self, slot: u32, parked: Parked) {
        let Some(connection) = self.connection(slot) else { return };
        let framing = framing_of(connection.framing);
        connection.ping_tick = u32::MAX;
        let Some(xmpp) = self.xmpp(slot) else { return };
        xmpp.waiting = None;
        if parked.suspended.framing() != framing {
            // What is kept is framed already.
            let gone = Resumed::Gone { handled: Some(parked.suspended.handled()) };
            return self.converse(slot, |conversation, cx, out| conversation.resumed(cx, gone, out));
        }
        xmpp.resuming = Some(parked.suspended);
        if let Some(identity) = xmpp.identity.take() {
            self.start_log_in(slot, *identity, parked.topics, None);
        }
    }

    /// The session is attached.
    pub(crate) fn begin_xmpp(&mut self, slot: u32, begun: &Begun) {
        // Until the client says that it is there.
        begun.session.set_presence(Presence::Offline);
        let Some(xmpp) = self.xmpp(slot) else { return };
        match xmpp.resuming.take() {
            Some(suspended) => {
                (xmpp.resumed, xmpp.repeats) = (true, true);
                self.shared.metrics.xmpp_resumed.inc();
                let resumed = Resumed::Yes(suspended);
                self.converse(slot, |conversation, cx, out| conversation.resumed(cx, resumed, out));
            }
            None => {
                self.shared.xmpp.parking.forget(begun.session.device_key);
                self.converse(slot, |conversation, cx, out| conversation.logged_in(cx, out));
            }
        }
        self.note_account(slot);
    }
}

//! From a password to a session: the token is verified first, then the log-in is as for every protocol. A session is
//! resumed by a log-in of its device too (XEP-0198 §5): messages that were sent and not acknowledged are sent again, and
//! messages that arrived meanwhile are read from the store.
//!
//! A client that asks for a session has proved only that its token was once issued. So the store checks the token
//! before anything changes for the session: a parked one stays until the log-in has succeeded, and a connection that
//! still seems to be alive, here or on another shard, is closed after the check, and only if the session has the
//! client's id.

use noroshi_auth::Identity;
use noroshi_protocol::xmpp::{self, Credentials, Resumed};
use noroshi_store::{LoggedIn, Login};
use noroshi_types::{CloseReason, Presence};

use super::job::{Checked, check};
use super::{Request, Xmpp, framing_of, service};
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::session::login::{OpenedSession, login_of};
use crate::session::registry::{Holder, Key};

/// A session that a client requests.
pub(super) struct Resuming {
    pub(super) id: Box<str>,
    device_key: Key,
}

impl Xmpp {
    /// PLAIN: a device with its token, or a conformance account with its password.
    pub(super) fn authenticate(
        &mut self,
        cx: &mut Context<'_>,
        user: &str,
        app: Option<&str>,
        password: &str,
    ) {
        if !cx.admits() {
            return;
        }
        if service(cx.services).accounts.is_password(user, password) {
            let identity = service(cx.services).account_identity(cx.services, user);
            if identity.is_none() {
                cx.report_refusal("accounts have no app, or this one's name is no device's");
            }
            return self.authenticated(cx, identity.ok_or(CloseReason::Unauthorized), true);
        }
        cx.verify(Some(password.into()), app.map(Into::into), Request::LogIn);
    }

    pub(super) fn authenticated(
        &mut self,
        cx: &mut Context<'_>,
        identity: Result<Identity, CloseReason>,
        account: bool,
    ) {
        match identity {
            Ok(identity) => {
                let device = identity.device.clone();
                self.identity = Some(Box::new(identity));
                self.conversation.set_account(account);
                self.speak(cx, |conversation, pcx, out| conversation.authenticated(pcx, device, out));
            }
            Err(reason) => self.speak(cx, |conversation, pcx, out| conversation.refused(pcx, reason, out)),
        }
    }

    /// SCRAM, which only accounts can do: the server keeps nothing of a token that could check a proof.
    pub(super) fn find_keys(&mut self, cx: &mut Context<'_>, user: &str) {
        if !cx.admits() {
            return;
        }
        let identity = service(cx.services).account_identity(cx.services, user);
        let password = service(cx.services).accounts.password(user);
        let credentials = identity.zip(password).map(|(identity, password)| {
            let device = identity.device.clone();
            self.identity = Some(Box::new(identity));
            self.conversation.set_account(true);
            Credentials::Password { device, password }
        });
        self.speak(cx, |conversation, pcx, out| conversation.keys(pcx, credentials, out));
    }

    pub(super) fn log_in(&mut self, cx: &mut Context<'_>, resource: &str) {
        if cx.session.is_some() {
            // The log-in was for a session that could not be resumed.
            return self.speak(cx, |conversation, pcx, out| conversation.logged_in(pcx, out));
        }
        if let Some((account, identity)) = self.conversation.account().zip(self.identity.as_mut()) {
            match service(cx.services).account_device(account, resource) {
                Some(device) => identity.device = device,
                // RFC 6120 §7.6.2.1
                None => {
                    let reason = CloseReason::Overloaded;
                    return self.speak(cx, |conversation, pcx, out| conversation.refused(pcx, reason, out));
                }
            }
        }
        if let Some(identity) = self.identity.take() {
            cx.attach(*identity, Vec::new(), None);
        }
    }

    /// A parked session waits for the log-in. A connection that still has the session has to leave it first.
    pub(super) fn resume(&mut self, cx: &mut Context<'_>, id: Box<str>) {
        if !cx.admits() {
            return;
        }
        let registry = &cx.services.registry;
        let Some(identity) = &mut self.identity else { return };
        // The session of an account belongs to one resource.
        if let Some((account, resource)) = self.conversation.account().zip(xmpp::resource_of(&id))
            && let Some(device) = service(cx.services).known_device(account, resource)
        {
            identity.device = device;
        }
        let device_key = registry.device_key(identity.app, &identity.device);
        self.resuming = Some(Box::new(Resuming { id, device_key }));
        if self.log_in_to_parked(cx) {
            return;
        }
        match registry.device(device_key) {
            Some(_) => self.check_before_resuming(cx),
            // A connection parks its session before it leaves the registry, perhaps after the look above.
            None => self.look_for_session(cx),
        }
    }

    /// False if no session is parked under the id. It is taken out when the store has let its holder in.
    fn log_in_to_parked(&mut self, cx: &mut Context<'_>) -> bool {
        let (parking, framing) = (&service(cx.services).parking, framing_of(cx.facts.framing));
        let Some(Resuming { id, device_key }) = self.resuming.as_deref() else { return true };
        let Some(topics) = parking.topics(*device_key, id, framing, cx.now.wall) else { return false };
        if let Some(identity) = self.identity.take() {
            cx.attach(*identity, topics, None);
        }
        true
    }

    /// Asks the store whether the credential is valid. Changes nothing there.
    fn check_before_resuming(&mut self, cx: &mut Context<'_>) {
        let Some(identity) = self.identity.as_deref().cloned() else { return };
        if !cx.jobs.begin_query() {
            return self.report_gone(cx);
        }
        let login = Login { create: false, topics: Vec::new(), ..login_of(identity, cx.now.wall) };
        check(cx, login);
    }

    pub(super) fn handle_checked(&mut self, cx: &mut Context<'_>, result: Checked) {
        match result {
            Ok(Ok(found)) => self.ask_for_session(cx, &found),
            Ok(Err(_)) => self.refuse_resumption(cx),
            Err(error) => {
                tracing::warn!(%error, "a session is not resumed: could not check its token");
                cx.close(CloseReason::Overloaded);
            }
        }
    }

    /// There is no such device, or the token was revoked. An app JWT may create the device again: the new one has
    /// nothing to resume.
    fn refuse_resumption(&mut self, cx: &mut Context<'_>) {
        if self.identity.as_ref().is_some_and(|identity| identity.create) {
            return self.report_gone(cx);
        }
        cx.report_refusal(CloseReason::Revoked.explain());
        cx.close(CloseReason::Revoked);
    }

    /// The credential is valid. The connection that has the session leaves it, if the session has the client's id.
    fn ask_for_session(&mut self, cx: &mut Context<'_>, found: &LoggedIn) {
        let registry = &cx.services.registry;
        let (Some(identity), Some(resuming)) = (&self.identity, &self.resuming) else { return };
        // An app JWT may name another user, to whom the device moves with the log-in.
        let user = identity.user.as_ref().or(found.user.as_ref());
        let user_key = user.map_or(0, |user| registry.user_key(identity.app, user));
        let holder = Holder { num: found.num, user_key, token_version: found.token_version };
        let present = registry.device(resuming.device_key);
        match present.filter(|present| present.holder() == holder) {
            Some(present) => cx.push(Effect::Resume { at: present.address, id: resuming.id.clone() }),
            // Its connection may have broken meanwhile.
            None => self.look_for_session(cx),
        }
    }

    /// The connection that had the session has left it, or has another one.
    pub(super) fn look_for_session(&mut self, cx: &mut Context<'_>) {
        if self.resuming.is_some() && !self.log_in_to_parked(cx) {
            self.report_gone(cx);
        }
    }

    fn report_gone(&mut self, cx: &mut Context<'_>) {
        self.resuming = None;
        let gone = Resumed::Gone { handled: None };
        self.speak(cx, |conversation, pcx, out| conversation.resumed(pcx, gone, out));
    }

    /// The session is attached.
    pub(super) fn begin_session(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) {
        // Until the client sends its presence.
        begun.session.set_presence(Presence::Offline);
        self.refill_frames(cx);
        let parking = &service(cx.services).parking;
        let Some(resuming) = self.resuming.take() else {
            parking.forget(begun.session.device_key);
            self.speak(cx, |conversation, pcx, out| conversation.logged_in(pcx, out));
            return cx.continue_with(Request::AttachAccount);
        };
        let (session, now) = (&begun.session, cx.now.wall);
        let resumed = match parking.take(session.device_key, &resuming.id, session.holder(), now) {
            Some(parked) => Resumed::Yes(parked.suspended),
            None => {
                parking.forget(session.device_key);
                Resumed::Gone { handled: None }
            }
        };
        if matches!(resumed, Resumed::Yes(_)) {
            (self.resumed, self.repeats) = (true, true);
            cx.services.metrics.xmpp_resumed.inc();
        }
        self.speak(cx, |conversation, pcx, out| conversation.resumed(pcx, resumed, out));
        cx.continue_with(Request::AttachAccount);
    }
}

//! From CONNECT to a session.

use noroshi_auth::{Identity, Refused};
use noroshi_protocol::socket_io::LogIn;
use noroshi_types::SessionId;
use ring::rand::{SecureRandom, SystemRandom};

use super::{App, Request, SocketIo};
use crate::protocol::context::Context;
use crate::protocol::effect::{Effect, Refusal};
use crate::session::login::OpenedSession;
use crate::session::verification::close_reason;

impl SocketIo {
    pub(super) fn log_in(&mut self, cx: &mut Context<'_>, login: LogIn) {
        if !cx.admits() {
            return;
        }
        let (with_request, app) = self.pending_login.as_deref().map_or((None, None), |pending| {
            (pending.credentials.token.clone(), pending.credentials.app.clone())
        });
        let token = login.token.as_ref().map(|token| token.as_str().to_owned()).or(with_request);
        let app = login.app.as_deref().map(str::to_owned).or(app);
        cx.verify(token.map(Into::into), app.map(Into::into), Request::LogIn(Box::new(login)));
    }

    pub(super) fn let_in(&mut self, cx: &mut Context<'_>, login: LogIn, answer: Result<Identity, Refused>) {
        let identity = match answer {
            Ok(identity) => identity,
            Err(refused) => return cx.close(close_reason(&refused)),
        };
        let recoverable = login.is_recoverable();
        let resume = login.pid.as_ref().and(login.offset).map(|offset| offset.id);
        let pending = self.pending_login.get_or_insert_default();
        pending.pid = login.pid.filter(|_| recoverable);
        cx.attach(identity, login.topics, resume);
    }

    /// The session is attached: sends the client its public id, and the private id for a later reconnect.
    pub(super) fn begin_session(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) {
        let public = SessionId(begun.session.address.generation).to_string();
        let mut random = [0; 16];
        let drawn = SystemRandom::new().fill(&mut random).map(|()| {
            let drawn: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            drawn
        });
        let App::Device(conversation) = &mut self.app else { return };
        let pid = self.pending_login.take().and_then(|pending| pending.pid).filter(|_| begun.complete);
        // A `pid` is no credential: without randomness the public id will do.
        let pid = pid.map_or_else(|| drawn.unwrap_or_else(|_| public.clone()), String::from);
        let mut actions = Vec::new();
        conversation.logged_in(&public, &pid, &mut actions);
        self.push_actions(cx, actions);
        self.set_timeout(cx);
    }

    /// The client may log in once more on this connection.
    pub(super) fn refuse_login(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        let App::Device(conversation) = &mut self.app else { return cx.close(refusal.reason) };
        let mut actions = Vec::new();
        let config = &cx.services.config.socket_io.conversation;
        conversation.refuse(refusal.code, &refusal.text, cx.now.ms, config, &mut actions);
        cx.push(Effect::AwaitLogin);
        self.push_actions(cx, actions);
        self.set_timeout(cx);
    }
}

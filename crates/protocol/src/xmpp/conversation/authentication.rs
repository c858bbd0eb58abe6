//! SASL in both profiles: RFC 6120 §6, and XEP-0388, which binds or resumes in the same round trip. A device
//! logs in with its token, using SCRAM if the caller can find keys by device name.

use std::num::NonZeroU32;

use noroshi_types::{CloseReason, DeviceId};
use ring::hmac;

use super::opening::{Bind2, Resume, Step, wants_resumption};
use super::{
    Context, Conversation, Element, Identity, Output, Phase, StreamError, ns, push_empty, push_end,
    push_framed, push_start, push_text,
};
use crate::app_name;
use crate::xmpp::action::{Action, Credentials};
use crate::xmpp::jid::{self, Jid};
use crate::xmpp::sasl::{self, Failure, Mechanism, Plain};
use crate::xmpp::scram::{ClientFirst, Exchange, Hash, ITERATIONS, Keys, NONCE_BYTES, ScramError};

impl Conversation {
    /// RFC 6120 §6.4.2.
    pub(super) fn handle_auth(&mut self, cx: &Context<'_>, auth: Element<'_>, out: &mut Output) {
        if self.phase == Phase::Negotiating {
            self.opening().sasl2 = false;
        }
        let text = auth.text();
        let initial = (!text.is_empty()).then_some(&*text);
        self.begin_exchange(cx, auth.attribute("mechanism"), initial, out);
    }

    /// XEP-0388 §2.4.
    pub(super) fn handle_authenticate(&mut self, cx: &Context<'_>, auth: Element<'_>, out: &mut Output) {
        if self.phase == Phase::Negotiating {
            let bind2 = auth.child(ns::BIND2, "bind").map(read_bind2);
            let resume = auth.child(ns::SM, "resume").and_then(Resume::parse);
            let opening = self.opening();
            (opening.sasl2, opening.bind2, opening.resume) = (true, bind2, resume);
        }
        let text = auth.child(ns::SASL2, "initial-response").map(|initial| initial.text());
        self.begin_exchange(cx, auth.attribute("mechanism"), text.as_deref(), out);
    }

    fn begin_exchange(
        &mut self,
        cx: &Context<'_>,
        mechanism: Option<&str>,
        initial: Option<&str>,
        out: &mut Output,
    ) {
        if self.phase != Phase::Negotiating {
            return self.fail_log_in(cx, Failure::MalformedRequest, out);
        }
        if !self.may_log_in(cx) {
            return self.fail_log_in(cx, Failure::EncryptionRequired, out); // §6.5.4
        }
        let known = Mechanism::ALL.into_iter().find(|known| mechanism == Some(known.as_str()));
        match known.filter(|known| self.offers(cx, *known)) {
            None => self.fail_log_in(cx, Failure::InvalidMechanism, out),
            Some(mechanism) => {
                self.opening().exchange = Step::Chosen(mechanism);
                match initial {
                    Some(text) => self.step(cx, text, out),
                    None => self.push_challenge("", out),
                }
            }
        }
    }

    pub(super) fn handle_response(&mut self, cx: &Context<'_>, response: Element<'_>, out: &mut Output) {
        if self.phase != Phase::Challenged {
            return self.fail_log_in(cx, Failure::MalformedRequest, out);
        }
        self.step(cx, &response.text(), out);
    }

    /// RFC 6120 §6.4.4.
    pub(super) fn handle_abort(&mut self, cx: &Context<'_>, _: Element<'_>, out: &mut Output) {
        self.fail_log_in(cx, Failure::Aborted, out);
    }

    /// Handles one SASL message of the client.
    fn step(&mut self, cx: &Context<'_>, text: &str, out: &mut Output) {
        let exchange = std::mem::take(&mut self.opening().exchange);
        let result = sasl::decode(text).and_then(|message| match exchange {
            Step::Chosen(Mechanism::Plain) => self.begin_plain(cx, &message, out),
            Step::Chosen(Mechanism::Scram(hash)) => self.begin_scram(cx, &message, hash, out),
            Step::Proof { exchange, device } => {
                let why = |error: &ScramError| match error {
                    ScramError::Malformed(_) => None,
                    ScramError::ChannelBinding => Some("the proof is bound to another TLS connection"),
                    ScramError::Proof if device.is_some() => Some("the password is wrong"),
                    ScramError::Proof => Some("the account does not exist"),
                };
                let proof = exchange.finish(&message).inspect_err(|error| {
                    out.actions.extend(why(error).map(Action::Refused));
                })?;
                // Without a device, no proof is valid.
                let device = device.ok_or(Failure::NotAuthorized)?;
                self.prove(cx, device, Some(proof), out);
                Ok(())
            }
            Step::None | Step::Token | Step::Keys { .. } => Err(Failure::MalformedRequest),
        });
        if let Err(failure) = result {
            self.fail_log_in(cx, failure, out);
        }
    }

    fn begin_plain(&mut self, cx: &Context<'_>, message: &str, out: &mut Output) -> Result<(), Failure> {
        let plain = Plain::parse(message)?;
        // The user name may include the domain.
        let (domain, user) = match plain.user.rsplit_once('@') {
            Some((user, domain)) if *domain == *cx.config.domain => (true, user),
            _ => (false, &*plain.user),
        };
        let (device, app) = app_name::split_user(user);
        let user = if domain { format!("{device}@{}", cx.config.domain) } else { device.to_owned() };
        self.set_user(cx, &user, plain.authorize_as.as_deref())?;
        self.opening().exchange = Step::Token;
        self.phase = Phase::Verifying;
        let user = self.opening().local.clone();
        let app = app.map(Into::into);
        out.actions.push(Action::Authenticate { user: name_of(&user), app, token: plain.password });
        Ok(())
    }

    fn begin_scram(
        &mut self,
        cx: &Context<'_>,
        message: &str,
        hash: Hash,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let first = Box::new(ClientFirst::parse(message)?);
        self.set_user(cx, &first.user, first.authorize_as.as_deref())?;
        self.opening().exchange = Step::Keys { hash, first };
        self.phase = Phase::Verifying;
        let user = self.opening().local.clone();
        out.actions.push(Action::FindKeys { user: name_of(&user), hash });
        Ok(())
    }

    /// Accepts a device name, plain or escaped, or a bare address. Authorization as another identity is not
    /// supported (RFC 6120 §6.3.8).
    fn set_user(&mut self, cx: &Context<'_>, user: &str, authorize_as: Option<&str>) -> Result<(), Failure> {
        let suffix = user.rsplit_once('@').filter(|(_, domain)| *domain == &*cx.config.domain);
        let user = suffix.map_or(user, |(user, _)| user);
        let local = jid::escape_local(&jid::unescape_local(user));
        if let Some(name) = authorize_as {
            let own = format!("{local}@{}", cx.config.domain);
            if !Jid::parse(name).is_ok_and(|jid| jid.resource.is_none() && jid.has_bare(&own)) {
                return Err(Failure::InvalidAuthzid);
            }
        }
        self.opening().local = local.into();
        Ok(())
    }

    /// Completes a log-in with a valid token of this device.
    pub fn authenticated(&mut self, cx: &Context<'_>, device: DeviceId, out: &mut Output) {
        if self.phase != Phase::Verifying || !matches!(self.opening().exchange, Step::Token) {
            return;
        }
        self.opening().exchange = Step::None;
        if jid::escape_local(device.as_str()) == *self.opening().local {
            self.prove(cx, device, None, out);
        } else {
            out.actions.push(Action::Refused("the token belongs to another device than the user name"));
            self.fail_log_in(cx, Failure::NotAuthorized, out);
        }
        self.take_early(cx, out);
    }

    /// Provides the credentials for a proof; `None` if there is no such device, which the client must not
    /// learn before it sends a proof.
    pub fn keys(&mut self, cx: &Context<'_>, credentials: Option<Credentials>, out: &mut Output) {
        if self.phase != Phase::Verifying || !matches!(self.opening().exchange, Step::Keys { .. }) {
            return;
        }
        let Step::Keys { hash, first } = std::mem::take(&mut self.opening().exchange) else { return };
        let salt = self.salt(cx);
        let iterations = NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN);
        let (device, keys) = match credentials {
            Some(Credentials::Keys { device, keys }) => (Some(device), keys),
            Some(Credentials::Password { device, password }) => {
                (Some(device), Keys::derive(hash, password.as_str(), &salt, iterations))
            }
            None => {
                let mut nothing = [0; 32];
                (cx.random)(&mut nothing);
                let [stored_key, server_key] = [nothing.into(), nothing.into()];
                (None, Keys { salt: salt.as_slice().into(), iterations, stored_key, server_key })
            }
        };
        let mut random = [0; NONCE_BYTES];
        (cx.random)(&mut random);
        let (exchange, message) = Exchange::begin(hash, &first, keys, random);
        self.opening().exchange = Step::Proof { exchange: Box::new(exchange), device };
        self.push_challenge(&message, out);
        self.take_early(cx, out);
    }

    /// A salt that is stable per name, whether or not the device exists.
    fn salt(&mut self, cx: &Context<'_>) -> [u8; 16] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &cx.config.decoy);
        let tag = hmac::sign(&key, self.opening().local.as_bytes());
        *tag.as_ref().first_chunk().unwrap_or(&[0; 16])
    }

    fn push_challenge(&mut self, message: &str, out: &mut Output) {
        self.phase = Phase::Challenged;
        let namespace = self.sasl_namespace();
        push_framed(&mut out.bytes, self.framing, |out| {
            push_text(out, "challenge", &[("xmlns", namespace)], &sasl::encode(message));
        });
    }

    /// Completes the authentication.
    fn prove(&mut self, cx: &Context<'_>, device: DeviceId, proof: Option<String>, out: &mut Output) {
        self.identity = Some(Box::new(Identity::new(device.clone(), &cx.config.domain)));
        let opening = self.opening();
        opening.proof = proof;
        if !opening.sasl2 {
            let proof = opening.proof.take().map(|proof| sasl::encode(&proof)).unwrap_or_default();
            push_framed(&mut out.bytes, self.framing, |out| {
                push_text(out, "success", &[("xmlns", ns::SASL)], &proof);
            });
            // RFC 6120 §6.4.6: the client starts a new stream.
            (self.phase, self.opened) = (Phase::Header, false);
            return;
        }
        // XEP-0198 §6.2: resumption comes first.
        let resume = opening.resume.as_ref().map(|resume| resume.id.clone());
        let binds = opening.bind2.is_some();
        match resume {
            Some(id) => out.actions.push(Action::Resume { device, id }),
            None if binds => self.log_in(cx, device, out),
            None => {
                self.phase = Phase::Authenticated;
                self.push_success(cx, out, |_| {});
                return self.push_features(cx, out);
            }
        }
        self.phase = Phase::Attaching;
    }

    /// XEP-0388 §2.6.4.
    pub(super) fn push_success(
        &mut self,
        cx: &Context<'_>,
        out: &mut Output,
        inline: impl FnOnce(&mut Vec<u8>),
    ) {
        let proof = self.opening().proof.take();
        let jid = self.identity.as_ref().map_or("", |identity| &identity.jid);
        // XEP-0388 §2.6.4: with the resource, if bound by now.
        let jid = if jid.is_empty() { &cx.config.domain } else { jid };
        push_framed(&mut out.bytes, self.framing, |out| {
            push_start(out, "success", &[("xmlns", ns::SASL2)]);
            if let Some(proof) = proof {
                push_text(out, "additional-data", &[], &sasl::encode(&proof));
            }
            push_text(out, "authorization-identifier", &[], jid);
            inline(out);
            push_end(out, "success");
        });
    }

    /// RFC 6120 §6.4.5: the client may retry a limited number of times.
    pub(super) fn fail_log_in(&mut self, cx: &Context<'_>, failure: Failure, out: &mut Output) {
        let namespace = self.sasl_namespace();
        let inner = if namespace == ns::SASL2 { ns::SASL } else { "" };
        push_framed(&mut out.bytes, self.framing, |out| {
            push_start(out, "failure", &[("xmlns", namespace)]);
            push_empty(out, failure.as_str(), &[("xmlns", inner)]);
            push_text(out, "text", &[("xml:lang", "en")], failure.text());
            push_end(out, "failure");
        });
        self.phase = Phase::Negotiating;
        self.identity = None;
        self.opening().forget_exchange();
        self.failures = self.failures.saturating_add(1);
        if self.failures >= cx.config.attempts_max {
            let error = (StreamError::PolicyViolation, "too many failed log-ins on one connection");
            self.end(cx, Some(error), CloseReason::Unauthorized, out, |_| {});
        }
    }

    fn sasl_namespace(&mut self) -> &'static str {
        if self.opening().sasl2 { ns::SASL2 } else { ns::SASL }
    }
}

/// The device's name in lower case.
fn name_of(local: &str) -> Box<str> {
    jid::unescape_local(local).into()
}

/// XEP-0386 §3.1.
fn read_bind2(bind: Element<'_>) -> Bind2 {
    let tag = bind.child(ns::BIND2, "tag").map(|tag| tag.text());
    let enable = bind.child(ns::SM, "enable");
    Bind2 {
        // A resource with the generated suffix must fit 1,023 bytes.
        tag: tag.filter(|tag| tag.len() <= 128 && jid::check_resource(tag).is_ok()).map(Into::into),
        manage: enable.map(wants_resumption),
        inactive: bind.child(ns::CSI, "inactive").is_some(),
    }
}

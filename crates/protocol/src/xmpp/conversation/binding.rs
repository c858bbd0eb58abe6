//! From an authenticated client to an open session: binds a resource (RFC 6120 §7, XEP-0386) or resumes a
//! session (XEP-0198 §5). A device has one session: a later bind takes it over, whatever the resource.

use noroshi_types::{CloseReason, DeviceId};

use super::opening::{Attempt, Resume, wants_resumption};
use super::stanza::Stanza;
use super::{
    Context, Conversation, Element, Identity, Output, Phase, StanzaError, StreamError, ns, push_empty,
    push_end, push_framed, push_start, push_text,
};
use crate::xmpp::action::{Action, Resumed};
use crate::xmpp::config::Config;
use crate::xmpp::jid;
use crate::xmpp::management::{Suspended, TooHigh};
use crate::xmpp::sasl::Failure;

/// Separates the id of an account's session from its resource.
const OF: char = '~';

/// The account's resource in the session id.
pub fn resource_of(id: &str) -> Option<&str> {
    id.split_once(OF).map(|(_, resource)| resource)
}

/// Why a session cannot be resumed after [`Resumed::Yes`].
enum Broken {
    Gone(Option<u32>),
    TooHigh(u32, TooHigh),
}

const NOT_BOUND: &str = "bind a resource or resume a session first";

impl Conversation {
    /// Handles elements that are valid after the log-in: bind or resume.
    pub(super) fn handle_unbound(&mut self, cx: &Context<'_>, root: Element<'_>, out: &mut Output) {
        match (root.namespace(), root.name()) {
            (ns::CLIENT, "iq") => self.handle_bind(cx, root, out),
            (ns::SM, "resume") => match Resume::parse(root) {
                Some(resume) => {
                    let Some(device) = self.device() else { return };
                    let id = resume.id.clone();
                    self.opening().resume = Some(resume);
                    self.phase = Phase::Attaching;
                    out.actions.push(Action::Resume { device, id });
                }
                None => self.push_sm_failure("bad-request", None, out),
            },
            (ns::SM, _) => self.push_sm_failure("unexpected-request", None, out), // XEP-0198 §3
            // RFC 6120 §7.1: no other element before a resource is bound.
            _ => self.fail(cx, StreamError::NotAuthorized, NOT_BOUND, out),
        }
    }

    fn handle_bind(&mut self, cx: &Context<'_>, iq: Element<'_>, out: &mut Output) {
        let bind = iq.child(ns::BIND, "bind").filter(|_| iq.attribute("type") == Some("set"));
        let Some(bind) = bind else {
            return self.fail(cx, StreamError::NotAuthorized, NOT_BOUND, out);
        };
        let id = iq.attribute("id").unwrap_or_default();
        let wanted = bind.child(ns::BIND, "resource").map(|resource| resource.text());
        let wanted = wanted.filter(|resource| !resource.is_empty());
        if id.is_empty() || wanted.as_deref().is_some_and(|resource| jid::check_resource(resource).is_err()) {
            return self.on(cx, Stanza::iq(id, ""), out).push_error(StanzaError::BadRequest, ""); // §7.7.2.1
        }
        let Some(device) = self.device() else { return };
        let opening = self.opening();
        (opening.bind_id, opening.resource) = (id.into(), wanted.map(Into::into));
        self.phase = Phase::Attaching;
        self.log_in(cx, device, out);
    }

    /// Requests a session for the client's resource, or for a generated one.
    pub(super) fn log_in(&mut self, cx: &Context<'_>, device: DeviceId, out: &mut Output) {
        let opening = self.opening();
        let resource: Box<str> = match opening.bind2.as_ref().map(|bind2| bind2.tag.as_deref()) {
            // XEP-0386 §3.2: the tag stays recognizable.
            Some(Some(tag)) => format!("{tag}~{}", cx.token::<8>()).into(),
            Some(None) => cx.token::<8>().into(),
            None => opening.resource.take().unwrap_or_else(|| cx.token::<8>().into()),
        };
        opening.resource = Some(resource.clone());
        out.actions.push(Action::LogIn { device, resource });
    }

    fn device(&self) -> Option<DeviceId> {
        self.identity.as_ref().map(|identity| identity.device.clone())
    }

    /// The device's session started.
    pub fn logged_in(&mut self, cx: &Context<'_>, out: &mut Output) {
        if self.phase != Phase::Attaching {
            return;
        }
        let opening = self.opening();
        let bind2 = opening.bind2.take();
        let (id, resource) = (std::mem::take(&mut opening.bind_id), opening.resource.take());
        let attempt = opening.resume.take().map(|resume| resume.attempt);
        let (Some(resource), Some(identity)) = (resource, &mut self.identity) else { return };
        identity.jid = format!("{}/{resource}", identity.bare()).into();
        self.phase = Phase::Open;
        match bind2 {
            None => {
                let jid = identity.jid.clone();
                self.on(cx, Stanza::iq(&id, ""), out).push_result(|out| {
                    push_start(out, "bind", &[("xmlns", ns::BIND)]);
                    push_text(out, "jid", &[], &jid);
                    push_end(out, "bind");
                });
            }
            Some(bind2) => {
                self.inactive = bind2.inactive;
                let enabled = bind2.manage.map(|resumable| self.enable(cx, resumable));
                self.push_success(cx, out, |out| {
                    if let Some(Attempt::Gone { handled }) = attempt {
                        push_failed(out, "item-not-found", handled);
                    }
                    push_start(out, "bound", &[("xmlns", ns::BIND2)]);
                    out.extend(enabled.into_iter().flatten());
                    push_end(out, "bound");
                });
                self.push_features(cx, out);
            }
        }
        self.take_early(cx, out);
    }

    /// The log-in that the caller verified failed.
    pub fn refused(&mut self, cx: &Context<'_>, reason: CloseReason, out: &mut Output) {
        let sasl2 = self.opening.as_ref().is_some_and(|opening| opening.sasl2);
        match self.phase {
            Phase::Verifying => self.fail_log_in(cx, Failure::of(reason), out),
            // Success was not sent yet.
            Phase::Attaching if sasl2 => self.fail_log_in(cx, Failure::of(reason), out),
            // RFC 6120 §7.6.2.1: the client may retry.
            Phase::Attaching if reason == CloseReason::Overloaded => {
                self.phase = Phase::Authenticated;
                let id = std::mem::take(&mut self.opening().bind_id);
                self.on(cx, Stanza::iq(&id, ""), out).push_error(StanzaError::ResourceConstraint, "");
            }
            Phase::Attaching => self.close(cx, reason, None, out),
            _ => return,
        }
        self.take_early(cx, out);
    }

    /// XEP-0198 §3, on an open stream.
    pub(super) fn handle_enable(&mut self, cx: &Context<'_>, enable: Element<'_>, out: &mut Output) {
        if self.management.as_ref().is_some_and(|management| management.counts) {
            return self.push_sm_failure("unexpected-request", None, out);
        }
        let enabled = self.enable(cx, wants_resumption(enable));
        push_framed(&mut out.bytes, self.framing, |out| out.extend(enabled));
    }

    /// Starts counting and returns the response to `<enable/>`.
    fn enable(&mut self, cx: &Context<'_>, resumable: bool) -> Vec<u8> {
        let Config { resume_max_s, resume_prefix, resume_location, .. } = cx.config;
        let token = || format!("{resume_prefix}{}", cx.token::<16>());
        let mut id = (resumable && *resume_max_s > 0).then(token);
        // A device has one session, an account one per resource.
        let resource = self.address().filter(|_| self.account).and_then(|full| full.split_once('/'));
        if let (Some(id), Some((_, resource))) = (&mut id, resource) {
            id.push(OF);
            id.push_str(resource);
        }
        self.management.get_or_insert_default().enable(id.clone().map(Into::into));
        let mut out = Vec::new();
        let max = resume_max_s.to_string();
        match id {
            None => push_empty(&mut out, "enabled", &[("xmlns", ns::SM)]),
            Some(id) => {
                let location = resume_location.as_deref().unwrap_or_default();
                let attributes = [
                    ("xmlns", ns::SM),
                    ("id", &id),
                    ("resume", "true"),
                    ("max", &max),
                    ("location", location),
                ];
                push_empty(&mut out, "enabled", &attributes);
            }
        }
        out
    }

    /// Handles the outcome of a resumption; if it succeeded, the device is logged in again.
    pub fn resumed(&mut self, cx: &Context<'_>, resumed: Resumed, out: &mut Output) {
        let resume = self.opening.as_mut().and_then(|opening| opening.resume.take());
        let Some(resume) = resume.filter(|_| self.phase == Phase::Attaching) else { return };
        let result = match resumed {
            Resumed::Yes(suspended) => self.restore(cx, &resume, *suspended, out),
            Resumed::Gone { handled } => Err(Broken::Gone(handled)),
        };
        match result {
            Ok(()) => {}
            Err(Broken::Gone(handled)) => self.bind_instead(cx, resume, handled, out),
            Err(Broken::TooHigh(claimed, TooHigh { sent })) => self.fail_count(cx, claimed, sent, out),
        }
        self.take_early(cx, out);
    }

    fn restore(
        &mut self,
        cx: &Context<'_>,
        resume: &Resume,
        suspended: Suspended,
        out: &mut Output,
    ) -> Result<(), Broken> {
        let Suspended { device, jid, framing, mut management, show, inactive } = suspended;
        let handled = management.handled;
        // Stored stanzas are already framed.
        if self.device().as_ref() != Some(&device) || framing != self.framing {
            return Err(Broken::Gone(None));
        }
        management.resume();
        let arrived =
            management.acknowledge(resume.handled).map_err(|high| Broken::TooHigh(resume.handled, high))?;
        let bare_len = Identity::new(device.clone(), &cx.config.domain).bare_len;
        self.identity = Some(Box::new(Identity { device, jid, bare_len }));
        let mut element = Vec::new();
        let count = handled.to_string();
        push_empty(&mut element, "resumed", &[("xmlns", ns::SM), ("previd", &resume.id), ("h", &count)]);
        if self.opening().sasl2 {
            self.push_success(cx, out, |out| out.extend(element));
        } else {
            push_framed(&mut out.bytes, self.framing, |out| out.extend(element));
        }
        let (again, lost) = management.take_unacknowledged();
        out.bytes.extend(again);
        (self.phase, self.show, self.inactive) = (Phase::Open, show, inactive);
        self.management = Some(management);
        for (ids, action) in
            [(arrived.ids, Action::Acknowledge as fn(Vec<_>) -> Action), (lost, Action::Redeliver as _)]
        {
            if !ids.is_empty() {
                out.actions.push(action(ids));
            }
        }
        out.actions.push(Action::Presence(show.presence(inactive)));
        Ok(())
    }

    /// Without a session to resume, starts a new one if the client requested that too.
    fn bind_instead(&mut self, cx: &Context<'_>, resume: Resume, handled: Option<u32>, out: &mut Output) {
        let opening = self.opening();
        let (sasl2, binds) = (opening.sasl2, opening.bind2.is_some());
        if binds {
            opening.resume = Some(Resume { attempt: Attempt::Gone { handled }, ..resume });
            let Some(device) = self.device() else { return };
            return self.log_in(cx, device, out);
        }
        self.phase = Phase::Authenticated;
        if sasl2 {
            self.push_success(cx, out, |out| push_failed(out, "item-not-found", handled));
            self.push_features(cx, out);
        } else {
            self.push_sm_failure("item-not-found", handled, out);
        }
    }

    /// XEP-0198 §4: the client acknowledged stanzas that were never sent.
    pub(super) fn fail_count(&mut self, cx: &Context<'_>, claimed: u32, sent: u32, out: &mut Output) {
        let [claimed, sent] = [claimed, sent].map(|count| count.to_string());
        let error = Some((StreamError::UndefinedCondition, "more stanzas were acknowledged than sent"));
        self.end(cx, error, CloseReason::BadMessage, out, |out| {
            let attributes = [("xmlns", ns::SM), ("h", &*claimed), ("send-count", &*sent)];
            push_empty(out, "handled-count-too-high", &attributes);
        });
    }

    pub(super) fn push_sm_failure(&self, condition: &str, handled: Option<u32>, out: &mut Output) {
        push_framed(&mut out.bytes, self.framing, |out| push_failed(out, condition, handled));
    }
}

fn push_failed(out: &mut Vec<u8>, condition: &str, handled: Option<u32>) {
    let handled = handled.map(|count| count.to_string()).unwrap_or_default();
    push_start(out, "failed", &[("xmlns", ns::SM), ("h", &handled)]);
    push_empty(out, condition, &[("xmlns", ns::STANZA_ERRORS)]);
    push_end(out, "failed");
}

//! The stream (RFC 6120 §4, RFC 7395 §3.4, §3.5): headers, features, errors and the end.

use noroshi_types::CloseReason;

use super::disco::push_capabilities;
use super::{
    Context, Conversation, Element, Framing, Output, Phase, Security, StreamError, ns, push_empty, push_end,
    push_framed, push_start, push_text,
};
use crate::xmpp::action::Action;
use crate::xmpp::jid::Jid;
use crate::xmpp::sasl::Mechanism;
use crate::xmpp::xml::parse_header;

impl Conversation {
    pub(super) fn handle_header(&mut self, cx: &Context<'_>, text: &str, out: &mut Output) {
        if self.phase != Phase::Header || self.framing == Framing::WebSocket {
            return self.fail(
                cx,
                StreamError::BadFormat,
                "the stream must be opened once, as its transport requires",
                out,
            );
        }
        let header = match parse_header(text, &cx.config.xml) {
            Ok(header) => header,
            Err(error) => return self.receive_error(cx, error, out),
        };
        // RFC 6120 §4.8.2, §4.8.3
        if header.content.as_deref() != Some(ns::CLIENT) {
            return self.fail(
                cx,
                StreamError::InvalidNamespace,
                "the content namespace must be jabber:client",
                out,
            );
        }
        self.scope = header.scope;
        let (to, from) = (header.to.as_deref(), header.from.as_deref());
        self.begin_stream(cx, to, from, header.version.as_deref(), out);
    }

    pub(super) fn handle_open(&mut self, cx: &Context<'_>, open: Element<'_>, out: &mut Output) {
        if self.phase != Phase::Header {
            return self.fail(cx, StreamError::BadFormat, "the stream must be opened once", out);
        }
        let [to, from, version] = ["to", "from", "version"].map(|name| open.attribute(name));
        self.begin_stream(cx, to, from, version, out);
    }

    fn begin_stream(
        &mut self,
        cx: &Context<'_>,
        to: Option<&str>,
        from: Option<&str>,
        version: Option<&str>,
        out: &mut Output,
    ) {
        // §4.7.1: `to` of our header is the client's `from`, if it sent one.
        let from = from.filter(|from| Jid::parse(from).is_ok());
        self.push_header(cx, from.unwrap_or_default(), out);
        let to = to.and_then(|to| Jid::parse(to).ok());
        if to.is_none_or(|to| to.local.is_some() || to.resource.is_some() || *to.domain != *cx.config.domain)
        {
            let text = format!("`to` must be {}, this service's domain", cx.config.domain);
            return self.fail(cx, StreamError::HostUnknown, &text, out);
        }
        // §4.7.5: versions before 1.0 had no features.
        let major =
            version.and_then(|version| version.split_once('.')).map(|(major, _)| major.parse::<u32>());
        if !matches!(major, Some(Ok(1..))) {
            return self.fail(cx, StreamError::UnsupportedVersion, "the version must be 1.0", out);
        }
        let is_authenticated = self.identity.is_some();
        self.phase = if is_authenticated { Phase::Authenticated } else { Phase::Negotiating };
        self.push_features(cx, out);
    }

    fn push_header(&mut self, cx: &Context<'_>, to: &str, out: &mut Output) {
        let id = cx.token::<16>();
        let domain = &*cx.config.domain;
        let common = [("id", &*id), ("from", domain), ("to", to), ("version", "1.0"), ("xml:lang", "en")];
        match self.framing {
            Framing::Stream => {
                out.bytes.extend_from_slice(b"<?xml version='1.0'?>");
                let attributes =
                    [&[("xmlns", ns::CLIENT), ("xmlns:stream", ns::STREAM)], &common[..]].concat();
                push_start(&mut out.bytes, "stream:stream", &attributes);
            }
            Framing::WebSocket => {
                let attributes = [&[("xmlns", ns::FRAMING)], &common[..]].concat();
                push_framed(&mut out.bytes, self.framing, |out| push_empty(out, "open", &attributes));
            }
        }
        self.opened = true;
    }

    /// RFC 6120 §4.3.2: the features that may be negotiated now.
    pub(super) fn push_features(&mut self, cx: &Context<'_>, out: &mut Output) {
        let framing = self.framing;
        push_framed(&mut out.bytes, framing, |out| {
            let attributes = [("xmlns", framing.client()), ("xmlns:stream", framing.stream())];
            push_start(out, "stream:features", &attributes);
            match self.phase {
                Phase::Authenticated => {
                    push_empty(out, "bind", &[("xmlns", ns::BIND)]);
                    push_start(out, "session", &[("xmlns", ns::SESSION)]);
                    push_empty(out, "optional", &[]);
                    push_end(out, "session");
                    if self.account {
                        push_empty(out, "sub", &[("xmlns", ns::PRE_APPROVAL)]);
                    }
                }
                Phase::Open => {}
                _ => self.push_log_in_features(cx, out),
            }
            if matches!(self.phase, Phase::Authenticated | Phase::Open) {
                // If binding enabled it already, it is not offered.
                if self.management.is_none() {
                    push_empty(out, "sm", &[("xmlns", ns::SM)]);
                }
                push_empty(out, "csi", &[("xmlns", ns::CSI)]);
                push_empty(out, "ver", &[("xmlns", ns::ROSTER_VERSIONS)]);
                push_capabilities(cx, self.account, out);
            }
            push_end(out, "stream:features");
        });
    }

    fn push_log_in_features(&self, cx: &Context<'_>, out: &mut Vec<u8>) {
        if self.security == Security::StartTls {
            push_start(out, "starttls", &[("xmlns", ns::TLS)]);
            if !cx.config.allow_plaintext {
                push_empty(out, "required", &[]); // §5.3.1
            }
            push_end(out, "starttls");
        }
        if cx.config.registration {
            push_empty(out, "register", &[("xmlns", ns::REGISTER_FEATURE)]);
        }
        if !self.may_log_in(cx) {
            return;
        }
        push_start(out, "mechanisms", &[("xmlns", ns::SASL)]);
        self.push_mechanisms(cx, out);
        push_end(out, "mechanisms");
        push_start(out, "authentication", &[("xmlns", ns::SASL2)]);
        self.push_mechanisms(cx, out);
        push_start(out, "inline", &[]);
        push_start(out, "bind", &[("xmlns", ns::BIND2)]);
        push_start(out, "inline", &[]);
        push_empty(out, "feature", &[("var", ns::SM)]);
        push_empty(out, "feature", &[("var", ns::CSI)]);
        push_end(out, "inline");
        push_end(out, "bind");
        push_empty(out, "sm", &[("xmlns", ns::SM)]);
        push_end(out, "inline");
        push_end(out, "authentication");
    }

    fn push_mechanisms(&self, cx: &Context<'_>, out: &mut Vec<u8>) {
        for mechanism in Mechanism::ALL.into_iter().filter(|it| self.offers(cx, *it)) {
            push_text(out, "mechanism", &[], mechanism.as_str());
        }
    }

    /// Ends the stream for a message that violates the protocol; `text` describes the error.
    pub(super) fn fail(&mut self, cx: &Context<'_>, error: StreamError, text: &str, out: &mut Output) {
        self.end(cx, Some((error, text)), CloseReason::BadMessage, out, |_| {});
    }

    /// Writes a stream error, with `more` after its condition, and ends the stream.
    pub(super) fn end(
        &mut self,
        cx: &Context<'_>,
        error: Option<(StreamError, &str)>,
        reason: CloseReason,
        out: &mut Output,
        more: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.opened && error.is_some() {
            self.push_header(cx, "", out); // §4.9.1.2
        }
        if let Some((error, text)) = error {
            push_framed(&mut out.bytes, self.framing, |out| {
                push_start(out, "stream:error", &[("xmlns:stream", self.framing.stream())]);
                push_empty(out, error.as_str(), &[("xmlns", ns::STREAM_ERRORS)]);
                if !text.is_empty() {
                    push_text(out, "text", &[("xmlns", ns::STREAM_ERRORS), ("xml:lang", "en")], text);
                }
                more(out);
                push_end(out, "stream:error");
            });
        }
        self.finish(reason, "", out);
    }

    /// `see-other-host` (§4.9.3.19), or on a WebSocket a closing element with the address (RFC 7395 §3.6.1).
    pub(super) fn redirect(&mut self, cx: &Context<'_>, reason: CloseReason, to: &str, out: &mut Output) {
        if self.framing == Framing::WebSocket {
            return self.finish(reason, to, out);
        }
        if !self.opened {
            self.push_header(cx, "", out);
        }
        push_start(&mut out.bytes, "stream:error", &[]);
        push_text(&mut out.bytes, StreamError::SeeOtherHost.as_str(), &[("xmlns", ns::STREAM_ERRORS)], to);
        push_end(&mut out.bytes, "stream:error");
        self.finish(reason, "", out);
    }

    pub(super) fn finish(&mut self, reason: CloseReason, see_other: &str, out: &mut Output) {
        match self.framing {
            Framing::Stream if self.opened => push_end(&mut out.bytes, "stream:stream"),
            Framing::Stream => {}
            Framing::WebSocket => {
                let attributes = [("xmlns", ns::FRAMING), ("see-other-uri", see_other)];
                push_framed(&mut out.bytes, self.framing, |out| push_empty(out, "close", &attributes));
            }
        }
        self.phase = Phase::Closed;
        self.opening = None;
        self.management = None;
        out.actions.push(Action::Close(reason));
    }

    /// The client ended its stream: ends ours too (§4.4), and the session (XEP-0198 §5).
    pub(super) fn handle_peers_end(&mut self, out: &mut Output) {
        self.finish(CloseReason::PeerClosed, "", out);
    }
}

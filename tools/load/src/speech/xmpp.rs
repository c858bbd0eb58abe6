//! XMPP client on a plain stream (RFC 6120): SASL PLAIN, resource binding, presence, and a subscription to
//! the topic's node (XEP-0060), if there is a topic. Pings are answered, which also acknowledges stored
//! notifications, since stream management is not enabled. Each step follows from the server's element, so
//! only an incomplete element is buffered.
//!
//! Names consist of letters, digits and `-` (`args`), so nothing needs escaping.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noroshi_protocol::xmpp::xml::element::Element;
use noroshi_protocol::xmpp::xml::{Limits, Scope, parse_element};
use noroshi_protocol::xmpp::{Framer, Input, namespace as ns};

use super::{Login, Turn, proceed};
use crate::connection::{Ended, Stage};
use crate::dialect::{self, Dialect};

/// Ids of the requests whose responses are awaited.
const BIND: &str = "bind";
const IN: &str = "in";
const MADE: &str = "made";

pub(crate) struct Xmpp {
    framer: Framer,
    /// `<auth/>`, until mechanisms are offered.
    auth: String,
}

fn header(domain: &str) -> String {
    format!(
        "<?xml version='1.0'?><stream:stream to='{domain}' version='1.0' xmlns='{}' xmlns:stream='{}'>",
        ns::CLIENT,
        ns::STREAM
    )
}

/// Appends a message to all devices: an item of the topic's node.
pub(super) fn push_publish(out: &mut Vec<u8>, of: &dialect::Xmpp, topic: &str, text: &str) {
    let publish = format!(
        "<iq type='set' id='publish' to='pubsub.{}'><pubsub xmlns='{}'><publish node='{topic}'><item>\
         <json xmlns='{}'>\"{text}\"</json></item></publish></pubsub></iq>",
        of.domain,
        ns::PUBSUB,
        ns::JSON
    );
    out.extend_from_slice(publish.as_bytes());
}

impl Xmpp {
    pub(super) fn begin(of: &dialect::Xmpp, login: Login<'_>) -> (Self, Vec<u8>) {
        // RFC 4616 §2: no authorization identity, the name, the password.
        let plain = STANDARD.encode(format!("\0{}\0{}", login.name, login.token()));
        let auth = format!("<auth xmlns='{}' mechanism='PLAIN'>{plain}</auth>", ns::SASL);
        (Self { framer: Framer::new(), auth }, header(&of.domain).into())
    }

    pub(super) fn handle_bytes(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        let Self { framer, auth } = self;
        let mut ended = None;
        let mut on_input = |input: Input<'_>| {
            let heard = match input {
                // Messages first: everything else is rare.
                Input::Element(text) if text.starts_with("<message") => {
                    handle_message(text, turn);
                    Ok(())
                }
                Input::Element(text) => handle_element(text, auth, turn),
                Input::Close => Err(Ended::temporary("stream closed by the server")),
                Input::Header(_) | Input::Whitespace => Ok(()),
            };
            proceed(heard, &mut ended)
        };
        let fed = framer.feed(bytes, &Limits::default(), &mut on_input);
        match ended {
            Some(ended) => Err(ended),
            None => fed.map(drop).map_err(|error| Ended::permanent(format!("invalid stream: {error}"))),
        }
    }
}

/// Ignores messages without time stamp, such as greetings.
fn handle_message(text: &str, turn: &mut Turn<'_>) {
    let Some(stamp_ns) = turn.stamp.find(text.as_bytes()) else { return };
    turn.message(Some(stamp_ns), text.len());
    if memchr::memmem::find(text.as_bytes(), ns::RECEIPTS.as_bytes()).is_some() {
        turn.seen.stored(Some(stamp_ns));
    }
}

fn handle_element(text: &str, auth: &mut String, turn: &mut Turn<'_>) -> Result<(), Ended> {
    let scope = Scope::default();
    let tree = parse_element(text, Some(&scope), &Limits::default())
        .map_err(|error| Ended::permanent(format!("invalid stanza: {error}")))?;
    let root = tree.root();
    let Dialect::Xmpp(of) = turn.dialect else { return Ok(()) };
    match (root.namespace(), root.name()) {
        (ns::STREAM, "features") => handle_features(root, auth, turn),
        (ns::STREAM, "error") => Err(ended(root)),
        (ns::SASL, "success") => {
            turn.out.extend_from_slice(header(&of.domain).as_bytes());
            Ok(())
        }
        (ns::SASL, "failure") => Err(Ended::permanent(format!("log-in rejected: {}", condition(root)))),
        (ns::CLIENT, "iq") => handle_iq(root, of, turn),
        _ => Ok(()),
    }
}

fn handle_features(features: Element<'_>, auth: &mut String, turn: &mut Turn<'_>) -> Result<(), Ended> {
    if features.child(ns::BIND, "bind").is_some() {
        *turn.stage = Stage::LoggingIn;
        let bind = format!("<iq type='set' id='{BIND}'><bind xmlns='{}'/></iq>", ns::BIND);
        turn.out.extend_from_slice(bind.as_bytes());
        return Ok(());
    }
    let mechanisms = features.child(ns::SASL, "mechanisms");
    let mut offered = mechanisms.iter().flat_map(|mechanisms| mechanisms.children());
    if !offered.any(|mechanism| mechanism.text() == "PLAIN") {
        return Err(Ended::permanent("SASL PLAIN is not offered on a stream without TLS"));
    }
    turn.out.extend_from_slice(std::mem::take(auth).as_bytes());
    Ok(())
}

fn handle_iq(iq: Element<'_>, of: &dialect::Xmpp, turn: &mut Turn<'_>) -> Result<(), Ended> {
    let id = iq.attribute("id").unwrap_or_default();
    match (iq.attribute("type").unwrap_or_default(), id) {
        ("result", BIND) => {
            let bound = iq.child(ns::BIND, "bind").and_then(|bind| bind.child(ns::BIND, "jid"));
            let address = bound.ok_or_else(|| Ended::permanent("the bound resource has no address"))?.text();
            *turn.stage = Stage::Subscribing;
            let text = requests_after_binding(&address, of, turn.topic);
            turn.out.extend_from_slice(text.as_bytes());
        }
        ("result", IN) if *turn.stage == Stage::Subscribing => *turn.stage = Stage::Ready,
        // The node may exist from an earlier measurement.
        ("error", MADE) => {}
        // A server without ping support answers with an error, which is sufficient.
        ("error", IN) if turn.topic.is_none() => *turn.stage = Stage::Ready,
        ("error", _) => {
            let refused = iq.child(ns::CLIENT, "error").map(condition).unwrap_or_default();
            return Err(Ended::permanent(format!("request {id:?} rejected: {refused}")));
        }
        ("get", _) => {
            let answer = match iq.attribute("from") {
                Some(from) => format!("<iq type='result' id='{id}' to='{from}'/>"),
                None => format!("<iq type='result' id='{id}'/>"),
            };
            turn.out.extend_from_slice(answer.as_bytes());
        }
        _ => {}
    }
    Ok(())
}

/// The requests after binding; the response to the last one completes the log-in.
fn requests_after_binding(address: &str, of: &dialect::Xmpp, topic: Option<&str>) -> String {
    let domain = &of.domain;
    let Some(topic) = topic else {
        return format!(
            "<presence/><iq type='get' id='{IN}' to='{domain}'><ping xmlns='{}'/></iq>",
            ns::PING
        );
    };
    let made = if of.makes_node { make_node(domain, topic) } else { String::new() };
    format!(
        "<presence/>{made}<iq type='set' id='{IN}' to='pubsub.{domain}'><pubsub xmlns='{}'>\
         <subscribe node='{topic}' jid='{address}'/></pubsub></iq>",
        ns::PUBSUB
    )
}

/// A node that stores nothing, like `when: connected`.
fn make_node(domain: &str, topic: &str) -> String {
    let config = [
        ("FORM_TYPE", "http://jabber.org/protocol/pubsub#node_config"),
        ("pubsub#persist_items", "0"),
        ("pubsub#send_last_published_item", "never"),
        ("pubsub#notification_type", "headline"),
    ];
    let field = |(name, value)| format!("<field var='{name}'><value>{value}</value></field>");
    format!(
        "<iq type='set' id='{MADE}' to='pubsub.{domain}'><pubsub xmlns='{}'><create node='{topic}'/><configure>\
         <x xmlns='jabber:x:data' type='submit'>{}</x></configure></pubsub></iq>",
        ns::PUBSUB,
        config.map(field).concat()
    )
}

/// The name of an error's condition, which is its first child element.
fn condition(error: Element<'_>) -> String {
    let name = error.children().map(Element::name).find(|name| *name != "text");
    name.unwrap_or("no reason").to_owned()
}

/// RFC 6120 §4.9.3: the temporary stream errors.
fn ended(error: Element<'_>) -> Ended {
    let condition = condition(error);
    let passes = ["system-shutdown", "resource-constraint", "see-other-host", "connection-timeout", "reset"];
    Ended {
        retry: passes.contains(&condition.as_str()),
        reason: format!("stream error {condition}"),
        after_ms: None,
    }
}

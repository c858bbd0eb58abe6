//! Archive queries (XEP-0313) with paging (XEP-0059), and their responses. The caller provides the archive's
//! contents: a device's inbox, or the messages of a conformance account.
//!
//! Invariant: a page has at most [`PAGE_MAX`] messages and [`PAGE_BYTES_MAX`] bytes, unless a single message
//! is larger.

use bytes::Bytes;
use noroshi_types::{Message, Timestamp, limits};

use super::config::{Config, Framing};
use super::encode;
use super::error::{Refused, StanzaError};
use super::jid::{Jid, bare_part};
use super::namespace as ns;
use super::xml::Element;
use super::xml::write::{push_empty, push_end, push_start, push_text};

/// Messages per page, unless the client requests fewer.
pub const PAGE_MAX: usize = 50;
/// A page is sent at once: half of the send queue.
pub const PAGE_BYTES_MAX: usize = limits::SEND_QUEUE_SOFT_BYTES / 2;
/// Limit of the id at which a page starts.
const ID_BYTES_MAX: usize = 64;

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveQuery {
    /// Only messages to or from this address, in canonical form; a bare address includes all its resources.
    pub with: Option<Box<str>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub place: ArchivePlace,
    pub max: usize,
}

/// Where a page starts: from the oldest forward, or from the newest backward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchivePlace {
    First,
    Last,
    After(Box<str>),
    Before(Box<str>),
}

/// An archived message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    pub id: Box<str>,
    pub sent_at: Timestamp,
    /// A self-contained element.
    pub message: Bytes,
}

/// A part of the matching messages, oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ArchivePage {
    messages: Vec<Archived>,
    /// The number of matches before the first message, and in total.
    index: u64,
    total: u64,
    /// Whether no further page exists in the query's direction.
    is_complete: bool,
}

impl Archived {
    /// Archives a notification.
    pub fn new(config: &Config, message: &Message) -> Self {
        let mut out = Vec::new();
        encode::push_message(&mut out, config, Framing::WebSocket, message, false);
        Self { id: message.id.to_string().into(), sent_at: message.sent_at, message: out.into() }
    }
}

const BAD_REQUEST: Refused = (StanzaError::BadRequest, "");

impl ArchiveQuery {
    pub(super) fn parse(query: Element<'_>) -> Result<Self, Refused> {
        let (place, max) = place(query)?;
        let mut parsed = Self { with: None, since: None, until: None, place, max };
        let Some(form) = query.child(ns::FORM, "x") else { return Ok(parsed) };
        for field in form.children().filter(|child| child.is(ns::FORM, "field")) {
            let value = field.child(ns::FORM, "value").map(|value| value.text()).unwrap_or_default();
            let time = || Timestamp::parse(&value).map(Some).ok_or(BAD_REQUEST);
            match field.attribute("var").unwrap_or_default() {
                "FORM_TYPE" if value == ns::ARCHIVE => {}
                "with" => parsed.with = Some(canonical(&value)?),
                "start" => parsed.since = time()?,
                "end" => parsed.until = time()?,
                // §4.1.5
                _ => return Err((StanzaError::FeatureNotImplemented, "")),
            }
        }
        Ok(parsed)
    }

    /// Whether a page is read backward.
    fn is_backward(&self) -> bool {
        matches!(self.place, ArchivePlace::Last | ArchivePlace::Before(_))
    }

    /// Whether the query includes messages to or from this address.
    pub fn is_with(&self, address: &str) -> bool {
        self.with.as_deref().is_none_or(|with| *with == *address || *with == *bare_part(address))
    }
}

impl ArchivePage {
    /// Builds a page from the matches, without those that exceed the size limit. At most `query.max`
    /// messages.
    pub fn new(query: &ArchiveQuery, mut messages: Vec<Archived>, mut index: u64, total: u64) -> Self {
        let (count, backward) = (messages.len(), query.is_backward());
        let behind = if backward { index } else { total.saturating_sub(index + count as u64) };
        let mut is_complete = behind == 0 || (count < query.max);
        let mut bytes = 0;
        let mut fits = |message: &Archived| {
            let is_first = bytes == 0;
            bytes += message.message.len();
            is_first || bytes <= PAGE_BYTES_MAX
        };
        if backward {
            let left_out = count - messages.iter().rev().take_while(|message| fits(message)).count();
            messages.drain(..left_out);
            (index, is_complete) = (index + left_out as u64, is_complete && left_out == 0);
        } else {
            let fitting = messages.iter().take_while(|message| fits(message)).count();
            messages.truncate(fitting);
            is_complete &= messages.len() == count;
        }
        Self { messages, index, total, is_complete }
    }

    #[cfg(test)]
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn messages(&self) -> &[Archived] {
        &self.messages
    }

    /// §4.3: the end of the response.
    pub(super) fn push_end(&self, out: &mut Vec<u8>) {
        let complete = if self.is_complete { "true" } else { "" };
        push_start(out, "fin", &[("xmlns", ns::ARCHIVE), ("complete", complete)]);
        push_start(out, "set", &[("xmlns", ns::RESULT_SET)]);
        if let (Some(first), Some(last)) = (self.messages.first(), self.messages.last()) {
            push_text(out, "first", &[("index", &self.index.to_string())], &first.id);
            push_text(out, "last", &[], &last.id);
        }
        push_text(out, "count", &[], &self.total.to_string());
        push_end(out, "set");
        push_end(out, "fin");
    }
}

impl Archived {
    /// §4.2
    pub(super) fn push(&self, out: &mut Vec<u8>, query_id: &str) {
        let attributes = [("xmlns", ns::ARCHIVE), ("queryid", query_id), ("id", &*self.id)];
        push_start(out, "result", &attributes);
        push_start(out, "forwarded", &[("xmlns", ns::FORWARD)]);
        push_empty(out, "delay", &[("xmlns", ns::DELAY), ("stamp", &self.sent_at.to_string())]);
        out.extend_from_slice(&self.message);
        push_end(out, "forwarded");
        push_end(out, "result");
    }
}

/// XEP-0059 §2.
fn place(query: Element<'_>) -> Result<(ArchivePlace, usize), Refused> {
    let Some(set) = query.child(ns::RESULT_SET, "set") else { return Ok((ArchivePlace::First, PAGE_MAX)) };
    let text = |name: &str| set.child(ns::RESULT_SET, name).map(|child| child.text());
    let max = match text("max").map(|max| max.trim().parse::<usize>()) {
        None => PAGE_MAX,
        Some(Ok(max)) => max.min(PAGE_MAX),
        Some(Err(_)) => return Err(BAD_REQUEST),
    };
    let place = match (text("after"), text("before"), text("index")) {
        (_, _, Some(_)) => return Err((StanzaError::FeatureNotImplemented, "")),
        (Some(_), Some(_), _) => return Err(BAD_REQUEST),
        (Some(id), ..) | (_, Some(id), _) if id.len() > ID_BYTES_MAX => {
            return Err((StanzaError::ItemNotFound, ""));
        }
        (Some(id), ..) => ArchivePlace::After(id.into()),
        (_, Some(id), _) if id.is_empty() => ArchivePlace::Last,
        (_, Some(id), _) => ArchivePlace::Before(id.into()),
        (None, None, None) => ArchivePlace::First,
    };
    Ok((place, max))
}

fn canonical(address: &str) -> Result<Box<str>, Refused> {
    Jid::parse(address).map(|jid| jid.canonical()).map_err(|_| (StanzaError::JidMalformed, ""))
}

/// §4.1.4: the supported query fields.
pub(super) fn push_form(out: &mut Vec<u8>) {
    push_start(out, "query", &[("xmlns", ns::ARCHIVE)]);
    push_start(out, "x", &[("xmlns", ns::FORM), ("type", "form")]);
    push_start(out, "field", &[("type", "hidden"), ("var", "FORM_TYPE")]);
    push_text(out, "value", &[], ns::ARCHIVE);
    push_end(out, "field");
    for (kind, name) in [("jid-single", "with"), ("text-single", "start"), ("text-single", "end")] {
        push_empty(out, "field", &[("type", kind), ("var", name)]);
    }
    push_end(out, "x");
    push_end(out, "query");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xmpp::xml::{Limits, Scope, parse_element};

    fn parse(inside: &str) -> Result<ArchiveQuery, StanzaError> {
        let (scope, limits) = (Scope::default(), Limits::default());
        let text = format!("<query xmlns='{}'>{inside}</query>", ns::ARCHIVE);
        ArchiveQuery::parse(parse_element(&text, Some(&scope), &limits).unwrap().root()).map_err(|it| it.0)
    }

    fn form(fields: &[(&str, &str)]) -> String {
        let fields: String = fields
            .iter()
            .map(|(name, value)| format!("<field var='{name}'><value>{value}</value></field>"))
            .collect();
        format!("<x xmlns='jabber:x:data' type='submit'>{fields}</x>")
    }

    fn set(inside: &str) -> String {
        format!("<set xmlns='http://jabber.org/protocol/rsm'>{inside}</set>")
    }

    const ALL: ArchiveQuery =
        ArchiveQuery { with: None, since: None, until: None, place: ArchivePlace::First, max: PAGE_MAX };

    #[test]
    fn queries_are_parsed() {
        assert_eq!(parse(""), Ok(ALL));
        let fields = form(&[
            ("FORM_TYPE", ns::ARCHIVE),
            ("with", "O@X.example/Q"),
            ("start", "1970-01-01T00:00:01Z"),
            ("end", "1970-01-01T01:00:00.5+01:00"),
        ]);
        let expected = ArchiveQuery {
            with: Some("o@x.example/Q".into()),
            since: Some(Timestamp(1_000)),
            until: Some(Timestamp(500)),
            ..ALL
        };
        assert_eq!(parse(&fields), Ok(expected));
        for (inside, place, max) in [
            ("<max>3</max>", ArchivePlace::First, 3),
            ("<max>5000</max><before/>", ArchivePlace::Last, PAGE_MAX),
            ("<max>0</max><after>a</after>", ArchivePlace::After("a".into()), 0),
            ("<before>b</before>", ArchivePlace::Before("b".into()), PAGE_MAX),
        ] {
            assert_eq!(parse(&set(inside)), Ok(ArchiveQuery { place, max, ..ALL }), "{inside}");
        }
    }

    #[test]
    fn invalid_queries_are_rejected() {
        for (inside, expected) in [
            (form(&[("start", "yesterday")]), StanzaError::BadRequest),
            (form(&[("end", "1969-12-31T23:59:59Z")]), StanzaError::BadRequest),
            (form(&[("with", "@")]), StanzaError::JidMalformed),
            (form(&[("FORM_TYPE", "u")]), StanzaError::FeatureNotImplemented),
            (form(&[("colour", "red")]), StanzaError::FeatureNotImplemented),
            (set("<max>x</max>"), StanzaError::BadRequest),
            (set("<after>a</after><before/>"), StanzaError::BadRequest),
            (set("<index>3</index>"), StanzaError::FeatureNotImplemented),
            (set(&format!("<after>{}</after>", "x".repeat(65))), StanzaError::ItemNotFound),
        ] {
            assert_eq!(parse(&inside), Err(expected), "{inside}");
        }
    }

    #[test]
    fn bare_address_includes_its_resources() {
        let with = |with: &str| ArchiveQuery { with: Some(with.into()), ..ALL };
        assert!(ALL.is_with("a@x/r") && with("a@x").is_with("a@x/r") && with("a@x/r").is_with("a@x/r"));
        assert!(
            !with("a@x/q").is_with("a@x/r") && !with("a@x/r").is_with("a@x") && !with("b@x").is_with("a@x/r")
        );
    }

    #[test]
    fn pages_are_bounded_and_have_an_index() {
        let messages = |sizes: &[usize]| -> Vec<Archived> {
            let message = |(number, size): (usize, &usize)| Archived {
                id: number.to_string().into(),
                sent_at: Timestamp(0),
                message: vec![b'x'; *size].into(),
            };
            sizes.iter().enumerate().map(message).collect()
        };
        let check =
            |place: ArchivePlace, max, sizes: &[usize], (index, total), expected: (&[&str], u64, bool)| {
                let query = ArchiveQuery { place, max, ..ALL };
                let page = ArchivePage::new(&query, messages(sizes), index, total);
                let ids: Vec<&str> = page.messages().iter().map(|message| &*message.id).collect();
                assert_eq!((&*ids, page.index, page.is_complete), expected);
            };
        let (first, last) = (|| ArchivePlace::First, || ArchivePlace::Last);
        check(first(), 2, &[1, 1], (0, 2), (&["0", "1"], 0, true));
        check(first(), 2, &[1, 1], (0, 3), (&["0", "1"], 0, false));
        check(last(), 2, &[1, 1], (1, 3), (&["0", "1"], 1, false));
        check(last(), 2, &[1, 1], (0, 2), (&["0", "1"], 0, true));
        check(ArchivePlace::After("9".into()), 2, &[], (0, 3), (&[], 0, true));
        check(first(), 0, &[], (0, 3), (&[], 0, false));
        check(first(), 0, &[], (0, 0), (&[], 0, true));
        // The maximum of one response, in the direction of the query.
        let (half, whole) = (PAGE_BYTES_MAX / 2, PAGE_BYTES_MAX + 1);
        check(first(), 3, &[half, half, half], (0, 3), (&["0", "1"], 0, false));
        check(last(), 3, &[half, half, half], (0, 3), (&["1", "2"], 1, false));
        check(first(), 3, &[whole, 1], (0, 2), (&["0"], 0, false));
        check(first(), 3, &[1, whole], (0, 2), (&["0"], 0, false));
    }
}

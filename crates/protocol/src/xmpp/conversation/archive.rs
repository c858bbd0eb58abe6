//! The archive of the client's own account (XEP-0313): queries, preferences and responses.

use super::stanza::Stanza;
use super::{Context, Conversation, Element, Output, StanzaError, ns, push_empty, push_end, push_start};
use crate::xmpp::accounts::ArchiveRules;
use crate::xmpp::action::{About, Action};
use crate::xmpp::archive::{ArchivePage, ArchiveQuery, push_form};

/// Limit of a client's query id.
const QUERY_ID_BYTES_MAX: usize = 128;

impl Conversation {
    pub(super) fn handle_archive_query(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        query: Element<'_>,
        out: &mut Output,
    ) {
        if kind == "get" {
            return self.push_result(cx, stanza, out, push_form);
        }
        let query_id = query.attribute("queryid").unwrap_or_default();
        let parsed = match query_id.len() <= QUERY_ID_BYTES_MAX {
            true => ArchiveQuery::parse(query),
            false => Err((StanzaError::BadRequest, "")),
        };
        match parsed {
            Ok(query) => {
                let request = stanza.request(About::Archive { query_id: query_id.into() });
                out.actions.push(Action::Archive { query, request });
            }
            Err((error, detail)) => self.push_error(cx, stanza, error, detail, out),
        }
    }

    /// §5. A device's inbox cannot be configured, so there is only one rule.
    pub(super) fn handle_archive_rules(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        rules: Element<'_>,
        out: &mut Output,
    ) {
        let parsed = if kind == "get" { Ok(None) } else { ArchiveRules::parse(rules).map(Some) };
        match parsed {
            Ok(rules) if self.account => {
                let request = stanza.request(About::Nothing);
                out.actions.push(Action::ArchiveRules { rules, request });
            }
            Ok(Some(rules)) if rules != ArchiveRules::default() => {
                self.push_error(cx, stanza, StanzaError::FeatureNotImplemented, "", out);
            }
            Ok(_) => self.push_result(cx, stanza, out, |out| ArchiveRules::default().push(out)),
            Err(error) => self.push_error(cx, stanza, error, "", out),
        }
    }

    /// §4.2, §4.3: sends the messages, then the response.
    pub(super) fn push_archive(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        query_id: &str,
        page: &ArchivePage,
        out: &mut Output,
    ) {
        let client = self.framing.client();
        let to = self.address().unwrap_or_default().to_owned();
        let from = self.identity.as_ref().map_or(String::new(), |it| it.bare().to_owned());
        for message in page.messages() {
            self.push_stanza(cx, out, |out| {
                push_start(out, "message", &[("xmlns", client), ("from", &from), ("to", &to)]);
                message.push(out, query_id);
                // XEP-0334 §4.3: others must neither copy nor store it.
                push_empty(out, "no-store", &[("xmlns", ns::HINTS)]);
                push_end(out, "message");
            });
        }
        self.push_result(cx, stanza, out, |out| page.push_end(out));
    }
}

//! The archive of the client's own account (XEP-0313): queries, preferences and responses.

use super::stanza::Handler;
use super::{Element, StanzaError, ns, push_empty, push_end, push_start};
use crate::xmpp::accounts::{ArchiveRules, Command};
use crate::xmpp::action::{About, Action};
use crate::xmpp::archive::{ArchivePage, ArchiveQuery, push_form};

/// Limit of a client's query id.
const QUERY_ID_BYTES_MAX: usize = 128;

impl Handler<'_> {
    pub(super) fn handle_archive_query(&mut self, query: Element<'_>) {
        if self.stanza.kind == "get" {
            return self.push_result(push_form);
        }
        let query_id = query.attribute("queryid").unwrap_or_default();
        let parsed = match query_id.len() <= QUERY_ID_BYTES_MAX {
            true => ArchiveQuery::parse(query),
            false => Err((StanzaError::BadRequest, "")),
        };
        match parsed {
            Ok(query) => {
                let request = self.stanza.request(About::Archive { query_id: query_id.into() });
                self.out.actions.push(Action::Archive { query, request });
            }
            Err((error, detail)) => self.push_error(error, detail),
        }
    }

    /// §5. A device's inbox cannot be configured, so there is only one rule.
    pub(super) fn handle_archive_rules(&mut self, rules: Element<'_>) {
        let parsed = if self.stanza.kind == "get" { Ok(None) } else { ArchiveRules::parse(rules).map(Some) };
        match parsed {
            Ok(rules) if self.conversation.account => self.ask(Command::ArchiveRules(rules)),
            Ok(Some(rules)) if rules != ArchiveRules::default() => {
                self.push_error(StanzaError::FeatureNotImplemented, "");
            }
            Ok(_) => self.push_result(|out| ArchiveRules::default().push(out)),
            Err(error) => self.push_error(error, ""),
        }
    }

    /// §4.2, §4.3: sends the messages, then the response.
    pub(super) fn push_archive(&mut self, query_id: &str, page: &ArchivePage) {
        let client = self.conversation.framing.client();
        let to = self.conversation.address().unwrap_or_default().to_owned();
        let from = self.conversation.bare().to_owned();
        for message in page.messages() {
            self.conversation.push_stanza(self.cx, self.out, |out| {
                push_start(out, "message", &[("xmlns", client), ("from", &from), ("to", &to)]);
                message.push(out, query_id);
                // XEP-0334 §4.3: others must neither copy nor store it.
                push_empty(out, "no-store", &[("xmlns", ns::HINTS)]);
                push_end(out, "message");
            });
        }
        self.push_result(|out| page.push_end(out));
    }
}

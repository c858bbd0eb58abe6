//! A device's archive is its inbox (XEP-0313): the messages that it has not confirmed. Reading confirms nothing.

use noroshi_protocol::xmpp::{Answer, ArchivePage, ArchivePlace, ArchiveQuery, Archived, Refusal, Request};
use noroshi_store::{InboxPage, InboxPlace, InboxRange};
use noroshi_types::NotificationId;

use super::Xmpp;
use super::subscribe::refusal;
use crate::protocol::context::Context;

/// Where a page begins; none if no notification has such an id.
fn place(asked: &ArchivePlace) -> Option<InboxPlace> {
    let id = |id: &str| NotificationId::parse(id).ok();
    Some(match asked {
        ArchivePlace::First => InboxPlace::First,
        ArchivePlace::Last => InboxPlace::Last,
        ArchivePlace::After(after) => InboxPlace::After(id(after)?),
        ArchivePlace::Before(before) => InboxPlace::Before(id(before)?),
    })
}

impl Xmpp {
    pub(super) fn query_archive(&mut self, cx: &mut Context<'_>, query: ArchiveQuery, request: Request) {
        if self.conversation.account().is_some() {
            return self.query_account_archive(cx, &query, request);
        }
        let (Some(session), services) = (cx.session.cloned(), cx.services.clone()) else { return };
        let domain = &services.config.xmpp.protocol.domain;
        let Some(place) = place(&query.place) else {
            return self.answer(cx, request, Answer::Refused(Refusal::NotFound));
        };
        // Only the server sends messages to a device.
        if !query.is_with(domain) {
            let page = ArchivePage::new(&query, Vec::new(), 0, 0);
            return self.answer(cx, request, Answer::Archive(page));
        }
        let range = InboxRange {
            app: session.app,
            device: session.device.clone(),
            since: query.since,
            until: query.until,
            place,
            limit: query.max,
            now: cx.now.wall,
        };
        let delivery = cx.delivery.clone();
        self.query(cx, request, async move {
            match delivery.store().inbox_range(range).await {
                Ok(Some(InboxPage { messages, index, total })) => {
                    let config = &services.config.xmpp.protocol;
                    let messages = messages.iter().map(|message| Archived::new(config, message)).collect();
                    Answer::Archive(ArchivePage::new(&query, messages, index, total))
                }
                Ok(None) => Answer::Refused(Refusal::NotFound),
                Err(error) => Answer::Refused(refusal(&error.into())),
            }
        });
    }
}

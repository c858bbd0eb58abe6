//! A device's archive is its inbox (XEP-0313): what it has not confirmed, read by the way. Reading confirms nothing.

use noroshi_protocol::xmpp::{Answer, ArchivePage, ArchivePlace, ArchiveQuery, Archived, Refusal, Request};
use noroshi_store::{InboxPage, InboxPlace, InboxRange};
use noroshi_types::NotificationId;

use super::topics::refusal;
use crate::shard::Shard;

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

impl Shard {
    pub(super) fn tell_archive(&mut self, slot: u32, query: ArchiveQuery, request: Request) {
        if self.xmpp(slot).is_some_and(|xmpp| xmpp.conversation.account().is_some()) {
            return self.tell_account_archive(slot, &query, request);
        }
        let Some(session) = self.connection(slot).and_then(|it| it.session.clone()) else { return };
        let shared = self.shared.clone();
        let domain = &shared.config.xmpp.protocol.domain;
        let Some(place) = place(&query.place) else {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::NotFound));
        };
        // Nobody else says anything to a device.
        if !query.is_with(domain) {
            let page = ArchivePage::new(&query, Vec::new(), 0, 0);
            return self.answer_xmpp(slot, request, Answer::Archive(page));
        }
        let asked = InboxRange {
            app: session.app,
            device: session.device.clone(),
            since: query.since,
            until: query.until,
            place,
            limit: query.max,
            now: self.now.wall,
        };
        let delivery = self.delivery.clone();
        self.ask(slot, request, async move {
            match delivery.store().inbox_range(asked).await {
                Ok(Some(InboxPage { messages, index, total })) => {
                    let config = &shared.config.xmpp.protocol;
                    let messages = messages.iter().map(|message| Archived::new(config, message)).collect();
                    Answer::Archive(ArchivePage::new(&query, messages, index, total))
                }
                Ok(None) => Answer::Refused(Refusal::NotFound),
                Err(error) => Answer::Refused(refusal(&error.into())),
            }
        });
    }
}

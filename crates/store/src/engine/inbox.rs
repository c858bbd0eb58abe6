//! Ranges of an inbox.

use crate::InboxPlace;
use crate::ids::{Ids, Num};

/// The numbers to read, both ends included, and the order in which to count off the limit.
pub(crate) struct Window {
    pub first: Num,
    pub last: Num,
    pub order: &'static str,
}

impl Window {
    /// Within `since` and `until`. The message that `place` names is in the inbox.
    pub(crate) fn of(place: InboxPlace, ids: &Ids, since: Num, until: Num) -> Self {
        let num = |id| ids.num(id).unwrap_or(0);
        let (first, last, order) = match place {
            InboxPlace::First => (since, until, "ASC"),
            InboxPlace::Last => (since, until, "DESC"),
            InboxPlace::After(id) => (since.max(num(id).saturating_add(1)), until, "ASC"),
            InboxPlace::Before(id) => (since, until.min(num(id) - 1), "DESC"),
        };
        Self { first, last, order }
    }
}

/// The message that has to be in the inbox: `None` if the place names none, `Some(None)` for an id that this store never
/// gave out.
pub(crate) fn anchor(place: InboxPlace, ids: &Ids) -> Option<Option<Num>> {
    match place {
        InboxPlace::First | InboxPlace::Last => None,
        InboxPlace::After(id) | InboxPlace::Before(id) => Some(ids.num(id)),
    }
}

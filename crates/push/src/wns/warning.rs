//! What Windows does not show. Pure.

use noroshi_types::PushService;

use crate::fields::Fields;
use crate::shown::Shown;

pub(super) fn warnings(fields: &Fields, shown: &Shown) -> Vec<(&'static str, &'static str)> {
    let own = fields.own.get(PushService::Wns);
    let own = own.and_then(|own| serde_json::from_str::<serde_json::Value>(own.as_str()).ok());
    if own.is_some_and(|own| own.get("payload").is_some()) {
        // It replaces the derived payload.
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut warn = |is_set: bool, field, warning| {
        if is_set {
            found.push((field, warning));
        }
    };
    warn(
        shown.relevance.is_some(),
        "notification.relevance",
        "Windows does not sort notifications by relevance",
    );
    warn(
        shown.sound.is_some(),
        "notification.sound",
        "Windows plays its own sound: set `push.wns.payload` for another",
    );
    let has_text = shown.title.is_some() || shown.body.is_some() || shown.image.is_some();
    warn(
        has_text && shown.badge.is_some(),
        "notification.badge",
        "WNS sets a badge only by a push without title, body and image",
    );
    warn(shown.thread.is_some(), "notification.thread", "Windows groups notifications by app");
    warn(shown.category.is_some(), "notification.category", "Windows has no categories");
    warn(
        shown.content_available.is_some(),
        "notification.content_available",
        "WNS wakes the app only for data without a notification",
    );
    found
}

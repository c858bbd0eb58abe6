//! What devices of Huawei Push Kit do not show. Pure.

use super::payload::BADGE_MAX;
use crate::fields::Fields;
use crate::shown::Shown;

pub(super) fn warnings(_: &Fields, shown: &Shown) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut warn = |is_set: bool, field, warning| {
        if is_set {
            found.push((field, warning));
        }
    };
    warn(shown.level.is_some(), "notification.level", "Huawei decides by the category of the notification");
    warn(
        shown.relevance.is_some(),
        "notification.relevance",
        "Huawei does not sort notifications by relevance",
    );
    let critical = shown.sound.as_ref().is_some_and(|sound| sound.is_critical);
    warn(critical, "notification.sound", "Huawei has no critical sounds");
    let badge = shown.badge_count().is_some_and(|badge| badge > BADGE_MAX);
    warn(badge, "notification.badge", "Huawei shows 99 at most");
    let has_text = shown.title.is_some() || shown.body.is_some();
    warn(
        !has_text && shown.badge.is_some(),
        "notification.badge",
        "Huawei sets a badge only with a title or a body",
    );
    warn(shown.thread.is_some(), "notification.thread", "Huawei does not group notifications by a name");
    warn(!shown.actions.is_empty(), "notification.actions", "Huawei shows no buttons");
    warn(
        shown.category.is_some(),
        "notification.category",
        "Huawei's categories differ: set `push.hms.payload.notification.category`",
    );
    warn(
        shown.content_available.is_some(),
        "notification.content_available",
        "Huawei wakes the app only for data without a notification",
    );
    warn(shown.icon.is_some(), "notification.icon", "Huawei shows the icon of the app");
    warn(shown.lang.is_some(), "notification.lang", "Huawei knows no language of a notification");
    found
}

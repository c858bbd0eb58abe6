//! What iOS does not show of a notification. Pure.
//!
//! APNs does not validate a payload, and does not report what the device ignored.

use noroshi_types::PushService;
use serde_json::Value;

use crate::fields::Fields;
use crate::shown::{Level, Shown};

pub(super) fn warnings(fields: &Fields, shown: &Shown) -> Vec<(&'static str, &'static str)> {
    let own: Value = fields
        .own
        .get(PushService::Apns)
        .and_then(|own| serde_json::from_str(own.as_str()).ok())
        .unwrap_or_default();
    if own.pointer("/headers/apns-push-type").is_some_and(|push_type| push_type != "alert") {
        // Its payload is the provider's.
        return Vec::new();
    }
    let mut found = Vec::new();
    let category =
        own.pointer("/payload/aps/category").is_some_and(Value::is_string) || shown.category.is_some();
    if !shown.actions.is_empty() && !category {
        found.push((
            "notification.actions",
            "iOS shows only the buttons of a category that the app registered: set `category`",
        ));
    }
    if shown.level == Some(Level::Critical) || shown.sound.as_ref().is_some_and(|sound| sound.is_critical) {
        let field =
            if shown.level == Some(Level::Critical) { "notification.level" } else { "notification.sound" };
        found.push((
            field,
            "iOS shows an ordinary alert unless the app has Apple's entitlement for critical alerts",
        ));
    }
    if shown.level == Some(Level::TimeSensitive) {
        found.push((
            "notification.level",
            "iOS shows an active notification unless the app has the capability for time-sensitive notifications",
        ));
    }
    if shown.icon.is_some() {
        found.push(("notification.icon", "iOS shows the app's own icon"));
    }
    if shown.lang.is_some() || shown.dir.is_some() {
        let field = if shown.lang.is_some() { "notification.lang" } else { "notification.dir" };
        found.push((field, "iOS derives language and direction from the text"));
    }
    found
}

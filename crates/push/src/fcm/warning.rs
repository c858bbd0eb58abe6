//! What no device of FCM shows, or only one of its platforms. A token does not reveal its platform. Pure.

use crate::fields::Fields;
use crate::shown::{Badge, Level, Shown};

pub(super) fn warnings(_: &Fields, shown: &Shown) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    if !shown.actions.is_empty() {
        found.push((
            "notification.actions",
            match shown.category {
                Some(_) => "Android's SDK shows no buttons: the app reads `noroshi_actions` from the data",
                None => {
                    "Android's SDK shows no buttons, iOS only those of a `category`: the app reads `noroshi_actions` from the data"
                }
            },
        ));
    }
    if shown.badge == Some(Badge::Count(0)) {
        found.push((
            "notification.badge",
            "Android cannot clear a badge: it counts the notifications on display",
        ));
    }
    let is_urgent = matches!(shown.level, Some(Level::TimeSensitive | Level::Critical));
    if is_urgent && shown.android_channel.is_none() {
        found.push((
            "notification.level",
            "Android 8 and newer use the importance of the channel: set `android_channel`",
        ));
    }
    if shown.sound.as_ref().is_some_and(|sound| sound.is_critical) {
        found.push((
            "notification.sound",
            "Android has no critical sounds: it plays the sound of the channel",
        ));
    }
    let has_text = shown.title.is_some() || shown.body.is_some() || shown.image.is_some();
    if !has_text && (shown.sound.is_some() || shown.badge.is_some()) {
        let field = if shown.sound.is_some() { "notification.sound" } else { "notification.badge" };
        found.push((field, "Android shows nothing without a title, a body or an image"));
    }
    found
}

//! The writable fields of `google.firebase.fcm.v1.SendMessageRequest`, as in its reference.

/// The type of a field.
#[derive(Debug)]
pub(super) enum Kind {
    Text,
    Flag,
    Int,
    /// 0 to 1
    Share,
    /// An object of any fields (`google.protobuf.Struct`).
    Any,
    Texts,
    TextMap,
    Duration,
    Durations,
    Time,
    /// `#rrggbb`
    Color,
    /// `^[a-zA-Z0-9-_.~%]{1,50}$`
    Label,
    One(&'static [&'static str]),
    /// Its fields, in one or more lists.
    Object(&'static [Fields]),
}

pub(super) type Fields = &'static [(&'static str, Kind)];

use Kind::{
    Any, Color, Duration, Durations, Flag, Int, Label, Object, One, Share, Text, TextMap, Texts, Time,
};

pub(super) const REQUEST: Fields = &[("validate_only", Flag), ("message", Object(&[MESSAGE]))];

const MESSAGE: Fields = &[
    ("name", Text),
    ("data", TextMap),
    ("notification", Object(&[&[("title", Text), ("body", Text), ("image", Text)]])),
    ("android", Object(&[ANDROID, ANDROID_V1])),
    ("android_v2", Object(&[ANDROID, ANDROID_V2])),
    ("webpush", Object(&[WEBPUSH])),
    ("apns", Object(&[APNS])),
    ("fcm_options", Object(&[OPTIONS])),
    ("token", Text),
    ("topic", Text),
    ("condition", Text),
];
const OPTIONS: Fields = &[("analytics_label", Label)];
/// In both versions of Android's options.
const ANDROID: Fields = &[
    ("collapse_key", Text),
    ("ttl", Duration),
    ("restricted_package_name", Text),
    ("data", TextMap),
    ("fcm_options", Object(&[OPTIONS])),
    ("direct_boot_ok", Flag),
    ("bandwidth_constrained_ok", Flag),
    ("restricted_satellite_ok", Flag),
];
const ANDROID_V1: Fields = &[
    ("priority", One(&["NORMAL", "HIGH", "normal", "high"])),
    ("notification", Object(&[NOTIFICATION, NOTIFICATION_V1])),
];
/// Without `priority`, and with its own message types.
const ANDROID_V2: Fields =
    &[("remote_notification", Object(&[REMOTE_NOTIFICATION])), ("background_sync", Object(&[]))];
const REMOTE_NOTIFICATION: Fields = &[
    ("notification", Object(&[NOTIFICATION, NOTIFICATION_V2])),
    ("mutable_content", Flag),
    ("use_as_v1_data_message", Flag),
];
/// In both versions of an Android notification.
const NOTIFICATION: Fields = &[
    ("title", Text),
    ("body", Text),
    ("icon", Text),
    ("color", Color),
    ("sound", Text),
    ("tag", Text),
    ("click_action", Text),
    ("body_loc_key", Text),
    ("body_loc_args", Texts),
    ("title_loc_key", Text),
    ("title_loc_args", Texts),
    ("channel_id", Text),
    ("ticker", Text),
    ("sticky", Flag),
    ("event_time", Time),
    ("local_only", Flag),
    ("notification_priority", One(PRIORITIES)),
    ("default_sound", Flag),
    ("default_vibrate_timings", Flag),
    ("default_light_settings", Flag),
    ("vibrate_timings", Durations),
    ("visibility", One(&["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"])),
    ("notification_count", Int),
    ("light_settings", Object(&[LIGHT])),
    ("image", Text),
];
const NOTIFICATION_V1: Fields = &[
    ("bypass_proxy_notification", Flag),
    ("proxy", One(&["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"])),
];
const NOTIFICATION_V2: Fields = &[("id", Int)];
const PRIORITIES: &[&str] = &[
    "PRIORITY_UNSPECIFIED",
    "PRIORITY_MIN",
    "PRIORITY_LOW",
    "PRIORITY_DEFAULT",
    "PRIORITY_HIGH",
    "PRIORITY_MAX",
];
const LIGHT: Fields = &[
    ("color", Object(&[&[("red", Share), ("green", Share), ("blue", Share), ("alpha", Share)]])),
    ("light_on_duration", Duration),
    ("light_off_duration", Duration),
];
const WEBPUSH: Fields = &[
    ("headers", TextMap),
    ("data", TextMap),
    ("notification", Any),
    ("fcm_options", Object(&[&[("link", Text), ("analytics_label", Label)]])),
];
const APNS: Fields = &[
    ("headers", TextMap),
    ("payload", Any),
    ("fcm_options", Object(&[&[("analytics_label", Label), ("image", Text)]])),
    ("live_activity_token", Text),
];

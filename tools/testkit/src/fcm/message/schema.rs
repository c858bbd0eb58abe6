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
    One(&'static [&'static str]),
    Object(&'static [(&'static str, Kind)]),
}

use Kind::{Any, Color, Duration, Durations, Flag, Int, Object, One, Share, Text, TextMap, Texts, Time};

pub(super) const REQUEST: &[(&str, Kind)] = &[("validate_only", Flag), ("message", Object(MESSAGE))];

const MESSAGE: &[(&str, Kind)] = &[
    ("name", Text),
    ("data", TextMap),
    ("notification", Object(&[("title", Text), ("body", Text), ("image", Text)])),
    ("android", Object(ANDROID)),
    ("android_v2", Object(ANDROID_V2)),
    ("webpush", Object(WEBPUSH)),
    ("apns", Object(APNS)),
    ("fcm_options", Object(OPTIONS)),
    ("token", Text),
    ("topic", Text),
    ("condition", Text),
];
const OPTIONS: &[(&str, Kind)] = &[("analytics_label", Text)];
const ANDROID: &[(&str, Kind)] = &[
    ("collapse_key", Text),
    ("priority", One(&["NORMAL", "HIGH", "normal", "high"])),
    ("ttl", Duration),
    ("restricted_package_name", Text),
    ("data", TextMap),
    ("notification", Object(ANDROID_NOTIFICATION)),
    ("fcm_options", Object(OPTIONS)),
    ("direct_boot_ok", Flag),
    ("bandwidth_constrained_ok", Flag),
    ("restricted_satellite_ok", Flag),
];
/// Without `priority`, and with its own message types.
const ANDROID_V2: &[(&str, Kind)] = &[
    ("collapse_key", Text),
    ("ttl", Duration),
    ("restricted_package_name", Text),
    ("data", TextMap),
    ("fcm_options", Object(OPTIONS)),
    ("direct_boot_ok", Flag),
    ("bandwidth_constrained_ok", Flag),
    ("restricted_satellite_ok", Flag),
    ("remote_notification", Object(REMOTE_NOTIFICATION)),
    ("background_sync", Object(&[])),
];
const REMOTE_NOTIFICATION: &[(&str, Kind)] = &[
    ("notification", Object(ANDROID_NOTIFICATION_V2)),
    ("mutable_content", Flag),
    ("use_as_v1_data_message", Flag),
];
const ANDROID_NOTIFICATION: &[(&str, Kind)] = &[
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
    ("light_settings", Object(LIGHT)),
    ("image", Text),
    ("bypass_proxy_notification", Flag),
    ("proxy", One(&["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"])),
];
const ANDROID_NOTIFICATION_V2: &[(&str, Kind)] = &[
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
    ("light_settings", Object(LIGHT)),
    ("image", Text),
    ("id", Int),
];
const PRIORITIES: &[&str] = &[
    "PRIORITY_UNSPECIFIED",
    "PRIORITY_MIN",
    "PRIORITY_LOW",
    "PRIORITY_DEFAULT",
    "PRIORITY_HIGH",
    "PRIORITY_MAX",
];
const LIGHT: &[(&str, Kind)] = &[
    ("color", Object(&[("red", Share), ("green", Share), ("blue", Share), ("alpha", Share)])),
    ("light_on_duration", Duration),
    ("light_off_duration", Duration),
];
const WEBPUSH: &[(&str, Kind)] = &[
    ("headers", TextMap),
    ("data", TextMap),
    ("notification", Any),
    ("fcm_options", Object(&[("link", Text), ("analytics_label", Text)])),
];
const APNS: &[(&str, Kind)] = &[
    ("headers", TextMap),
    ("payload", Any),
    ("fcm_options", Object(&[("analytics_label", Text), ("image", Text)])),
    ("live_activity_token", Text),
];

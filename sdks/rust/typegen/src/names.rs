//! Names of types, variants and fields.

/// Names of enums that several schemas have, by their values.
const ENUMS: [(&str, &str); 11] = [
    ("active,connected,stored", "When"),
    ("very-low,low,normal,high", "Urgency"),
    ("apns,fcm,webpush,webhook,hms,wns", "PushService"),
    ("apns,fcm,webpush,hms,wns,webhook", "PushService"),
    ("live,push,inbox", "PreferenceChannel"),
    ("unread,read,archived", "ItemState"),
    ("production,sandbox", "PushEnvironment"),
    ("development,production", "ChannelEnvironment"),
    ("never,fallback,always", "PushMode"),
    ("passive,active,time-sensitive,critical", "Level"),
    ("auto,ltr,rtl", "Direction"),
];

/// Better names than those of their first place.
const RENAMED: [(&str, &str); 18] = [
    ("CampaignExperiment", "CampaignResults"),
    ("MeExperiment", "Variant"),
    ("NotificationRecipientOutcome", "Outcome"),
    ("NotificationStateTargetKind", "TargetKind"),
    ("NewCampaignLane", "Lane"),
    ("TopicPermissionAction", "TopicAction"),
    ("TopicPermissionDecision", "TopicDecision"),
    ("DevicePushTokenKind", "PushTokenKind"),
    ("NamedPushTokenKind", "PushTokenKind"),
    ("QuotaQuota", "QuotaName"),
    ("AppSeriesStep", "SeriesStep"),
    ("DevicesToken", "TokenState"),
    ("DevicesSeen", "SeenState"),
    ("NotificationsTarget", "NotificationTarget"),
    ("ShownSound", "SoundChoice"),
    ("ShownBadge", "Badge"),
    ("ItemChangeAction", "ItemAction"),
    ("AppChangeJwks", "Jwks"),
];

/// Types of schemas whose name the crate uses for something else.
const SCHEMAS: [(&str, &str); 1] = [("App", "AppState")];

fn lookup(table: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == key).map(|(_, name)| *name)
}

pub(crate) fn of_enum(values: &[&str]) -> Option<&'static str> {
    lookup(&ENUMS, &values.join(","))
}

pub(crate) fn renamed(name: String) -> String {
    lookup(&RENAMED, &name).map_or(name, str::to_owned)
}

pub(crate) fn of_schema(name: &str) -> &str {
    lookup(&SCHEMAS, name).unwrap_or(name)
}

/// `very-low` becomes `VeryLow`, and the step `10s` becomes `Every10s`.
pub(crate) fn upper_camel(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let camel: String = words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect();
    match camel.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("Every{camel}"),
        false => camel,
    }
}

/// Of a field: an identifier.
pub(crate) fn field(name: &str) -> String {
    let snake: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    match snake.as_str() {
        "type" | "final" | "in" | "ref" | "use" => format!("r#{snake}"),
        _ => snake,
    }
}

/// The name of an element of a list.
pub(crate) fn singular(name: String, is_list: bool) -> String {
    if !is_list {
        return name;
    }
    if let Some(stem) = name.strip_suffix("ies") {
        return format!("{stem}y");
    }
    match name.strip_suffix('s') {
        Some(stem) if !name.ends_with("Series") => stem.to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(upper_camel("very-low"), "VeryLow");
        assert_eq!(upper_camel("$maintenance"), "Maintenance");
        assert_eq!(field("start_at"), "start_at");
        assert_eq!(field("type"), "r#type");
        assert_eq!(singular("Categories".to_owned(), true), "Category");
        assert_eq!(singular("AppSeries".to_owned(), true), "AppSeries");
        assert_eq!(singular("Steps".to_owned(), false), "Steps");
    }
}

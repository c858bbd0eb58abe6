//! Flags for the typed fields of a notification: those of daily use. Files have all fields of the API.

use serde_json::{Map, Value, json};

use crate::input::present;
use crate::output;

#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// How much it may interrupt
    #[arg(long, value_parser = ["passive", "active", "time-sensitive", "critical"])]
    level: Option<String>,
    /// Rank in the summary of iOS, 0 to 1
    #[arg(long, value_name = "SCORE")]
    relevance: Option<f64>,
    /// default, or a sound file of the app
    #[arg(long, value_name = "NAME")]
    sound: Option<String>,
    /// Number on the app's icon; 0 clears it, "unread" counts the unread items of each user
    #[arg(long, value_name = "COUNT|unread", value_parser = badge)]
    badge: Option<Value>,
    /// Groups notifications
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    /// A button: its id, its title, and optionally the URL that it opens (repeatable)
    #[arg(long = "action", value_name = "ID=TITLE[=URL]", value_parser = action)]
    actions: Vec<Value>,
    /// Category of the app on iOS, which decides about its buttons there
    #[arg(long, value_name = "CATEGORY")]
    ios_category: Option<String>,
    /// URL of an icon, for browsers
    #[arg(long, value_name = "URL")]
    icon: Option<String>,
    /// Notification channel of the app on Android
    #[arg(long, value_name = "CHANNEL")]
    android_channel: Option<String>,
    /// Label in FCM's statistics
    #[arg(long, value_name = "LABEL")]
    fcm_analytics_label: Option<String>,
    /// The app may change it before the user sees it
    #[arg(long)]
    mutable: bool,
    /// Also wake the app on iOS
    #[arg(long)]
    content_available: bool,
}

fn badge(text: &str) -> Result<Value, String> {
    match text {
        "unread" => Ok(text.into()),
        _ => text.parse::<u32>().map(Value::from).map_err(|_| "a whole number, or \"unread\"".to_owned()),
    }
}

fn action(text: &str) -> Result<Value, String> {
    let parts: Vec<&str> = text.splitn(3, '=').collect();
    match parts[..] {
        [id, title] => Ok(json!({"id": id, "title": title})),
        [id, title, url] => Ok(json!({"id": id, "title": title, "url": url})),
        _ => Err("ID=TITLE or ID=TITLE=URL".to_owned()),
    }
}

impl Flags {
    /// The fields that are given.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = present(&[
            ("level", &self.level),
            ("sound", &self.sound),
            ("thread", &self.thread),
            ("category", &self.ios_category),
            ("icon", &self.icon),
            ("android_channel", &self.android_channel),
            ("fcm_analytics_label", &self.fcm_analytics_label),
        ]);
        let others = [
            ("relevance", self.relevance.map(Value::from)),
            ("badge", self.badge.clone()),
            ("actions", (!self.actions.is_empty()).then(|| json!(self.actions))),
            ("mutable", self.mutable.then_some(Value::Bool(true))),
            ("content_available", self.content_available.then_some(Value::Bool(true))),
        ];
        fields.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        fields
    }
}

/// Prints the warnings of an answer to standard error.
pub(super) fn print_warnings(answer: &Value) {
    for warning in output::entries(answer, "warnings") {
        let part = |name: &str| output::clean(output::text(warning, name));
        eprintln!("warning: {}: {}: {}", part("service"), part("field"), part("warning"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_a_number_or_a_word() {
        assert_eq!((badge("3"), badge("unread")), (Ok(json!(3)), Ok(json!("unread"))));
        assert!(badge("all").is_err() && badge("-1").is_err());
    }

    #[test]
    fn an_action_has_an_id_a_title_and_perhaps_a_url() {
        assert_eq!(action("yes=Yes"), Ok(json!({"id": "yes", "title": "Yes"})));
        let with_url = json!({"id": "o", "title": "Open", "url": "https://a/?b=c"});
        assert_eq!(action("o=Open=https://a/?b=c"), Ok(with_url));
        assert!(action("yes").is_err());
    }
}

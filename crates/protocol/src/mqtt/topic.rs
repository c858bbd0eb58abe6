//! Topic names and topic filters (§4.7), and their mapping to Noroshi's topics.
//!
//! | MQTT | here |
//! |---|---|
//! | a name that is a Noroshi topic (1 to 255 bytes unless the operator allows more, no control characters, not `$…`) | that topic, byte by byte; `/` is an ordinary character there |
//! | `$noroshi/inbox` | messages to the device, its user, a condition or everyone |
//! | `$noroshi/presence` | publish `active` or `idle` |
//! | `$noroshi/token` | publish a token to renew the connection's token |
//! | `$…` that is not `$noroshi`, `$SYS`, `$share`, `$queue`, `$everyone`, `$maintenance` | that topic, if the app has a topic rule for it |
//! | `$share/NAME/FILTER` | subscribe only: a shared subscription to the filter's matches (§4.8.2) |
//! | any other name | cannot be published to; a filter that matches only such names is rejected |
//!
//! `TopicFilter` implements levels, wildcards and the rule that a leading wildcard matches no `$` name
//! (§4.7.2). Matching takes time linear in both texts, since `+` is exactly one level and `#` can only be
//! last.

use noroshi_types::Topic;
use noroshi_types::topic::{fits, is_server_topic};

/// The topic of messages to the device itself.
pub const INBOX_TOPIC: &str = "$noroshi/inbox";
pub const PRESENCE_TOPIC: &str = "$noroshi/presence";
pub const TOKEN_TOPIC: &str = "$noroshi/token";

const SHARE: &str = "$share/";
/// Limit of the name of a shared subscription; the specification sets none.
pub(super) const SHARE_NAME_BYTES_MAX: usize = 255;

/// Whether a text is a valid topic name: not empty and without wildcards (§4.7.1, §4.7.3).
pub fn is_topic_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['+', '#'])
}

/// The topic that a client may publish to under this name, if its app permits.
pub(super) fn published_topic(name: &str) -> Result<Topic, UnpublishableName> {
    match is_server_topic(name) {
        true => Err(UnpublishableName::Reserved),
        false => Topic::parse_any(name).map_err(|_| UnpublishableName::BadName),
    }
}

/// Why a name cannot be published to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnpublishableName {
    Reserved,
    BadName,
}

/// Why a topic filter is rejected; determines the reason code in SUBACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("a wildcard is not a whole level, or `#` is not the last level (§4.7.1)")]
    Wildcard,
    #[error(
        "the filter matches no topic: it is too long, contains control characters, or starts with a reserved name"
    )]
    Unmatchable,
    #[error(
        "a shared subscription must be `$share/`, a name without `/`, `+` and `#`, `/` and a topic filter (§4.8.2)"
    )]
    Share,
}

/// A topic filter that can match a topic, at most as long as a topic; or a shared subscription to one, with a
/// name of at most 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicFilter(Box<str>);

impl TopicFilter {
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if is_shared(text) {
            return Self::parse_share(text);
        }
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            let wild = level.contains(['+', '#']);
            if wild && level != "+" && (level != "#" || levels.peek().is_some()) {
                return Err(FilterError::Wildcard);
            }
        }
        let matchable = match is_topic_name(text) {
            true => text == INBOX_TOPIC || Topic::parse_any(text).is_ok(),
            // Longer ones could only match through `#`, as a shorter filter does.
            false => {
                let sayable = fits(text) && !text.chars().any(char::is_control);
                // The inbox is the only reserved name that clients receive; `$SYS` has no messages.
                sayable && (!is_server_topic(text) || filter_matches(text, INBOX_TOPIC))
            }
        };
        match matchable {
            true => Ok(Self(text.into())),
            false => Err(FilterError::Unmatchable),
        }
    }

    fn parse_share(text: &str) -> Result<Self, FilterError> {
        let (name, filter) = split_share(text).ok_or(FilterError::Share)?;
        let is_name = is_topic_name(name) && name.len() <= SHARE_NAME_BYTES_MAX;
        if !is_name || name.chars().any(char::is_control) || filter.is_empty() {
            return Err(FilterError::Share);
        }
        // Each device has an inbox of its own, and shared subscriptions cannot be nested.
        if is_server_topic(filter) {
            return Err(FilterError::Unmatchable);
        }
        Self::parse(filter)?;
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Share name and filter of a shared subscription.
    pub fn share(&self) -> Option<(&str, &str)> {
        split_share(&self.0)
    }

    /// The filter without the share prefix, to which topic rules apply.
    pub fn plain(&self) -> &str {
        self.share().map_or(&self.0, |(_, filter)| filter)
    }

    /// Whether it matches topics that it does not name. A shared subscription does not: its messages are sent
    /// to the device.
    pub fn has_wildcards(&self) -> bool {
        self.share().is_none() && !is_topic_name(&self.0)
    }

    /// The only topic that it matches; `None` if it has wildcards, is shared, or is the inbox.
    pub fn topic(&self) -> Option<Topic> {
        Topic::parse_any(&self.0).ok()
    }

    pub fn matches(&self, name: &str) -> bool {
        self.share().is_none() && filter_matches(&self.0, name)
    }

    pub fn matches_inbox(&self) -> bool {
        self.matches(INBOX_TOPIC)
    }
}

/// §4.8.2; the text after `$share/` is not checked.
pub(super) fn is_shared(filter: &str) -> bool {
    filter.starts_with(SHARE) || filter == "$share"
}

/// Share name and filter of `$share/NAME/FILTER`, unchecked.
fn split_share(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(SHARE)?.split_once('/')
}

/// The filter that subscribes to a share.
pub fn share_filter(name: &str, filter: &str) -> String {
    format!("{SHARE}{name}/{filter}")
}

/// Whether a valid filter matches a topic name (§4.7).
pub fn filter_matches(filter: &str, name: &str) -> bool {
    // [MQTT-4.7.2-1]
    if name.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = name.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            // Also the parent level: `a/#` matches `a` (§4.7.1.2).
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, name: &str, expected: bool) {
        assert_eq!(filter_matches(filter, name), expected, "{filter} {name}");
    }

    /// The examples of §4.7.1.2, §4.7.1.3, §4.7.2 and §4.7.3.
    #[test]
    fn examples_of_the_specification() {
        for name in
            ["sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon"]
        {
            check("sport/tennis/player1/#", name, true);
        }
        check("sport/#", "sport", true);
        check("sport/tennis/+", "sport/tennis/player1", true);
        check("sport/tennis/+", "sport/tennis/player1/ranking", false);
        check("sport/+", "sport", false);
        check("sport/+", "sport/", true);
        check("+/+", "/finance", true);
        check("/+", "/finance", true);
        check("+", "/finance", false);
        check("#", "$SYS/x", false);
        check("+/monitor/Clients", "$SYS/monitor/Clients", false);
        check("$SYS/#", "$SYS/x", true);
        check("$SYS/monitor/+", "$SYS/monitor/Clients", true);
        check("ACCOUNTS", "Accounts", false);
        check("/finance", "finance", false);
        check("Accounts payable", "Accounts payable", true);
        check("#", "a", true);
        check("+/tennis/#", "a/tennis", true);
        check("a/b", "a/b/c", false);
        check("a/b/c", "a/b", false);
    }

    #[test]
    fn filters_are_checked() {
        let refused = |text: &str| TopicFilter::parse(text).err();
        for good in
            ["sport/tennis#2".trim_end_matches("#2"), "+", "#", "sport/+/player1", "+/tennis/#", "/", "a//b"]
        {
            assert_eq!(refused(good), None, "{good}");
        }
        for bad in ["sport/tennis#", "sport/tennis/#/ranking", "sport+", "#/a", "a/b+/c", "##", "++"] {
            assert_eq!(refused(bad), Some(FilterError::Wildcard), "{bad}");
        }
        for bad in ["$SYS/broker", "a\tb", "+/\u{85}", &"x".repeat(256), &format!("{}/#", "x".repeat(254))] {
            assert_eq!(refused(bad), Some(FilterError::Unmatchable), "{bad}");
        }
        for shared in ["$share/g/t", "$share/g/t/+/#", "$share/狼煙//", "$share/g/$app/t"] {
            assert_eq!(refused(shared), None, "{shared}");
        }
        let long = format!("$share/{}/t", "g".repeat(256));
        for bad in ["$share//t", "$share/g", "$share/g/", "$share", "$share/+/t", "$share/g#/t", &long] {
            assert_eq!(refused(bad), Some(FilterError::Share), "{bad}");
        }
        assert_eq!(refused("$share/g/a#"), Some(FilterError::Wildcard));
        for bad in ["$share/g/$noroshi/inbox", "$share/g/$share/h/t", "$share/g/$SYS/#", "$share/g/a\tb"] {
            assert_eq!(refused(bad), Some(FilterError::Unmatchable), "{bad}");
        }
        // Names that a rule may permit, and names that none can.
        for open in ["$shared", "$app/#", "$app/+/a"] {
            assert_eq!(refused(open), None, "{open}");
        }
        for closed in ["$SYS/#", "$queue/t", "$everyone", "$noroshi/other"] {
            assert_eq!(refused(closed), Some(FilterError::Unmatchable), "{closed}");
        }
    }

    #[test]
    fn shared_filter_matches_no_topic() {
        let filter = TopicFilter::parse("$share/g/a/#").unwrap();
        assert_eq!((filter.share(), filter.plain()), (Some(("g", "a/#")), "a/#"));
        assert!(!filter.has_wildcards() && filter.topic().is_none());
        assert!(!filter.matches("a/b") && !filter.matches("$share/g/a/b") && !filter.matches_inbox());
        assert_eq!(share_filter("g", "a/#"), filter.as_str());
        assert_eq!(TopicFilter::parse("a").unwrap().plain(), "a");
    }

    #[test]
    fn inbox_is_subscribed_by_name() {
        let filter = |text: &str| TopicFilter::parse(text).unwrap();
        for inbox in [INBOX_TOPIC, "$noroshi/+", "$noroshi/#"] {
            assert!(filter(inbox).matches_inbox() && filter(inbox).topic().is_none(), "{inbox}");
        }
        for other in ["#", "+/inbox", "+/#"] {
            assert!(!filter(other).matches_inbox(), "{other}");
        }
        assert_eq!(filter("a/b").topic(), Topic::parse("a/b").ok());
        assert!(filter("a/+").topic().is_none());
    }
}

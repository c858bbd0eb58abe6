//! Topic names and topic filters (§4.7), and how they stand to Noroshi's topics.
//!
//! | MQTT | here |
//! |---|---|
//! | a name that is a Noroshi topic (1 to 255 bytes unless the operator allows more, no control characters, not `$…`) | that topic, byte by byte; `/` is a character like others there |
//! | `$noroshi/inbox` | what is sent to the device, its user, a condition or everyone |
//! | `$noroshi/presence` | published to: `active` or `idle` |
//! | `$noroshi/token` | published to: renews the connection's token |
//! | `$…` that is not `$noroshi`, `$SYS`, `$share`, `$queue`, `$everyone`, `$maintenance` | that topic, where the app has a topic rule for it |
//! | `$share/NAME/FILTER` | subscribed to only: a share of what the filter matches (§4.8.2) |
//! | any other name | cannot be published to, and a filter that matches only such names is refused |
//!
//! Levels, wildcards and the rule that a leading wildcard matches no `$` name (§4.7.2) are the filter's:
//! matching takes time linear in the two texts, since `+` is exactly one level and `#` can only be last.

use noroshi_types::Topic;
use noroshi_types::topic::{fits, is_services_own};

/// Where a device hears what is its own.
pub const INBOX_TOPIC: &str = "$noroshi/inbox";
pub const PRESENCE_TOPIC: &str = "$noroshi/presence";
pub const TOKEN_TOPIC: &str = "$noroshi/token";

const SHARE: &str = "$share/";
/// Of the name of a shared subscription; the specification has no limit of its own.
pub(super) const SHARE_NAME_BYTES_MAX: usize = 255;

/// Whether a text can name a topic: not empty and without wildcards (§4.7.1, §4.7.3).
pub fn is_topic_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['+', '#'])
}

/// The topic that a client may publish to by this name, if its app lets it.
pub(super) fn published_topic(name: &str) -> Result<Topic, NotPublished> {
    match is_services_own(name) {
        true => Err(NotPublished::ServicesOwn),
        false => Topic::parse_any(name).map_err(|_| NotPublished::BadName),
    }
}

/// Why nothing can be published to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotPublished {
    ServicesOwn,
    BadName,
}

/// Why a topic filter is refused; the reason code of its SUBACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("a wildcard that is not a level of its own, or `#` that is not the last (§4.7.1)")]
    Wildcard,
    #[error(
        "no topic here can match it: it is too long, has control characters, or begins with a name of the service"
    )]
    Unmatchable,
    #[error(
        "a shared subscription is `$share/`, a name without `/`, `+` and `#`, `/` and a topic filter (§4.8.2)"
    )]
    Share,
}

/// A topic filter that can match something here, as long as a topic at most; or a share of one, with a name of at most
/// 255 bytes.
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
            // Longer ones could match by `#`, which a shorter one says as well.
            false => {
                let sayable = fits(text) && !text.chars().any(char::is_control);
                // Of the service's own names there is the inbox to hear, and nothing on `$SYS`.
                sayable && (!is_services_own(text) || filter_matches(text, INBOX_TOPIC))
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
        // Everybody has an inbox of their own, and a share of a share is nothing.
        if is_services_own(filter) {
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

    /// The filter itself, without the share: what topic rules are about.
    pub fn plain(&self) -> &str {
        self.share().map_or(&self.0, |(_, filter)| filter)
    }

    /// Whether it hears topics that it does not name. A share hears none: its messages are sent to the device.
    pub fn has_wildcards(&self) -> bool {
        self.share().is_none() && !is_topic_name(&self.0)
    }

    /// The one topic it matches; `None` where it has wildcards, is a share or the inbox.
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

/// §4.8.2; what stands behind `$share/` is not looked at.
pub(super) fn is_shared(filter: &str) -> bool {
    filter.starts_with(SHARE) || filter == "$share"
}

/// Share name and filter of `$share/NAME/FILTER`; neither is looked at.
fn split_share(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(SHARE)?.split_once('/')
}

/// What subscribes to a share.
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
            // Also the level above: `a/#` matches `a` (§4.7.1.2).
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
    fn the_specifications_examples() {
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
        // Names that a rule may open, and those that none can.
        for open in ["$shared", "$app/#", "$app/+/a"] {
            assert_eq!(refused(open), None, "{open}");
        }
        for closed in ["$SYS/#", "$queue/t", "$everyone", "$noroshi/other"] {
            assert_eq!(refused(closed), Some(FilterError::Unmatchable), "{closed}");
        }
    }

    #[test]
    fn a_share_matches_nothing_by_itself() {
        let filter = TopicFilter::parse("$share/g/a/#").unwrap();
        assert_eq!((filter.share(), filter.plain()), (Some(("g", "a/#")), "a/#"));
        assert!(!filter.has_wildcards() && filter.topic().is_none());
        assert!(!filter.matches("a/b") && !filter.matches("$share/g/a/b") && !filter.matches_inbox());
        assert_eq!(share_filter("g", "a/#"), filter.as_str());
        assert_eq!(TopicFilter::parse("a").unwrap().plain(), "a");
    }

    #[test]
    fn the_inbox_is_asked_for_by_name() {
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

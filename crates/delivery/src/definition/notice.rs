//! A maintenance notice: a time window in which something does not work, and the text for it.
//!
//! Owns the rules, the stored form, and the state at a moment. [`crate::first_call`] shows and publishes notices. Pure.

use std::collections::BTreeMap;

use noroshi_types::{Invalid, JsonText, Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::template;
use crate::texts::{Texts, check_locales};

/// The request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Shown as `announced` from this time on; `None`: at once.
    pub announced_at: Option<Timestamp>,
    pub starts_at: Timestamp,
    /// Not shown from this time on.
    pub ends_at: Timestamp,
    pub text: Texts,
    /// By language tag; a missing part is taken from the notice.
    pub locales: BTreeMap<String, Texts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeState {
    /// Before the window.
    Announced,
    Active,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    announced_at_ms: Option<u64>,
    starts_at_ms: u64,
    ends_at_ms: u64,
    text: Texts,
    #[serde(default)]
    locales: BTreeMap<String, Texts>,
}

impl NoticeState {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeState::Announced => "announced",
            NoticeState::Active => "active",
        }
    }
}

impl Notice {
    /// Checks the rules that span fields. The error names field and rule.
    pub fn check(self) -> Result<Self, Invalid> {
        let refuse = |rule: String| Err(Invalid::new(rule));
        if self.ends_at <= self.starts_at {
            return refuse("ends_at: after starts_at".to_owned());
        }
        if self.announced_at.is_some_and(|announced_at| announced_at > self.starts_at) {
            return refuse("announced_at: not after starts_at".to_owned());
        }
        if self.text.is_empty() {
            return refuse("notification: a notice has `notification`, `data` or both".to_owned());
        }
        check_locales(&self.locales)?;
        let too_large = |text: &Texts| text.parts().any(|part| part.len() > limits::NOTICE_BYTES_MAX);
        let any_too_large = self.locales.values().chain([&self.text]).any(too_large);
        match any_too_large {
            true => refuse(format!(
                "notification: it and data are at most {} bytes each",
                limits::NOTICE_BYTES_MAX
            )),
            false => Ok(self),
        }
    }

    /// `None` while it is not shown.
    pub fn state(&self, now: Timestamp) -> Option<NoticeState> {
        if now >= self.ends_at || self.announced_at.is_some_and(|announced_at| now < announced_at) {
            return None;
        }
        Some(if now < self.starts_at { NoticeState::Announced } else { NoticeState::Active })
    }

    /// The text for a device of this language.
    pub fn text(&self, locale: Option<&str>) -> Texts {
        let own = template::lookup(&self.locales, locale);
        own.map_or_else(|| self.text.clone(), |(_, own)| own.or(&self.text))
    }

    pub fn to_json(&self) -> JsonText {
        let stored = Stored {
            announced_at_ms: self.announced_at.map(|at| at.0),
            starts_at_ms: self.starts_at.0,
            ends_at_ms: self.ends_at.0,
            text: self.text.clone(),
            locales: self.locales.clone(),
        };
        // Cannot fail: only texts, numbers and values that are already JSON.
        JsonText::from_valid(serde_json::to_string(&stored).unwrap_or_default())
    }

    /// Parses what [`Notice::to_json`] wrote.
    pub fn from_json(json: &JsonText) -> Result<Self, Invalid> {
        let stored: Stored = serde_json::from_str(json.as_str())
            .map_err(|error| Invalid::new(format!("a stored notice cannot be read: {error}")))?;
        Ok(Self {
            announced_at: stored.announced_at_ms.map(Timestamp),
            starts_at: Timestamp(stored.starts_at_ms),
            ends_at: Timestamp(stored.ends_at_ms),
            text: stored.text,
            locales: stored.locales,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(notification: &str, data: Option<&str>) -> Texts {
        Texts { notification: Some(JsonText::from_valid(notification)), data: data.map(JsonText::from_valid) }
    }

    fn notice() -> Notice {
        Notice {
            announced_at: Some(Timestamp(10)),
            starts_at: Timestamp(20),
            ends_at: Timestamp(30),
            text: words(r#"{"title":"Payments"}"#, Some("[1]")),
            locales: BTreeMap::from([("ja".to_owned(), words(r#"{"title":"決済"}"#, None))]),
        }
    }

    #[test]
    fn a_notice_is_announced_then_active_then_over() {
        let states = [9, 10, 19, 20, 29, 30].map(|now| notice().state(Timestamp(now)));
        let (announced, active) = (Some(NoticeState::Announced), Some(NoticeState::Active));
        assert_eq!(states, [None, announced, announced, active, active, None]);
        assert_eq!(Notice { announced_at: None, ..notice() }.state(Timestamp(0)), announced);
    }

    #[test]
    fn a_translation_contains_only_what_differs() {
        let text = notice().text(Some("ja_JP"));
        let text_of = |text: &Option<JsonText>| text.as_ref().map(|text| text.as_str().to_owned());
        assert_eq!(text_of(&text.notification).as_deref(), Some(r#"{"title":"決済"}"#));
        assert_eq!(text_of(&text.data).as_deref(), Some("[1]"));
        assert_eq!(notice().text(Some("en")), notice().text);
        assert_eq!(notice().text(None), notice().text);
    }

    #[test]
    fn a_stored_notice_reads_back_and_a_contradictory_one_is_refused() {
        assert_eq!(Notice::from_json(&notice().to_json()), Ok(notice()));
        let check = |notice: Notice, part: &str| {
            let refused = notice.check().expect_err(part);
            assert!(refused.0.starts_with(part), "{part}: {refused}");
        };
        assert!(notice().check().is_ok());
        check(Notice { ends_at: Timestamp(20), ..notice() }, "ends_at");
        check(Notice { announced_at: Some(Timestamp(21)), ..notice() }, "announced_at");
        check(Notice { text: Texts::default(), ..notice() }, "notification");
        let long = format!("\"{}\"", "x".repeat(limits::NOTICE_BYTES_MAX));
        check(Notice { text: words(&long, None), ..notice() }, "notification");
    }
}

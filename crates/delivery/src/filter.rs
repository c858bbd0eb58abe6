//! Selects devices of an audience by their attributes. Used by campaigns and experiments.
//!
//! Pure: the store reads the attributes, this decides. A device must match every non-empty list; a device without the
//! attribute does not match.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use noroshi_store::Attributes;
use noroshi_types::{Invalid, limits};
use serde::{Deserialize, Serialize};

/// Values in one list, and tags in one filter: a filter is compared with every device of an audience.
pub const VALUES_MAX: usize = 100;

/// Serialized as the store keeps it, within a campaign or an experiment. Empty: every device matches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Filter {
    pub platforms: Vec<String>,
    /// Language ranges: `ja` matches `ja` and `ja-JP` (RFC 4647 §3.3.1).
    pub locales: Vec<String>,
    #[serde(flatten)]
    pub app_version: VersionRange,
    /// Each of these tags must have one of its values.
    pub tags: BTreeMap<String, Vec<String>>,
    /// IANA names, compared literally.
    pub timezones: Vec<String>,
}

/// Both ends are included.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VersionRange {
    #[serde(rename = "version_min")]
    pub min: Option<String>,
    #[serde(rename = "version_max")]
    pub max: Option<String>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the filter. The error names field and rule.
    pub fn check(&self) -> Result<(), Invalid> {
        let lists =
            [("platforms", &self.platforms), ("locales", &self.locales), ("timezones", &self.timezones)];
        for (field, values) in lists {
            check_list(field, values)?;
        }
        if self.tags.len() > limits::TAGS_MAX {
            return Err(Invalid::new(format!("tags: at most {} are named", limits::TAGS_MAX)));
        }
        for (tag, values) in &self.tags {
            if tag.is_empty() || tag.len() > limits::TAG_BYTES_MAX || values.is_empty() {
                return Err(Invalid::new("tags: a tag has a name and at least one value"));
            }
            check_list("tags", values)?;
        }
        for (field, version) in
            [("app_version.min", &self.app_version.min), ("app_version.max", &self.app_version.max)]
        {
            if version.as_ref().is_some_and(|version| numbers(version).is_none()) {
                return Err(Invalid::new(format!(
                    "{field}: a version begins with a number, such as \"1.12.0\""
                )));
            }
        }
        Ok(())
    }

    pub fn matches(&self, device: &Attributes) -> bool {
        let says = |values: &[String], said: Option<&str>, same: fn(&str, &str) -> bool| {
            values.is_empty() || said.is_some_and(|said| values.iter().any(|value| same(value, said)))
        };
        says(&self.platforms, device.platform.as_deref(), |value, said| value == said)
            && says(&self.locales, device.locale.as_deref(), in_range)
            && says(&self.timezones, device.timezone.as_deref(), |value, said| value == said)
            && self.app_version.holds(device.app_version.as_deref())
            && self.tags.iter().all(|(tag, values)| {
                device.tags.get(tag).is_some_and(|said| values.iter().any(|value| value == said))
            })
    }
}

impl VersionRange {
    fn holds(&self, version: Option<&str>) -> bool {
        if self.min.is_none() && self.max.is_none() {
            return true;
        }
        let Some(version) = version.and_then(numbers) else { return false };
        let compared = |bound: &Option<String>| {
            bound.as_deref().and_then(numbers).map(|bound| compare(&version, &bound))
        };
        compared(&self.min).is_none_or(Ordering::is_ge) && compared(&self.max).is_none_or(Ordering::is_le)
    }
}

fn check_list(field: &'static str, values: &[String]) -> Result<(), Invalid> {
    let fits = values.len() <= VALUES_MAX
        && values.iter().all(|value| !value.is_empty() && value.len() <= limits::TAG_BYTES_MAX);
    match fits {
        true => Ok(()),
        false => Err(Invalid::new(format!(
            "{field}: at most {VALUES_MAX} values of 1 to {} bytes each",
            limits::TAG_BYTES_MAX
        ))),
    }
}

/// RFC 4647 §3.3.1: equal, or a prefix that ends before a hyphen. Devices also write `ja_JP`.
fn in_range(range: &str, tag: &str) -> bool {
    let same = |a: u8, b: u8| a.eq_ignore_ascii_case(&b) || (is_separator(a) && is_separator(b));
    let (range, tag) = (range.as_bytes(), tag.as_bytes());
    range == b"*"
        || tag.len() >= range.len()
            && range.iter().zip(tag).all(|(a, b)| same(*a, *b))
            && tag.get(range.len()).is_none_or(|next| is_separator(*next))
}

fn is_separator(byte: u8) -> bool {
    byte == b'-' || byte == b'_'
}

/// The dotted numbers at the start of a version: `1.12.0-beta3` is 1.12.0. `None` without any.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let parts: Option<Vec<u64>> =
        version[..end].trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
    parts.filter(|parts| !parts.is_empty())
}

/// Compares part by part as numbers. Missing parts are zero: 1.2 is 1.2.0, and 1.10 is above 1.9.
fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let part = |parts: &[u64], at: usize| parts.get(at).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|at| part(a, at).cmp(&part(b, at)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Attributes {
        Attributes {
            platform: Some("ios".into()),
            locale: Some("ja-JP".into()),
            timezone: Some("Asia/Tokyo".into()),
            app_version: Some("1.10.2".into()),
            tags: BTreeMap::from([("plan".to_owned(), "paid".to_owned())]),
        }
    }

    #[test]
    fn a_device_matches_if_it_matches_every_list() {
        let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let check = |name: &str, filter: Filter, expected: bool| {
            assert_eq!(filter.matches(&device()), expected, "{name}");
        };
        let none = Filter::default;
        check("empty", none(), true);
        check("platform", Filter { platforms: list(&["android", "ios"]), ..none() }, true);
        check("other platform", Filter { platforms: list(&["android"]), ..none() }, false);
        check("language", Filter { locales: list(&["ja"]), ..none() }, true);
        check("other case", Filter { locales: list(&["JA-jp"]), ..none() }, true);
        check("longer than said", Filter { locales: list(&["ja-JP-x"]), ..none() }, false);
        check("timezone", Filter { timezones: list(&["Asia/Tokyo"]), ..none() }, true);
        check(
            "tag",
            Filter { tags: BTreeMap::from([("plan".into(), list(&["free", "paid"]))]), ..none() },
            true,
        );
        check("other tag", Filter { tags: BTreeMap::from([("team".into(), list(&["a"]))]), ..none() }, false);
        let both = Filter { platforms: list(&["ios"]), locales: list(&["en"]), ..none() };
        check("one of two", both, false);
        let silent = Attributes::default();
        assert!(!Filter { platforms: list(&["ios"]), ..none() }.matches(&silent));
        assert!(none().matches(&silent));
    }

    #[test]
    fn a_language_range_ends_at_a_subtag() {
        for (range, tag, expected) in [
            ("ja", "ja", true),
            ("ja", "ja_JP", true),
            ("ja", "jam", false),
            ("zh-Hant", "zh-Hant-TW", true),
            ("zh-Hant", "zh-Hans", false),
            ("zh-Hant", "zh", false),
            ("*", "en", true),
        ] {
            assert_eq!(in_range(range, tag), expected, "{range} {tag}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let check = |min: Option<&str>, max: Option<&str>, version: Option<&str>, expected: bool| {
            let range = VersionRange { min: min.map(Into::into), max: max.map(Into::into) };
            assert_eq!(range.holds(version), expected, "{range:?} {version:?}");
        };
        check(Some("1.9"), None, Some("1.10"), true);
        check(Some("1.2"), Some("2.0"), Some("2.0.0"), true);
        check(Some("1.2"), Some("2.0"), Some("2.0.1"), false);
        check(Some("1.2"), None, Some("1.2.0-beta3"), true);
        check(Some("1.2"), None, Some("1.1.99"), false);
        check(None, Some("1"), Some("beta"), false);
        check(None, Some("1"), None, false);
        check(None, None, None, true);
        check(Some("20240101"), None, Some("20231231"), false);
    }

    #[test]
    fn a_contradictory_filter_is_refused() {
        let filter = |min: &str| Filter {
            app_version: VersionRange { min: Some(min.into()), max: None },
            ..Filter::default()
        };
        assert!(filter("1.2").check().is_ok());
        assert!(filter("v1").check().is_err_and(|invalid| invalid.0.contains("app_version.min")));
        assert!(Filter { platforms: vec![String::new()], ..Filter::default() }.check().is_err());
        assert!(Filter { platforms: vec!["x".into(); VALUES_MAX + 1], ..Filter::default() }.check().is_err());
        assert!(
            Filter { tags: BTreeMap::from([("a".into(), vec![])]), ..Filter::default() }.check().is_err()
        );
    }
}

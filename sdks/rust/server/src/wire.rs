//! Times and durations as the API writes them.

/// RFC 3339 in UTC.
pub(crate) mod timestamp {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn text(time: SystemTime) -> String {
        humantime::format_rfc3339_millis(time).to_string()
    }

    pub(crate) fn parse(text: &str) -> Option<SystemTime> {
        humantime::parse_rfc3339(text).ok()
    }

    /// For an answer without the field.
    pub(crate) fn epoch() -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    #[allow(dead_code, reason = "depends on the generated types")]
    pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is not a time")))
    }

    pub(crate) mod option {
        use std::time::SystemTime;

        use serde::{Deserialize, Deserializer, Serializer, de};

        #[allow(clippy::ref_option, reason = "serde calls it so")]
        #[allow(dead_code, reason = "depends on the generated types")]
        pub(crate) fn serialize<S: Serializer>(
            time: &Option<SystemTime>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match time {
                Some(time) => super::serialize(time, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<SystemTime>, D::Error> {
            let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
            let time = super::parse(&text);
            time.map(Some).ok_or_else(|| de::Error::custom(format!("{text:?} is not a time")))
        }
    }
}

/// A number and one of the units ms, s, m, h and d; a number without a unit has seconds.
pub(crate) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

    pub(crate) fn text(duration: Duration) -> String {
        match duration.subsec_nanos() {
            0 => format!("{}s", duration.as_secs()),
            _ => format!("{}ms", duration.as_millis()),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Duration> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = if unit.is_empty() { "s" } else { unit };
        let (_, ms) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(ms).map(Duration::from_millis)
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Seconds(u64),
        Text(String),
    }

    impl Form {
        fn duration<E: de::Error>(self) -> Result<Duration, E> {
            match self {
                Self::Seconds(seconds) => Ok(Duration::from_secs(seconds)),
                Self::Text(text) => {
                    parse(&text).ok_or_else(|| E::custom(format!("{text:?} is not a duration")))
                }
            }
        }
    }

    pub(crate) mod option {
        use std::time::Duration;

        use super::{Deserialize, Deserializer, Form, Serialize, Serializer};

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Duration>, D::Error> {
            Option::<Form>::deserialize(deserializer)?.map(Form::duration).transpose()
        }

        #[allow(clippy::ref_option, reason = "serde calls it so")]
        pub(crate) fn serialize<S: Serializer>(
            duration: &Option<Duration>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            duration.map(super::text).serialize(serializer)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn durations() {
        let check = |duration, text| assert_eq!(super::duration::text(duration), text);
        check(Duration::from_secs(90), "90s");
        check(Duration::from_micros(1_500_900), "1500ms");
        check(Duration::ZERO, "0s");
        let check = |text, seconds: Option<u64>| {
            assert_eq!(super::duration::parse(text), seconds.map(Duration::from_secs), "{text}");
        };
        check("90", Some(90));
        check("90s", Some(90));
        check("5000ms", Some(5));
        check("2h", Some(7_200));
        check("1d", Some(86_400));
        check("1w", None);
        check("", None);
        check("99999999999999999999d", None);
    }

    #[test]
    fn times() {
        let time = super::timestamp::parse("2026-01-02T03:04:05.678Z").expect("a time");
        assert_eq!(super::timestamp::text(time), "2026-01-02T03:04:05.678Z");
        assert_eq!(super::timestamp::parse("yesterday"), None);
    }
}

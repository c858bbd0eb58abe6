//! Maintenance notices (`PUT /v1/apps/{app}/notices/{name}`).

use noroshi_delivery::Texts;
use noroshi_delivery::campaign::spec::LOCALES_MAX;
use noroshi_delivery::definition::Notice;
use noroshi_types::limits;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::campaign::{StartAt, placed};
use super::device::Locale;
use super::notification::{carried, shown};
use crate::error::Problem;
use crate::json::{self, Text, TextMap};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    announced_at: Option<Text<StartAt>>,
    starts_at: Text<StartAt>,
    ends_at: Text<StartAt>,
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    locales: Option<TextMap<Locale, TextBody<'a>, LOCALES_MAX>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextBody<'a> {
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Parses one notice.
pub fn notice(bytes: &[u8]) -> Result<Notice, Problem> {
    let body: Body<'_> = json::parse(bytes)?;
    let mut locales = std::collections::BTreeMap::new();
    for (locale, own) in body.locales.map(|locales| locales.0).unwrap_or_default() {
        let read = text(own.notification, own.data, &format!("locales.{}.", locale.0))?;
        locales.insert(locale.0, read);
    }
    let notice = Notice {
        announced_at: body.announced_at.map(|at| at.0.0),
        starts_at: body.starts_at.0.0,
        ends_at: body.ends_at.0.0,
        text: text(body.notification, body.data, "")?,
        locales,
    };
    notice.check().map_err(placed)
}

fn text(notification: Option<&RawValue>, data: Option<&RawValue>, place: &str) -> Result<Texts, Problem> {
    let notification = notification.map(|raw| shown(raw, &format!("{place}notification"), false));
    let data = data.map(|raw| carried(raw, &format!("{place}data"), limits::NOTICE_BYTES_MAX));
    Ok(Texts { notification: notification.transpose()?, data: data.transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    const TIMES: &str = r#""starts_at": "2026-01-15T09:00:00Z", "ends_at": "2026-01-15T10:00:00Z""#;

    #[test]
    fn a_complete_notice_is_parsed() {
        let body = format!(
            r#"{{{TIMES}, "announced_at": "2026-01-14T09:00:00Z", "notification": {{"title": "Payments"}},
                "data": {{"services": ["payments"]}}, "locales": {{"ja": {{"notification": {{"title": "決済"}}}}}}}}"#
        );
        let read = notice(body.as_bytes()).expect("a valid notice");
        assert!(read.announced_at.is_some() && read.locales.len() == 1 && read.text.data.is_some());
    }

    #[test]
    fn errors_name_the_field() {
        let check = |body: &str, code: Code, field: Option<&str>| {
            let refused = notice(body.as_bytes()).expect_err(body);
            assert_eq!((refused.code(), refused.field_path()), (code, field), "{body}");
        };
        check("{}", Code::InvalidField, Some("starts_at"));
        check(&format!("{{{TIMES}}}"), Code::InvalidField, Some("notification"));
        let backwards =
            r#"{"starts_at": "2026-01-15T09:00:00Z", "ends_at": "2026-01-15T08:00:00Z", "data": 1}"#;
        check(backwards, Code::InvalidField, Some("ends_at"));
        check(&format!(r#"{{{TIMES}, "notification": {{}}}}"#), Code::InvalidField, Some("notification"));
        let of_a_language =
            format!(r#"{{{TIMES}, "data": 1, "locales": {{"ja": {{"notification": {{}}}}}}}}"#);
        check(&of_a_language, Code::InvalidField, Some("locales.ja.notification"));
    }
}

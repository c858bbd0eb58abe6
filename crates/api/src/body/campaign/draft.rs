//! Drafts: a campaign's request that may be incomplete. Its parts are checked one by one, so that an author sees all that
//! is missing at once.

use std::collections::BTreeMap;

use noroshi_delivery::campaign::filter::Filter;
use noroshi_delivery::campaign::{Audience, Spec};
use noroshi_types::JsonText;
use serde_json::value::RawValue;

use super::super::Limits;
use super::campaign;
use crate::error::{Code, Problem};
use crate::json;

/// Bytes of a draft. 100 languages of 4 KiB have 400 KiB.
const BYTES_MAX: usize = 1 << 20;

/// The fields of a draft. `start` is none of them.
const FIELDS: [&str; 12] = [
    "name",
    "audience",
    "message",
    "locales",
    "experiment",
    "variables",
    "start_at",
    "local_time",
    "quiet_hours",
    "rate_per_second",
    "lane",
    "batch_size",
];

const MESSAGE: &str = "what they get: `notification`, `data` or both";

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The fields that a draft has.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The whole request. If parts are missing or invalid, only those that are valid, for an uploaded audience without
    /// recipients: even a start by mistake has no recipient.
    pub(crate) spec: Spec,
    /// What is missing or invalid; empty if it could start.
    pub(crate) problems: Vec<Problem>,
}

/// The fields of a new draft, as they are kept.
pub(crate) fn new_draft(bytes: &[u8]) -> Result<JsonText, Problem> {
    let fields: Fields<'_> = json::parse(bytes)?;
    kept(&fields)
}

/// As [`new_draft`], for a request that is valid and may say whether the campaign starts.
pub(crate) fn definition(bytes: &[u8]) -> Result<JsonText, Problem> {
    let mut fields: Fields<'_> = json::parse(bytes)?;
    fields.remove("start");
    kept(&fields)
}

/// A change of a draft: each field that it has replaces the former one; null removes it. Also returns the revision that
/// the author has changed.
pub(crate) fn changed(former: &JsonText, bytes: &[u8]) -> Result<(u64, JsonText), Problem> {
    let mut change: Fields<'_> = json::parse(bytes)?;
    let Some(revision) = change.remove("revision") else {
        return Err(Problem::field("revision", "name the revision that you change"));
    };
    let revision = json::parse_part(revision.get(), "revision")?;
    let mut fields: Fields<'_> = serde_json::from_str(former.as_str()).map_err(Problem::internal)?;
    for (name, value) in change {
        match value.get() {
            "null" => known(&name).map(|()| fields.remove(&name)).map(drop)?,
            _ => drop(fields.insert(name, value)),
        }
    }
    Ok((revision, kept(&fields)?))
}

fn kept(fields: &Fields<'_>) -> Result<JsonText, Problem> {
    fields.keys().try_for_each(|name| known(name))?;
    let text = serde_json::to_string(fields).map_err(Problem::internal)?;
    match text.len() > BYTES_MAX {
        true => Err(Problem::new(Code::BodyTooLarge, format!("a draft has at most {BYTES_MAX} bytes"))),
        false => Ok(JsonText::from_valid(text)),
    }
}

fn known(name: &str) -> Result<(), Problem> {
    match name {
        "start" => Err(Problem::field("start", "a draft is started with POST /v1/campaigns/{id}/start")),
        name if FIELDS.contains(&name) => Ok(()),
        name => Err(Problem::new(Code::UnknownField, format!("unknown field `{name}`")).at(name)),
    }
}

/// Checks a draft without what the store knows, such as the experiment.
pub(crate) fn checked(definition: &JsonText, limits: &Limits) -> Result<Checked, Problem> {
    let fields: Fields<'_> = serde_json::from_str(definition.as_str()).map_err(Problem::internal)?;
    let neutral = Neutral::new()?;
    let (valid, mut problems) = neutral.parts(&fields, limits);
    for (name, rule) in [
        ("audience", "who gets it: `everyone`, `topic`, `condition`, `upload` or `devices`"),
        ("message", MESSAGE),
    ] {
        if !fields.contains_key(name) {
            problems.push(Problem::field(name, rule));
        }
    }
    if valid.get("message").is_some_and(|message| is_empty(message)) && !is_upload(&fields) {
        problems.push(Problem::field("message", MESSAGE));
    }
    if problems.is_empty() {
        match neutral.whole(&fields, limits) {
            Ok(spec) => return Ok(Checked { spec, problems }),
            Err(problem) => problems.push(problem),
        }
    }
    let spec = neutral.reaching_nobody(valid, limits)?;
    Ok(Checked { spec, problems })
}

/// Whether a valid message has no content.
fn is_empty(message: &RawValue) -> bool {
    let fields: Fields<'_> = serde_json::from_str(message.get()).unwrap_or_default();
    !fields.contains_key("notification") && !fields.contains_key("data")
}

/// Whether each recipient brings content.
fn is_upload(fields: &Fields<'_>) -> bool {
    let audience = fields.get("audience").map(|audience| serde_json::from_str(audience.get()));
    matches!(audience, Some(Ok(audience)) if Fields::contains_key(&audience, "upload"))
}

/// The valid parts of a draft with its audience, for an estimate. Fails if the audience is missing or invalid.
pub(crate) fn audience_of(definition: &JsonText, limits: &Limits) -> Result<Spec, Problem> {
    let fields: Fields<'_> = serde_json::from_str(definition.as_str()).map_err(Problem::internal)?;
    let neutral = Neutral::new()?;
    let (valid, problems) = neutral.parts(&fields, limits);
    if !fields.contains_key("audience") {
        return Err(Problem::field("audience", "the draft has no audience yet"));
    }
    let of_audience =
        |problem: &Problem| problem.field_path().is_some_and(|path| path.starts_with("audience"));
    if let Some(problem) = problems.into_iter().find(of_audience) {
        return Err(problem);
    }
    if let Ok(spec) = neutral.whole(&valid, limits) {
        return Ok(spec);
    }
    // The texts do not change who gets it.
    let when = |name: &String| {
        ["audience", "start_at", "local_time", "quiet_hours", "rate_per_second"].contains(&name.as_str())
    };
    let mut few: Fields<'_> = valid.into_iter().filter(|(name, _)| when(name)).collect();
    few.insert("message".to_owned(), &neutral.message);
    neutral.whole(&few, limits)
}

/// Valid values of the fields that a request needs.
struct Neutral {
    nobody: Box<RawValue>,
    message: Box<RawValue>,
    not_started: Box<RawValue>,
}

impl Neutral {
    fn new() -> Result<Self, Problem> {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).map_err(Problem::internal);
        Ok(Self {
            nobody: raw(r#"{"upload":true}"#)?,
            message: raw(r#"{"data":{}}"#)?,
            not_started: raw("false")?,
        })
    }

    fn whole(&self, fields: &Fields<'_>, limits: &Limits) -> Result<Spec, Problem> {
        let mut fields = fields.clone();
        fields.insert("start".to_owned(), &self.not_started);
        let text = serde_json::to_vec(&fields).map_err(Problem::internal)?;
        campaign(&text, limits)
    }

    /// The fields that are valid each on its own, and what is wrong with the others.
    fn parts<'a>(&self, fields: &Fields<'a>, limits: &Limits) -> (Fields<'a>, Vec<Problem>) {
        let (mut valid, mut problems) = (Fields::new(), Vec::new());
        for (name, value) in fields {
            let mut alone: Fields<'_> =
                [("audience".to_owned(), &*self.nobody), ("message".to_owned(), &*self.message)].into();
            alone.insert(name.clone(), value);
            match self.whole(&alone, limits) {
                Ok(_) => drop(valid.insert(name.clone(), *value)),
                Err(problem) => problems.push(problem),
            }
        }
        (valid, problems)
    }

    fn reaching_nobody(&self, valid: Fields<'_>, limits: &Limits) -> Result<Spec, Problem> {
        let mut fields = valid;
        fields.insert("audience".to_owned(), &self.nobody);
        fields.entry("message".to_owned()).or_insert(&self.message);
        let spec = match self.whole(&fields, limits) {
            Ok(spec) => spec,
            Err(_) => {
                let name = fields.get("name").copied();
                let mut least: Fields<'_> =
                    [("audience".to_owned(), &*self.nobody), ("message".to_owned(), &*self.message)].into();
                least.extend(name.map(|name| ("name".to_owned(), name)));
                self.whole(&least, limits)?
            }
        };
        Ok(Spec { audience: Audience::Upload, filter: Filter::default(), ..spec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &str) -> JsonText {
        new_draft(text.as_bytes()).expect("a draft")
    }

    fn fields(checked: &Checked) -> Vec<String> {
        checked.problems.iter().map(|problem| problem.field_path().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn everything_that_is_missing_is_said_at_once() {
        let check = |text: &str, expected: &[&str]| {
            let checked = checked(&draft(text), &Limits::default()).expect("checked");
            assert_eq!(fields(&checked), expected, "{text}: {:?}", checked.problems);
            assert!(checked.spec.audience == Audience::Upload || expected.is_empty(), "{text}");
        };
        check(r#"{"audience":{"everyone":true},"message":{"notification":{"title":"Hi"}}}"#, &[]);
        check("{}", &["audience", "message"]);
        check(r#"{"name":"x","audience":{"topic":""}}"#, &["audience.topic", "message"]);
        check(
            r#"{"audience":{},"message":{"notification":{"title":7}},"local_time":"25:00"}"#,
            &["audience", "local_time", "message.notification.title"],
        );
        check(r#"{"audience":{"everyone":true},"message":{}}"#, &["message"]);
        check(r#"{"audience":{"topic":""},"message":{}}"#, &["audience.topic", "message"]);
        check(r#"{"audience":{"upload":true},"message":{}}"#, &[]);
        check(
            r#"{"audience":{"everyone":true},"message":{"notification":{"title":"Hi {{name}}"}}}"#,
            &["variables"],
        );
    }

    #[test]
    fn only_known_fields_are_kept() {
        let code = |text: &str| new_draft(text.as_bytes()).expect_err("refused").code();
        assert_eq!(code(r#"{"nmae":"x"}"#), Code::UnknownField);
        assert_eq!(code(r#"{"start":true}"#), Code::InvalidField);
        assert_eq!(code("[]"), Code::InvalidField);
    }

    #[test]
    fn a_change_replaces_and_removes_fields() {
        let former = draft(r#"{"name":"a","lane":"extra","message":{"data":{"x":null}}}"#);
        let change = br#"{"revision":7,"name":"b","lane":null,"audience":{"topic":"news"}}"#;
        let (revision, text) = changed(&former, change).expect("changed");
        assert_eq!(revision, 7);
        assert_eq!(
            text.as_str(),
            r#"{"audience":{"topic":"news"},"message":{"data":{"x":null}},"name":"b"}"#
        );
        assert_eq!(changed(&former, b"{}").expect_err("refused").field_path(), Some("revision"));
        let unknown = changed(&former, br#"{"revision":1,"nmae":null}"#).expect_err("refused");
        assert_eq!(unknown.code(), Code::UnknownField);
    }

    #[test]
    fn an_audience_is_estimated_before_the_message_is_written() {
        let of = |text: &str| audience_of(&draft(text), &Limits::default());
        assert_eq!(of(r#"{"audience":{"everyone":true}}"#).expect("known").audience, Audience::Everyone);
        assert_eq!(
            of(r#"{"audience":{"everyone":true},"message":{"x":1}}"#).expect("known").audience,
            Audience::Everyone
        );
        assert_eq!(
            of(r#"{"audience":{"topic":""}}"#).expect_err("refused").field_path(),
            Some("audience.topic")
        );
        assert_eq!(of("{}").expect_err("refused").field_path(), Some("audience"));
    }
}

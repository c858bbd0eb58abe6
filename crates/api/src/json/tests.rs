//! Invalid bodies, and the position in their errors.

use super::*;
use noroshi_types::UserId;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer<'a> {
    inner: Option<Inner>,
    #[serde(borrow)]
    raw: Option<&'a RawValue>,
    span: Option<Span>,
    tags: Option<TextMap<Line<4>, Text<Line<4>>, 2>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    users: Bounded<Text<UserId>, 3>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[expect(dead_code, reason = "only the errors matter")]
enum Tagged {
    Number { value: u16 },
    List { value: Vec<bool> },
}

fn check(text: &str, code: Code, field: Option<&str>, detail: &str) {
    let problem = parse::<Outer<'_>>(text.as_bytes()).expect_err(text);
    assert_eq!((problem.code(), problem.field_path()), (code, field), "{text}: {problem:?}");
    assert!(problem.detail().contains(detail), "{text}: {problem:?}");
}

#[test]
fn errors_name_the_field_or_the_position() {
    check("{", Code::InvalidJson, None, "line 1 column 1");
    check("{}x", Code::InvalidJson, None, "line 1 column 3");
    check("", Code::InvalidJson, None, "line 1");
    check("{\"raw\": {\"a\": tru}}", Code::InvalidJson, None, "line 1");
    check("[]", Code::InvalidField, None, "");
    check("{\"innr\": 1}", Code::UnknownField, Some("innr"), "expected one of");
    check("{\"inner\": {\"users\": [], \"x\": 1}}", Code::UnknownField, Some("inner.x"), "unknown field `x`");
    check("{\"inner\": {}}", Code::InvalidField, Some("inner.users"), "missing field `users`");
    check("{\"inner\": {\"users\": [\"a\", 1]}}", Code::InvalidField, Some("inner.users[1]"), "a user id");
    check("{\"inner\": {\"users\": [\"a\", \"\"]}}", Code::InvalidField, Some("inner.users[1]"), "1 to 255");
    check("{\"span\": \"1y\"}", Code::InvalidField, Some("span"), "whole number");
    check("{\"span\": -1}", Code::InvalidField, Some("span"), "a duration");
    check("{\"span\": 1, \"span\": 1}", Code::InvalidField, Some("span"), "duplicate field");
    check("{\"tags\": {\"a\": \"12345\"}}", Code::InvalidField, Some("tags.a"), "1 to 4");
    check("{\"tags\": {\"a\": \"1\", \"a\": \"2\"}}", Code::InvalidField, Some("tags"), "duplicate key");
    check(
        "{\"tags\": {\"a\": \"1\", \"b\": \"2\", \"c\": \"3\"}}",
        Code::InvalidField,
        Some("tags"),
        "at most 2",
    );
}

#[test]
fn errors_do_not_name_rust_types() {
    for other in ["null", "true", "1", "\"a\"", "[]"] {
        check(other, Code::InvalidField, None, "must be an object");
    }
    for field in ["inner", "tags"] {
        check(&format!("{{\"{field}\": 1}}"), Code::InvalidField, Some(field), "must be an object");
    }
    check("{\"inner\": \"x, expected struct Y\"}", Code::InvalidField, Some("inner"), "must be an object");
    let detail = |text: &str| parse::<Tagged>(text.as_bytes()).expect_err(text).detail().to_owned();
    assert_eq!(detail("null"), "must be an object");
    let number = detail(r#"{"kind": "number", "value": 65536}"#);
    assert_eq!(number, "invalid value: integer `65536`, expected a whole number from 0 to 65535");
    let list = detail(r#"{"kind": "list", "value": {}}"#);
    assert_eq!(list, "invalid type: object, expected an array");
}

#[test]
fn bytes_that_are_not_utf8_are_not_json() {
    for bytes in [&b"{\"raw\": \"\xff\"}"[..], b"\xff", b"{\"inner\": {\"users\": [\"\xc3\"]}}"] {
        assert!(
            parse::<Outer<'_>>(bytes).is_err_and(|problem| problem.code() == Code::InvalidJson),
            "{bytes:?}"
        );
    }
}

#[test]
fn depth_is_checked_before_parsing() {
    let nested = |depth: usize| format!("{{\"raw\": {}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert!(parse::<Outer<'_>>(nested(DEPTH_MAX).as_bytes()).is_ok());
    check(&nested(DEPTH_MAX + 1), Code::InvalidJson, None, "nested");
    let in_a_string = format!("{{\"raw\": \"\\\"{}\"}}", "[".repeat(1_000));
    assert!(parse::<Outer<'_>>(in_a_string.as_bytes()).is_ok());
}

#[test]
fn an_oversized_list_is_counted_but_not_kept() {
    let outer: Outer<'_> =
        parse(b"{\"inner\": {\"users\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}}").expect("JSON");
    let users = outer.inner.expect("inner").users;
    assert_eq!((users.items.len(), users.count), (3, 5));
    assert!(users.all("inner.users").is_err_and(|problem| problem.field_path() == Some("inner.users")));
}

#[test]
fn raw_text_is_kept_unchanged() {
    let outer: Outer<'_> = parse(b"{\"raw\": {\"b\":1.0,  \"a\": [1e5]}, \"span\": \"2m\"}").expect("JSON");
    assert_eq!(outer.raw.map(RawValue::get), Some("{\"b\":1.0,  \"a\": [1e5]}"));
    assert_eq!(outer.span, Some(Span(Duration::from_secs(120))));
    let tags = parse::<Outer<'_>>(b"{\"tags\": {\"a\": \"1\", \"b\": \"2\"}}").expect("JSON").tags;
    assert_eq!(tags.map(|tags| tags.0.len()), Some(2));
}

#[test]
fn lone_surrogates_are_rejected_everywhere() {
    for (text, at) in [
        (r#"{"raw": "\ud800"}"#, 9),
        (r#"{"raw": {"a": [1, "x\udfff"]}}"#, 20),
        (r#"{"raw": {"\uD800": 1}}"#, 10),
        (r#"{"inner": {"users": ["\ud83d"]}}"#, 22),
    ] {
        check(text, Code::InvalidJson, None, &format!("at byte {at} "));
    }
    let whole = parse::<Outer<'_>>(br#"{"raw": "\ud83d\ude00 \\ud800"}"#).expect("a pair");
    assert_eq!(whole.raw.map(RawValue::get), Some(r#""\ud83d\ude00 \\ud800""#));
}

//! Redaction of values in `config print`, problems and logs. A key with the unit [`SECRET`] is never shown, one with the unit
//! [`URL`] only without password and without the values of its query.

use std::borrow::Cow;

/// The unit of a key whose value is a credential.
pub(super) const SECRET: &str = "credential";
/// The unit of a key whose value is a URL, which may contain a credential.
pub(super) const URL: &str = "url";
/// Replaces a hidden value.
pub(super) const HIDDEN: &str = "…";

/// Parameters of PostgreSQL and Redis that are useful to an operator and are no credentials.
const SHOWN_PARAMETERS: [&str; 6] =
    ["sslmode", "application_name", "connect_timeout", "target_session_attrs", "db", "protocol"];

/// Redacts the value of a key with this unit.
pub(super) fn shown<'a>(unit: &str, value: &'a str) -> Cow<'a, str> {
    match unit {
        SECRET if !value.is_empty() => Cow::Borrowed(HIDDEN),
        URL => Cow::Owned(url(value)),
        _ => Cow::Borrowed(value),
    }
}

/// Removes everything before the last `@` except a user with a password, and the values of the query.
pub(super) fn url(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let mut shown = String::with_capacity(text.len());
    if !scheme.is_empty() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    match rest.rsplit_once('@') {
        Some((who, place)) => {
            // A user without a password may be a token.
            if let Some((user, _)) = who.split_once(':') {
                shown.push_str(user);
                shown.push(':');
            }
            shown.push_str(HIDDEN);
            shown.push('@');
            shown.push_str(place);
        }
        None => shown.push_str(rest),
    }
    for (n, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if n == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) if !SHOWN_PARAMETERS.contains(&name) => {
                shown.push_str(name);
                shown.push('=');
                shown.push_str(HIDDEN);
            }
            Some(_) => shown.push_str(pair),
            None => shown.push_str(HIDDEN),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let check = |text: &str, expected: &str| assert_eq!(url(text), expected, "{text}");
        check("https://push.example.com/x", "https://push.example.com/x");
        check("postgres://u:p@h/d", "postgres://u:…@h/d");
        check("postgres://u:p@a@b/c@h/d", "postgres://u:…@h/d");
        check("redis://:p@h", "redis://:…@h");
        check("https://token@h/", "https://…@h/");
        check("postgres://h/d?sslmode=require&password=x", "postgres://h/d?sslmode=require&password=…");
        check("https://h/hook?key=x&y", "https://h/hook?key=…&…");
        check("u:p@h", "u:…@h");
        check("", "");
    }

    #[test]
    fn a_secret_is_shown_as_set() {
        assert_eq!(shown(SECRET, "a:b"), HIDDEN);
        assert_eq!(shown(SECRET, ""), "");
        assert_eq!(shown("text", "a:b"), "a:b");
    }
}

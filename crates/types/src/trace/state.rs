//! `tracestate` (§3.3): the data of tracing systems along the way, each with its own key. It is validated,
//! bounded and propagated unchanged: this program has no key of its own.
//!
//! A list that violates a rule is dropped as a whole, without affecting its `traceparent` (§3.3).

use std::fmt;

/// §3.3, "list".
const MEMBERS_MAX: usize = 32;

/// §3.3, "tracestate limits": at least this much is propagated; of a longer list, members longer than
/// [`LONG`] are dropped first, then the last ones.
const BYTES_MAX: usize = 512;
const LONG: usize = 128;

/// A list with at least one member and at most 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// From all `tracestate` headers of a request, which form one list (RFC 9110 §5.3).
    pub fn of_headers<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut members: Vec<&'a str> = Vec::new();
        for member in values.flat_map(|value| value.split(|byte| *byte == b',')) {
            let member = std::str::from_utf8(member).ok()?.trim_matches([' ', '\t']);
            // Empty members are allowed and ignored (§3.3, "list").
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let twice = members.iter().any(|other| other.split_once('=').is_some_and(|other| other.0 == key));
            if members.len() == MEMBERS_MAX || twice || !is_key(key) || !is_value(value) {
                return None;
            }
            members.push(member);
        }
        Self::bounded(members)
    }

    fn bounded(mut members: Vec<&str>) -> Option<Self> {
        let bytes =
            |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1);
        if bytes(&members) > BYTES_MAX {
            members.retain(|member| member.len() <= LONG);
        }
        while bytes(&members) > BYTES_MAX {
            members.pop();
        }
        (!members.is_empty()).then(|| Self(members.join(",").into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// §3.3, "key": a name, or `tenant@system`.
fn is_key(key: &str) -> bool {
    let rest = |text: &str| {
        text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/')
        })
    };
    let starts = |text: &str, first: fn(&u8) -> bool| text.as_bytes().first().is_some_and(first);
    let tenant_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match key.split_once('@') {
        None => key.len() <= 256 && starts(key, u8::is_ascii_lowercase) && rest(key),
        Some((tenant, system)) => {
            (1..=241).contains(&tenant.len())
                && (1..=14).contains(&system.len())
                && starts(tenant, tenant_first)
                && starts(system, u8::is_ascii_lowercase)
                && rest(tenant)
                && rest(system)
        }
    }
}

/// §3.3, "value": 1 to 256 printable characters except `,` and `=`, without trailing space.
fn is_value(value: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=256).contains(&value.len()) && value.bytes().all(allowed) && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the propagated value; the names are those of the specification's suite.
    fn check(headers: &[&str], expected: Option<&str>) {
        let found = TraceState::of_headers(headers.iter().map(|header| header.as_bytes()));
        assert_eq!(found.as_ref().map(TraceState::as_str), expected, "{headers:?}");
    }

    #[test]
    fn lists() {
        // test_tracestate_included_traceparent_included
        check(&["foo=1,bar=2"], Some("foo=1,bar=2"));
        // test_tracestate_multiple_headers_different_keys
        check(&["foo=1,bar=2", "rojo=1,congo=2", "baz=3"], Some("foo=1,bar=2,rojo=1,congo=2,baz=3"));
        // test_tracestate_empty_header, and empty members in between
        check(&["", "foo=1"], Some("foo=1"));
        check(&["foo=1", ""], Some("foo=1"));
        check(&["foo=1,,, ,bar=2,"], Some("foo=1,bar=2"));
        check(&[""], None);
        check(&[], None);
        // test_tracestate_ows_handling
        check(&["foo=1 \t , \t bar=2, \t baz=3"], Some("foo=1,bar=2,baz=3"));
        check(&["foo=1\t \t,\t \tbar=2,\t \tbaz=3"], Some("foo=1,bar=2,baz=3"));
        check(&[" foo=1 "], Some("foo=1"));
        // test_tracestate_duplicated_keys
        check(&["foo=1,foo=1"], None);
        check(&["foo=1", "foo=2"], None);
        check(&["foo"], None);
    }

    #[test]
    fn members_are_at_most_32() {
        let list = |count: usize| (0..count).map(|n| format!("bar{n:02}={n:02}")).collect::<Vec<_>>();
        // test_tracestate_member_count_limit
        check(&[&list(32).join(",")], Some(&list(32).join(",")));
        check(&[&list(33).join(",")], None);
    }

    #[test]
    fn keys() {
        // test_tracestate_all_allowed_characters
        let letters = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
        check(&[&format!("{letters}=1")], Some(&format!("{letters}=1")));
        check(&[&format!("{letters}@a-z0-9_-*/=1")], Some(&format!("{letters}@a-z0-9_-*/=1")));
        // test_tracestate_key_illegal_characters
        for key in ["foo ", "FOO", "foo.bar", "foo bar", "", "1", "_x", "x@", "@x", "x@1", "x@y@z", "ö"] {
            check(&[&format!("{key}=1")], None);
        }
        // test_tracestate_key_illegal_vendor_format, test_multitenant keys may start with a digit
        check(&["0t@v=1"], Some("0t@v=1"));
        // test_tracestate_key_length_limit
        let long = |count: usize| "z".repeat(count);
        let kept = [format!("{}=1", long(256)), format!("{}@{}=1", "t".repeat(241), "v".repeat(14))];
        for member in &kept {
            check(&[member], Some(member));
        }
        check(&[&format!("{}=1", long(257))], None);
        check(&[&format!("{}@v=1", long(242))], None);
        check(&[&format!("t@{}=1", long(15))], None);
    }

    #[test]
    fn values() {
        // test_tracestate_all_allowed_characters
        let all: String = (b' '..=b'~').filter(|byte| !matches!(byte, b',' | b'=')).map(char::from).collect();
        check(&[&format!("foo={all}")], Some(&format!("foo={all}")));
        // test_tracestate_value_illegal_characters
        for value in ["", "bar=baz", "b\u{e4}r", "b\nr", "\u{7f}"] {
            check(&[&format!("foo={value}")], None);
        }
        check(&[&format!("foo={}", "v".repeat(256))], Some(&format!("foo={}", "v".repeat(256))));
        check(&[&format!("foo={}", "v".repeat(257))], None);
    }

    #[test]
    fn long_lists_lose_long_members_first_and_then_the_last() {
        let long = format!("long={}", "v".repeat(200));
        let short: Vec<String> = (0..10).map(|n| format!("k{n}={}", "v".repeat(40))).collect();
        check(&[&long, &short.join(",")], Some(&short.join(",")));
        let many: Vec<String> = (10..30).map(|n| format!("k{n}={}", "v".repeat(46))).collect();
        // 50 bytes each, with commas between: ten take 509.
        check(&[&many.join(",")], Some(&many[..10].join(",")));
    }
}

//! Addresses (RFC 7622) and the mapping from device names: `device@domain/resource`, with the device escaped
//! as in XEP-0106.
//!
//! Localparts are case-insensitive, since clients convert them to lower case (RFC 7622 §3.3): a device whose
//! name contains capitals is addressed in lower case, and its token identifies the device. Nothing is
//! allocated for parts above 1,023 bytes.

use std::borrow::Cow;

use noroshi_types::Invalid;

/// RFC 7622 §3.2 to §3.4.
pub const PART_BYTES_MAX: usize = 1_023;

/// An address in its canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jid<'a> {
    pub local: Option<Cow<'a, str>>,
    pub domain: Cow<'a, str>,
    pub resource: Option<&'a str>,
}

impl<'a> Jid<'a> {
    pub fn parse(text: &'a str) -> Result<Self, Invalid> {
        // RFC 7622 §3.1: split at the first '/' first, as a resource may contain any character.
        let (bare, resource) = split(text);
        let (local, domain) = match bare.split_once('@') {
            Some((local, domain)) => (Some(local), domain),
            None => (None, bare),
        };
        let domain = domain.strip_suffix('.').unwrap_or(domain); // §3.2: a final dot is not significant
        Ok(Self {
            local: local.map(check_local).transpose()?,
            domain: check_domain(domain)?,
            resource: resource.map(check_resource).transpose()?,
        })
    }

    /// Whether the address is `bare`, which must be canonical, with or without a resource.
    pub fn has_bare(&self, bare: &str) -> bool {
        let (local, domain) = bare.split_once('@').map_or((None, bare), |(local, rest)| (Some(local), rest));
        self.local.as_deref() == local && self.domain == domain
    }

    /// `local@domain`, or the domain only.
    pub fn bare(&self) -> Box<str> {
        match &self.local {
            Some(local) => format!("{local}@{}", self.domain).into(),
            None => (*self.domain).into(),
        }
    }

    /// The bare address, followed by the resource if there is one.
    pub fn canonical(&self) -> Box<str> {
        match self.resource {
            Some(resource) => format!("{}/{resource}", self.bare()).into(),
            None => self.bare(),
        }
    }
}

/// Splits an address into bare part and resource.
pub fn split(address: &str) -> (&str, Option<&str>) {
    match address.split_once('/') {
        Some((bare, resource)) => (bare, Some(resource)),
        None => (address, None),
    }
}

pub fn bare_part(address: &str) -> &str {
    split(address).0
}

fn sized(part: &str, what: &str) -> Result<(), Invalid> {
    match part.is_empty() || part.len() > PART_BYTES_MAX {
        true => {
            Err(Invalid::new(format!("{what} must be 1 to {PART_BYTES_MAX} bytes long, got {}", part.len())))
        }
        false => Ok(()),
    }
}

fn check_local(local: &str) -> Result<Cow<'_, str>, Invalid> {
    sized(local, "a localpart")?;
    // §3.3.1; white space and control characters are not in PRECIS' IdentifierClass (RFC 8264 §4.2.3).
    let is_wrong = |c: char| matches!(c, '"' | '&' | '\'' | '/' | ':' | '<' | '>' | '@') || is_gap(c);
    match local.chars().any(is_wrong) {
        true => Err(Invalid::new("a localpart contains a character that must be escaped")),
        false => Ok(lower(local)),
    }
}

fn check_domain(domain: &str) -> Result<Cow<'_, str>, Invalid> {
    sized(domain, "a domainpart")?;
    let is_label = |label: &str| {
        let allowed =
            |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || (!c.is_ascii() && !is_gap(c));
        !label.is_empty() && label.len() <= 63 && label.chars().all(allowed)
    };
    let literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_right = match literal {
        Some(address) => address.parse::<core::net::Ipv6Addr>().is_ok(),
        None => domain.split('.').all(is_label),
    };
    if is_right {
        Ok(lower(domain))
    } else {
        Err(Invalid::new("a domainpart must be a host name or an IP address"))
    }
}

/// PRECIS' OpaqueString (RFC 8265 §4.2) without normalization: resources are compared byte by byte.
pub(super) fn check_resource(resource: &str) -> Result<&str, Invalid> {
    sized(resource, "a resourcepart")?;
    match resource.chars().any(char::is_control) {
        true => Err(Invalid::new("a resourcepart must not contain control characters")),
        false => Ok(resource),
    }
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

fn lower(text: &str) -> Cow<'_, str> {
    match text.chars().all(|c| c.is_lowercase() || !c.is_alphabetic()) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.to_lowercase()),
    }
}

/// XEP-0106 §3, and the backslash where it would be read as an escape.
const ESCAPES: [(char, &str); 10] = [
    (' ', "20"),
    ('"', "22"),
    ('&', "26"),
    ('\'', "27"),
    ('/', "2f"),
    (':', "3a"),
    ('<', "3c"),
    ('>', "3e"),
    ('@', "40"),
    ('\\', "5c"),
];

fn escape_at(text: &str) -> Option<char> {
    let code = text.strip_prefix('\\')?.get(..2)?;
    ESCAPES.iter().find(|(_, known)| known.eq_ignore_ascii_case(code)).map(|(c, _)| *c)
}

/// Escapes a device name as a localpart.
pub fn escape_local(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let code = ESCAPES.iter().find(|(known, _)| *known == c).map(|(_, code)| code);
        match code.filter(|_| c != '\\' || escape_at(&name[at..]).is_some()) {
            Some(code) => {
                out.push('\\');
                out.push_str(code);
            }
            None => out.extend(c.to_lowercase()),
        }
    }
    out
}

/// Unescapes a localpart, or a SASL user name in that form.
pub fn unescape_local(local: &str) -> Cow<'_, str> {
    if !local.contains('\\') {
        return Cow::Borrowed(local);
    }
    let mut out = String::with_capacity(local.len());
    let mut rest = local;
    while let Some(c) = rest.chars().next() {
        match escape_at(rest) {
            Some(escaped) => {
                out.push(escaped);
                rest = &rest[3..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn address_has_three_parts() {
        let check = |text: &str, local: Option<&str>, domain: &str, resource: Option<&str>| {
            let jid = Jid::parse(text).unwrap();
            assert_eq!(
                (jid.local.as_deref(), &*jid.domain, jid.resource),
                (local, domain, resource),
                "{text}"
            );
            let canonical = jid.canonical();
            assert_eq!(split(&canonical), (&*jid.bare(), resource));
            assert_eq!(Jid::parse(&canonical), Ok(jid), "{text}");
        };
        // RFC 7622 §3.5, table 1, without the rows that need normalization.
        check("juliet@example.com", Some("juliet"), "example.com", None);
        check("juliet@example.com/foo", Some("juliet"), "example.com", Some("foo"));
        check("juliet@example.com/foo@bar", Some("juliet"), "example.com", Some("foo@bar"));
        check("foo\\20bar@example.com", Some("foo\\20bar"), "example.com", None);
        check("fussball@example.com", Some("fussball"), "example.com", None);
        check("fu\u{DF}ball@example.com", Some("fu\u{DF}ball"), "example.com", None);
        check("\u{3A3}@example.com/foo", Some("\u{3C3}"), "example.com", Some("foo"));
        check("king@example.com/\u{265A}", Some("king"), "example.com", Some("\u{265A}"));
        check("example.com", None, "example.com", None);
        check("example.com/foobar", None, "example.com", Some("foobar"));
        check("a.example.com/b@example.net", None, "a.example.com", Some("b@example.net"));
        check("Juliet@Example.COM.", Some("juliet"), "example.com", None);
        check("a@[::1]/b", Some("a"), "[::1]", Some("b"));
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        let long = "x".repeat(1_024);
        // RFC 7622 §3.5, table 2.
        for text in
            ["\"juliet\"@example.com", "foo bar@example.com", "@example.com/", "", "juliet@", "/foobar"]
        {
            assert!(Jid::parse(text).is_err(), "{text}");
        }
        for text in ["a@b@c", "a@b/", "a@b..c", "a@b c", "a@[::g]", "a@b\u{0}", "a@b/\u{7}", "a@b..", "<@b"] {
            assert!(Jid::parse(text).is_err(), "{text}");
        }
        for text in [format!("{long}@b"), format!("a@{long}"), format!("a@b/{long}")] {
            assert!(Jid::parse(&text).is_err());
        }
    }

    #[test]
    fn device_is_escaped_as_in_xep_0106() {
        // XEP-0106 §5.1, table 3.
        for (name, local) in [
            ("space cadet", "space\\20cadet"),
            ("call me \"ishmael\"", "call\\20me\\20\\22ishmael\\22"),
            ("at&t guy", "at\\26t\\20guy"),
            ("d'artagnan", "d\\27artagnan"),
            ("/.fanboy", "\\2f.fanboy"),
            ("::foo::", "\\3a\\3afoo\\3a\\3a"),
            ("<foo>", "\\3cfoo\\3e"),
            ("user@host", "user\\40host"),
            ("c:\\net", "c\\3a\\net"),
            ("c:\\\\net", "c\\3a\\\\net"),
            ("c:\\cool stuff", "c\\3a\\cool\\20stuff"),
            ("c:\\5commas", "c\\3a\\5c5commas"),
        ] {
            assert_eq!(escape_local(name), local);
            assert_eq!(unescape_local(local), name);
        }
    }

    proptest! {
        #[test]
        fn escaping_round_trips(name in "[ -~]{1,40}|[\\\\ 0-9a-f@/]{1,20}") {
            let name = name.to_lowercase();
            let local = escape_local(&name);
            let jid = format!("{local}@example.com");
            prop_assert_eq!(unescape_local(&local), &*name);
            prop_assert!(Jid::parse(&jid).unwrap().has_bare(&jid));
        }

        #[test]
        fn any_text_parses_or_fails(text in any::<String>()) {
            if let Ok(jid) = Jid::parse(&text) {
                prop_assert!(jid.domain.len() <= 3 * PART_BYTES_MAX);
            }
        }
    }
}

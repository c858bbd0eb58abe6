//! Percent-decoding of forms and queries, for the token endpoint and the control port.

/// Decodes `application/x-www-form-urlencoded`; `None` if it is malformed or not UTF-8.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_escapes_and_plus_are_decoded() {
        for (text, expected) in
            [("a%3Ab+c", Some("a:b c")), ("%E3%81%AE", Some("の")), ("%", None), ("%zz", None), ("%ff", None)]
        {
            assert_eq!(unescape(text).as_deref(), expected, "{text}");
        }
    }
}

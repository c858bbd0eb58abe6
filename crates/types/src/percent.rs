//! Decodes percent-encoding (RFC 3986 §2.1): every `%` is followed by two hexadecimal digits, and the
//! decoded text is UTF-8. Other texts have no unambiguous meaning and are rejected.

/// The violation and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The offset of the `%`.
    #[error("the `%` at byte {0} is not followed by two hexadecimal digits")]
    Escape(usize),
    /// The offset, in the decoded text, of the first byte that is not UTF-8.
    #[error("the escapes do not form valid UTF-8 at byte {0} of the decoded text")]
    Utf8(usize),
}

/// Text without `%` costs one scan and no memory.
pub fn check(text: &str) -> Result<(), Wrong> {
    if text.contains('%') { decode(text).map(drop) } else { Ok(()) }
}

pub fn decode(text: &str) -> Result<String, Wrong> {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let digits =
                bytes.get(at + 1..at + 3).and_then(|digits| Some((hex(digits[0])?, hex(digits[1])?)));
            let (high, low) = digits.ok_or(Wrong::Escape(at))?;
            decoded.push(high << 4 | low);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    String::from_utf8(decoded).map_err(|error| Wrong::Utf8(error.utf8_error().valid_up_to()))
}

fn hex(digit: u8) -> Option<u8> {
    // A digit of base 16 fits.
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_must_be_two_digits_and_form_utf8() {
        for right in ["", "/v1/topics/a", "/v1/topics/a%2Fb%2f", "q=%E6%97%A5", "日%41", "a+b"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (wrong, expected) in [
            ("/v1/topics/%zz", Wrong::Escape(11)),
            ("%", Wrong::Escape(0)),
            ("a%4", Wrong::Escape(1)),
            ("%41%4g", Wrong::Escape(3)),
            ("100%", Wrong::Escape(3)),
            ("%%41", Wrong::Escape(0)),
            ("%+1", Wrong::Escape(0)),
            ("a%FF", Wrong::Utf8(1)),
            ("%ED%A0%80", Wrong::Utf8(0)),
            ("%E6%97", Wrong::Utf8(0)),
        ] {
            assert_eq!(check(wrong), Err(expected), "{wrong}");
        }
    }
}

//! The header fields of a response in one allocation, and their validation (RFC 9113 §8.2, §8.3).

use std::fmt;

/// Each field is two lengths (four bytes each, native byte order), then name and value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<u8>);

impl Headers {
    /// The value of the first field with this name, which must be in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name.as_bytes()).map(|(_, value)| value)
    }

    /// Name and value of each field, in order; names are in lower case, pseudo-header fields omitted.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (lens, after) = rest.split_first_chunk::<8>()?;
            let [a, b, c, d, e, f, g, h] = *lens;
            let name_len = u32::from_ne_bytes([a, b, c, d]) as usize;
            let value_len = u32::from_ne_bytes([e, f, g, h]) as usize;
            let (field, after) = after.split_at(name_len + value_len);
            rest = after;
            Some(field.split_at(name_len))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        let bytes = 8 + name.len() + value.len();
        if self.0.capacity() - self.0.len() < bytes {
            // Reserves space for more fields, as a response seldom has only one.
            self.0.reserve(bytes.max(120));
        }
        // Both are parts of a header block, whose size is bounded far below `u32::MAX`.
        self.0.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.0.extend_from_slice(&(value.len() as u32).to_ne_bytes());
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.iter();
        f.debug_map()
            .entries(
                fields
                    .map(|(name, value)| (name.escape_ascii().to_string(), value.escape_ascii().to_string())),
            )
            .finish()
    }
}

/// Collects and validates the fields of one header block, in order.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) headers: Headers,
    /// 0 until `:status` arrives.
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
    /// Why the response is malformed (RFC 9113 §8.1.1).
    pub(super) malformed: Option<&'static str>,
    /// Whether fields were dropped because of the limit.
    pub(super) truncated: bool,
    trailers: bool,
    /// As RFC 9113 §10.5.1 counts: names, values and 32 bytes per field.
    list_bytes: usize,
    list_bytes_max: usize,
}

impl Section {
    /// Trailers have no status (RFC 9113 §8.1), and their fields are not kept.
    pub(super) fn new(trailers: bool, list_bytes_max: usize) -> Self {
        Self {
            headers: Headers::default(),
            status: 0,
            content_length: None,
            malformed: None,
            truncated: false,
            trailers,
            list_bytes: 0,
            list_bytes_max,
        }
    }

    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) {
        self.list_bytes = self.list_bytes.saturating_add(name.len() + value.len() + 32);
        if self.list_bytes > self.list_bytes_max {
            self.truncated = true;
        }
        if self.truncated || self.malformed.is_some() {
            return;
        }
        if let Err(reason) = self.check(name, value) {
            self.malformed = Some(reason);
        }
    }

    fn check(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if name == b":status" {
            return self.status(value);
        }
        if !name.iter().all(|&byte| NAME_BYTE[usize::from(byte)]) || name.is_empty() {
            return Err("a field name is not a lower-case token");
        }
        if !is_value(value) {
            return Err("a field value contains a forbidden byte");
        }
        if self.trailers {
            return Ok(());
        }
        if self.status == 0 {
            return Err("the response does not start with its status");
        }
        match name {
            // §8.2.2
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                return Err("a connection-specific field of HTTP/1.1");
            }
            b"content-length" => self.content_length(value)?,
            _ => {}
        }
        self.headers.push(name, value);
        Ok(())
    }

    /// §8.3.2: exactly one, before any other field.
    fn status(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.trailers || self.status != 0 || !self.headers.is_empty() {
            return Err("a misplaced status");
        }
        self.status = match *value {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
            }
            _ => return Err("the status is not three digits"),
        };
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let digits = Some(value).filter(|value| value.iter().all(u8::is_ascii_digit));
        let length = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let length: u64 = length.ok_or("the content length is not a number")?;
        if self.content_length.is_some_and(|other| other != length) {
            return Err("two content lengths differ");
        }
        self.content_length = Some(length);
        Ok(())
    }
}

/// RFC 9110 §5.6.2 without upper case (RFC 9113 §8.2.1).
const NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let allowed = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
    let mut i = 0;
    while i < allowed.len() {
        table[allowed[i] as usize] = true;
        i += 1;
    }
    table
};

/// RFC 9113 §8.2.1: no NUL, CR or LF, no space or tab at either end.
fn is_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first())
        && !blank(value.last())
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

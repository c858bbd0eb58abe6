//! The id that a client assigns to its request in `X-Request-Id`. The service logs and returns it, so it must
//! not be a credential: some clients put one into every header that they can set.

const BYTES_MAX: usize = 64;

/// The prefixes of this service's credentials.
const CREDENTIALS: [&[u8]; 4] = [b"nd1.", b"nk_", b"no_", b"eyJ"];

/// Whether an id is short, plain and not a credential. `credentials` are those of the request, such as the
/// value of its `Authorization` header, whose scheme is skipped.
pub fn is_request_id(id: &[u8], credentials: &[&[u8]]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_own = |credential: &&[u8]| credential.rsplit(|byte| *byte == b' ').next() == Some(id);
    (1..=BYTES_MAX).contains(&id.len())
        && id.iter().all(is_plain)
        && !CREDENTIALS.iter().any(|prefix| id.starts_with(prefix))
        && !credentials.iter().any(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_short_plain_and_not_a_credential() {
        let check = |id: &str, expected: bool| {
            let credentials: [&[u8]; 2] = [b"Bearer letmein", b"from-the-query"];
            assert_eq!(is_request_id(id.as_bytes(), &credentials), expected, "{id:?}");
        };
        for id in ["req-1_a.b", "0", "let", "Bearer", "letmein2", "018f", &"x".repeat(64)] {
            check(id, true);
        }
        for id in ["", "two words", "a\"b", "a\r\nb", "a/b", "a%20b", "ü", "a,b", "a=b", &"x".repeat(65)] {
            check(id, false);
        }
        // By its prefix, or because it equals the request's credential.
        for id in ["nd1.x", "nk_x", "no_x", "eyJhbGciOiJub25lIn0", "letmein", "from-the-query"] {
            check(id, false);
        }
    }
}

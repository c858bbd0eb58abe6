//! The server side of the permessage-deflate negotiation (RFC 7692 §5, §7.1): selects one of the client's
//! offers and builds the response.
//!
//! Neither side keeps a window between messages: every response contains `server_no_context_takeover` and
//! `client_no_context_takeover`, requested or not (§7.1.1), so an idle connection needs no memory. A limit on
//! the server's window is always accepted; the client's window is not limited.

use std::borrow::Cow;
use std::iter;

use super::error::UpgradeError;

const NAME: &str = "permessage-deflate";
/// §7.1.2: windows of 256 bytes to 32 KiB.
const WINDOW_BITS: [&str; 8] = ["8", "9", "10", "11", "12", "13", "14", "15"];
/// The window size that any deflate stream respects.
pub const WINDOW_BITS_MAX: u8 = 15;

/// The negotiated parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflate {
    /// 8 to 15. `None`: the client requested no limit.
    server_window_bits: Option<u8>,
}

impl Deflate {
    /// Selects the first acceptable offer (§5); all offers must follow the grammar (RFC 6455 §9.1).
    pub(super) fn negotiate<'a>(
        headers: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Self>, UpgradeError> {
        let mut agreed = None;
        for header in headers {
            let mut rest = Rest(header);
            loop {
                let accepted = match rest.token() {
                    Some(name) => offer(name, &mut rest)?,
                    None => None, // list elements may be empty (RFC 9110 §5.6.1)
                };
                agreed = agreed.or(accepted);
                match rest.next() {
                    None => break,
                    Some(',') => rest.skip(),
                    Some(_) => return Err(MALFORMED),
                }
            }
        }
        Ok(agreed)
    }

    /// The limit of the server's window. A shorter message never exceeds it, since nothing in it refers
    /// further back.
    pub fn server_window_bits(self) -> u8 {
        self.server_window_bits.unwrap_or(WINDOW_BITS_MAX)
    }

    pub(super) fn push_answer(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\nSec-WebSocket-Extensions: ");
        out.extend_from_slice(NAME.as_bytes());
        out.extend_from_slice(b"; server_no_context_takeover; client_no_context_takeover");
        if let Some(bits) = self.server_window_bits {
            // §7.1.2.1: repeating the parameter accepts it.
            out.extend_from_slice(format!("; server_max_window_bits={bits}").as_bytes());
        }
    }
}

/// A client's offer; it accepts every response of [`Deflate`].
pub(super) const OFFER: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits";

/// Whether a server's response accepts [`OFFER`] without context takeover.
pub(super) fn accepts_offer(answer: &[u8]) -> bool {
    let mut parameters = answer.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    parameters.next() == Some(NAME.as_bytes()) && parameters.any(|name| name == b"server_no_context_takeover")
}

const MALFORMED: UpgradeError = UpgradeError::Malformed("Sec-WebSocket-Extensions is malformed");

/// Parses the parameters after a name. `None`: the offer is declined.
fn offer(name: &str, rest: &mut Rest<'_>) -> Result<Option<Deflate>, UpgradeError> {
    let mut server_window_bits = None;
    let mut seen = [false; 4];
    let mut acceptable = name == NAME;
    while rest.eat(';') {
        let name = rest.token().ok_or(MALFORMED)?;
        let value = match rest.eat('=') {
            true => Some(rest.value().ok_or(MALFORMED)?),
            false => None,
        };
        let bits = value.as_deref().map(window_bits);
        // §7.1: an unknown, invalid or repeated parameter declines the offer.
        let parameter = match (name, bits) {
            ("server_no_context_takeover", None) => 0,
            ("client_no_context_takeover", None) => 1,
            // Any window of the client is acceptable.
            ("client_max_window_bits", None | Some(Some(_))) => 2,
            ("server_max_window_bits", Some(Some(bits))) => {
                server_window_bits = Some(bits);
                3
            }
            _ => {
                acceptable = false;
                continue;
            }
        };
        acceptable &= !std::mem::replace(&mut seen[parameter], true);
    }
    Ok(acceptable.then_some(Deflate { server_window_bits }))
}

/// §7.1.2: a decimal number from 8 to 15 without leading zeros.
fn window_bits(value: &str) -> Option<u8> {
    iter::zip(8.., WINDOW_BITS).find(|(_, text)| *text == value).map(|(bits, _)| bits)
}

/// The unread part of a header.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.0.chars();
        let next = chars.next();
        self.0 = chars.as_str();
        next
    }

    /// Consumes a separator and the white space around it.
    fn eat(&mut self, separator: char) -> bool {
        let Some(rest) = self.0.strip_prefix(separator) else { return false };
        self.0 = rest;
        self.skip();
        true
    }

    /// Consumes a token and the white space around it.
    fn token(&mut self) -> Option<&'a str> {
        self.skip();
        let end = self.0.find(|char| !is_token_char(char)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        self.skip();
        (!token.is_empty()).then_some(token)
    }

    /// Consumes a token or a quoted string with a token (RFC 6455 §9.1).
    fn value(&mut self) -> Option<Cow<'a, str>> {
        let Some(quoted) = self.0.strip_prefix('"') else { return self.token().map(Cow::Borrowed) };
        self.0 = quoted;
        let mut value = String::new();
        loop {
            match self.next()? {
                '"' => break,
                '\\' => value.push(self.next()?),
                char => value.push(char),
            }
        }
        self.skip();
        (!value.is_empty() && value.chars().all(is_token_char)).then_some(Cow::Owned(value))
    }
}

/// RFC 9110 §5.6.2.
fn is_token_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(headers: &[&str]) -> Result<Option<Deflate>, UpgradeError> {
        Deflate::negotiate(headers.iter().copied())
    }

    /// `bits`: the limit of the server's window in the response.
    fn accepted(header: &str, bits: Option<u8>) {
        assert_eq!(negotiate(&[header]), Ok(Some(Deflate { server_window_bits: bits })), "{header}");
    }

    fn declined(header: &str) {
        assert_eq!(negotiate(&[header]), Ok(None), "{header}");
    }

    #[test]
    fn offers_of_browsers_and_libraries_are_accepted() {
        accepted("permessage-deflate", None);
        // Chromium, Node's ws, Firefox.
        accepted("permessage-deflate; client_max_window_bits", None);
        // Python's websockets.
        accepted("permessage-deflate; server_max_window_bits=12; client_max_window_bits=12", Some(12));
        accepted("permessage-deflate; server_no_context_takeover; client_no_context_takeover", None);
        accepted("permessage-deflate;client_max_window_bits=\"10\" ; server_max_window_bits = 8", Some(8));
        accepted("permessage-deflate; server_max_window_bits=\"1\\5\"", Some(15));
    }

    #[test]
    fn invalid_offers_are_declined() {
        for parameter in [
            "unknown",
            "server_no_context_takeover=true",
            "client_no_context_takeover=1",
            "server_max_window_bits",
            "server_max_window_bits=7",
            "server_max_window_bits=16",
            "server_max_window_bits=08",
            "server_max_window_bits=+9",
            "server_max_window_bits=x",
            "client_max_window_bits=7",
            "client_max_window_bits=16",
            "Server_No_Context_Takeover",
            "server_no_context_takeover; server_no_context_takeover",
            "client_max_window_bits; client_max_window_bits=9",
            "server_max_window_bits=9; server_max_window_bits=9",
        ] {
            declined(&format!("permessage-deflate; {parameter}"));
            // The next offer is used, in the same header or another one.
            accepted(
                &format!("permessage-deflate; {parameter}, permessage-deflate; server_max_window_bits=9"),
                Some(9),
            );
            let first = format!("permessage-deflate; {parameter}");
            assert_eq!(
                negotiate(&[&first, "permessage-deflate"]),
                Ok(Some(Deflate { server_window_bits: None }))
            );
        }
        declined("x-webkit-deflate-frame");
        declined("permessage-bzip2; level=9, mux");
        declined("");
        assert_eq!(negotiate(&[]), Ok(None));
    }

    #[test]
    fn first_acceptable_offer_is_selected() {
        accepted("other;a=b,, permessage-deflate; server_max_window_bits=10, permessage-deflate", Some(10));
    }

    #[test]
    fn malformed_headers_are_rejected() {
        for header in [
            ";",
            "permessage-deflate;",
            "permessage-deflate;;client_max_window_bits",
            "permessage-deflate; server_max_window_bits=",
            "permessage-deflate; server_max_window_bits=\"9",
            "permessage-deflate; server_max_window_bits=\"\"",
            "permessage-deflate; server_max_window_bits=\"9 \"",
            "permessage-deflate client_max_window_bits",
            "permessage-deflate, =",
            "permessage-deflate; a=\"\\",
            "\"permessage-deflate\"",
            "permessage-deflate; ü",
        ] {
            assert!(matches!(negotiate(&[header]), Err(UpgradeError::Malformed(_))), "{header}");
        }
    }

    #[test]
    fn response_states_the_negotiated_parameters() {
        for (bits, end) in [(None, ""), (Some(15), "; server_max_window_bits=15")] {
            let mut out = Vec::new();
            Deflate { server_window_bits: bits }.push_answer(&mut out);
            let expected = "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
                client_no_context_takeover";
            assert_eq!(String::from_utf8(out.clone()).unwrap(), format!("{expected}{end}"));
            let value = out.strip_prefix(b"\r\nSec-WebSocket-Extensions: ").unwrap();
            assert!(accepts_offer(value));
        }
        assert_eq!(negotiate(&[OFFER]), Ok(Some(Deflate { server_window_bits: None })));
        for other in ["permessage-deflate", "other; server_no_context_takeover"] {
            assert!(!accepts_offer(other.as_bytes()), "{other}");
        }
    }
}

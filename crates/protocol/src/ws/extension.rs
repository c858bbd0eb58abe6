//! The negotiation of permessage-deflate (RFC 7692 §5, §7.1) from the server's side: which of a client's offers is
//! accepted, and what the answer says.
//!
//! Neither side keeps a window from one message to the next: `server_no_context_takeover` and
//! `client_no_context_takeover` are in every answer, asked for or not (§7.1.1), so an idle connection needs no memory.
//! A smaller window of the server's is always agreed to; the client's own stays as large as it likes.

use std::borrow::Cow;
use std::iter;

use super::handshake::UpgradeError;

const NAME: &str = "permessage-deflate";
/// §7.1.2: of a window of 256 bytes to 32 KiB.
const WINDOW_BITS: [&str; 8] = ["8", "9", "10", "11", "12", "13", "14", "15"];
/// Of a window that any deflate stream keeps to.
pub const WINDOW_BITS_MAX: u8 = 15;

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflate {
    /// 8 to 15. `None`: the client set no limit.
    server_window_bits: Option<u8>,
}

impl Deflate {
    /// The first offer that can be accepted (§5); all are to follow the grammar (RFC 6455 §9.1).
    pub(super) fn negotiate<'a>(
        headers: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Self>, UpgradeError> {
        let mut agreed = None;
        for header in headers {
            let mut rest = Rest(header);
            loop {
                let accepted = match rest.token() {
                    Some(name) => offer(name, &mut rest)?,
                    None => None, // an element of a list may be empty (RFC 9110 §5.6.1)
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

    /// Of the server's window. A message that is not longer keeps to it by itself: nothing in it refers further back.
    pub fn server_window_bits(self) -> u8 {
        self.server_window_bits.unwrap_or(WINDOW_BITS_MAX)
    }

    pub(super) fn push_answer(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\nSec-WebSocket-Extensions: ");
        out.extend_from_slice(NAME.as_bytes());
        out.extend_from_slice(b"; server_no_context_takeover; client_no_context_takeover");
        if let Some(bits) = self.server_window_bits {
            // §7.1.2.1: this is how it is accepted.
            out.extend_from_slice(format!("; server_max_window_bits={bits}").as_bytes());
        }
    }
}

/// What a client offers; it takes what [`Deflate`] answers.
pub(super) const OFFER: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits";

/// Whether a server's answer accepts [`OFFER`] with windows that are dropped after each message.
pub(super) fn accepts_offer(answer: &[u8]) -> bool {
    let mut parameters = answer.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    parameters.next() == Some(NAME.as_bytes()) && parameters.any(|name| name == b"server_no_context_takeover")
}

const MALFORMED: UpgradeError = UpgradeError::Malformed("Sec-WebSocket-Extensions is malformed");

/// The parameters behind a name. `None`: the offer is declined.
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
        // §7.1: what is unknown, has a value that it cannot have, or comes twice, declines the offer.
        let parameter = match (name, bits) {
            ("server_no_context_takeover", None) => 0,
            ("client_no_context_takeover", None) => 1,
            // Any window of the client's will do.
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

/// What is left of a header.
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

    /// Takes a separator, with the white space on both of its sides.
    fn eat(&mut self, separator: char) -> bool {
        let Some(rest) = self.0.strip_prefix(separator) else { return false };
        self.0 = rest;
        self.skip();
        true
    }

    /// Takes a token, with the white space on both of its sides.
    fn token(&mut self) -> Option<&'a str> {
        self.skip();
        let end = self.0.find(|char| !is_token_char(char)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        self.skip();
        (!token.is_empty()).then_some(token)
    }

    /// Takes a token, or a quoted one (RFC 6455 §9.1).
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

    /// `bits`: what the answer limits the server's window to.
    fn accepted(header: &str, bits: Option<u8>) {
        assert_eq!(negotiate(&[header]), Ok(Some(Deflate { server_window_bits: bits })), "{header}");
    }

    fn declined(header: &str) {
        assert_eq!(negotiate(&[header]), Ok(None), "{header}");
    }

    #[test]
    fn what_browsers_and_libraries_offer_is_accepted() {
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
    fn an_offer_that_section_7_1_forbids_is_declined() {
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
            // The next one counts, in the same header or in another.
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
    fn the_first_that_can_be_accepted_is() {
        accepted("other;a=b,, permessage-deflate; server_max_window_bits=10, permessage-deflate", Some(10));
    }

    #[test]
    fn what_breaks_the_grammar_is_refused() {
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
    fn the_answer_names_what_was_agreed_on() {
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

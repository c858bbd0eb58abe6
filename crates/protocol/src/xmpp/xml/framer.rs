//! Splits a stream of bytes into stream headers, top-level elements and the stream's end. Every byte is
//! scanned once, whatever the splits of the transport; pieces that arrive whole are borrowed from the
//! caller's buffer, and only the start of an incomplete one is copied.
//!
//! It limits depth, attributes and bytes, and rejects comments, document types and processing instructions at
//! their first bytes. `parse` checks matching tags, names and prefixes. After an error or a break the framer
//! is empty.

use std::fmt;
use std::ops::ControlFlow;

use super::name::is_space;
use super::{Limits, XmlError};

/// A piece at the top level of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    /// `<stream:stream …>`, with the XML declaration if present.
    Header(&'a str),
    /// A complete element.
    Element(&'a str),
    /// `</stream:stream>`
    Close,
    /// A run of white space, which RFC 6120 §4.6.1 uses as keep-alive.
    Whitespace,
}

/// The state between reads: one pointer, null while nothing is incomplete.
#[derive(Default)]
pub struct Framer {
    partial: Option<Box<Partial>>,
}

// Each of a million idle connections holds one.
const _: () = assert!(size_of::<Framer>() == 8);

struct Partial {
    scanner: Scanner,
    data: Vec<u8>,
}

impl Framer {
    pub const fn new() -> Self {
        Self { partial: None }
    }

    /// Calls `on` for every complete piece. Returns the number of bytes consumed: all, unless `on` breaks.
    /// The bytes after a break must not be parsed as this stream (RFC 6120 §5.4.3.3).
    pub fn feed(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<usize, XmlError> {
        let (mut scanner, mut held) = match self.partial.take() {
            Some(partial) => (partial.scanner, Some(partial.data)),
            None => (Scanner::default(), None),
        };
        let mut start = 0;
        let mut between = false;
        for (at, byte) in bytes.iter().enumerate() {
            let step = scanner.step(*byte, limits)?;
            if step == Step::Between {
                (start, between) = (at + 1, true);
                continue;
            }
            if std::mem::take(&mut between) && on(Input::Whitespace).is_break() {
                return Ok(at);
            }
            if held.as_ref().map_or(0, Vec::len) + (at + 1 - start) > limits.element_bytes_max {
                return Err(XmlError::TooMuch("the size of an element"));
            }
            if step == Step::More {
                continue;
            }
            let mut joined = held.take();
            let piece = match &mut joined {
                Some(joined) => {
                    joined.extend_from_slice(&bytes[start..=at]);
                    joined
                }
                None => &bytes[start..=at],
            };
            let text = std::str::from_utf8(piece).map_err(|_| XmlError::NotUtf8)?;
            let flow = on(match step {
                Step::Header => Input::Header(text),
                Step::Close => Input::Close,
                Step::Element | Step::More | Step::Between => Input::Element(text),
            });
            (scanner, start) = (Scanner::default(), at + 1);
            if flow.is_break() {
                return Ok(start);
            }
        }
        if between && on(Input::Whitespace).is_break() {
            return Ok(bytes.len());
        }
        if start < bytes.len() || held.is_some() {
            let mut data = held.unwrap_or_default();
            data.extend_from_slice(&bytes[start..]);
            self.partial = Some(Box::new(Partial { scanner, data }));
        }
        Ok(bytes.len())
    }

    /// Whether nothing is incomplete, so nothing is buffered.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Heap bytes held for an incomplete piece.
    pub fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| size_of::<Partial>() + partial.data.capacity())
    }
}

impl fmt::Debug for Framer {
    /// Omits the bytes, which may contain a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Framer({} bytes held)", self.held_bytes())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// White space at the top level.
    Between,
    /// Within a piece.
    More,
    Header,
    Element,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Top,
    /// After a declaration, before its header.
    BeforeHeader,
    Text,
    /// After `<`.
    Less,
    /// In the name of a start tag.
    Name,
    /// In a start tag, outside of attribute values.
    Tag,
    /// After a `/` in a start tag.
    Slash,
    /// In an attribute value, which ends with this quote.
    Value(u8),
    EndTag,
    /// After `<!`, within an element.
    Bang,
    /// In CDATA: the number of preceding `]`, at most two.
    Cdata(u8),
    /// After `<?` at the top level.
    Declaration,
    /// After a `?` in the declaration.
    DeclarationEnd,
}

const STREAM: &[u8] = b"stream:stream";
const CDATA: &[u8] = b"[CDATA[";
const DECLARATION: &[u8] = b"xml";
/// In `matched`: the word differs.
const OTHER: u8 = u8::MAX;

#[derive(Debug, Clone, Copy, Default)]
struct Scanner {
    state: State,
    /// The number of matched bytes of an expected word, or [`OTHER`].
    matched: u8,
    after_declaration: bool,
    depth: u16,
    attributes: u16,
}

impl Scanner {
    fn step(&mut self, byte: u8, limits: &Limits) -> Result<Step, XmlError> {
        let more = |state: State| Ok((state, Step::More));
        let (state, step) = match (self.state, byte) {
            (State::Top, byte) if is_space(byte) => Ok((State::Top, Step::Between)),
            (State::Top | State::BeforeHeader | State::Text, b'<') => more(State::Less),
            (State::Top, _) => Err(XmlError::BadFormat("text between elements")),
            (State::BeforeHeader, byte) if is_space(byte) => more(State::BeforeHeader),
            (State::BeforeHeader, _) => Err(XmlError::BadFormat("text before the stream header")),
            (State::Text, _) => more(State::Text),
            (State::Less, byte) => self.begin(byte, limits).map(|state| (state, Step::More)),
            (State::Name, byte) if !is_space(byte) && byte != b'/' && byte != b'>' => {
                self.expect(STREAM, byte);
                more(State::Name)
            }
            (State::Name | State::Tag | State::Slash, b'>') => self.end_start_tag(),
            (State::Name | State::Tag, b'/') => more(State::Slash),
            (State::Slash, _) => Err(XmlError::NotWellFormed("a '/' within a tag")),
            (State::Tag, quote @ (b'\'' | b'"')) => {
                self.attributes += 1;
                match self.attributes > limits.attributes_max {
                    true => Err(XmlError::TooMuch("the attributes of an element")),
                    false => more(State::Value(quote)),
                }
            }
            (State::Name | State::Tag | State::Value(_), b'<') => {
                Err(XmlError::NotWellFormed("a '<' within a tag"))
            }
            (State::Name | State::Tag, _) => more(State::Tag),
            (State::Value(quote), byte) => more(if byte == quote { State::Tag } else { State::Value(quote) }),
            (State::EndTag, b'>') => self.end_tag(),
            (State::EndTag, byte) => {
                if !(is_space(byte) && usize::from(self.matched) == STREAM.len()) {
                    self.expect(STREAM, byte);
                }
                more(State::EndTag)
            }
            (State::Bang, byte) => {
                self.expect(CDATA, byte);
                match usize::from(self.matched) {
                    len if len == CDATA.len() => more(State::Cdata(0)),
                    len if len < CDATA.len() => more(State::Bang),
                    _ => Err(XmlError::Restricted("a comment or document type")),
                }
            }
            (State::Cdata(2), b'>') => more(State::Text),
            (State::Cdata(brackets), b']') => more(State::Cdata((brackets + 1).min(2))),
            (State::Cdata(_), _) => more(State::Cdata(0)),
            (State::Declaration, b'?') if usize::from(self.matched) == DECLARATION.len() => {
                more(State::DeclarationEnd)
            }
            (State::Declaration, byte) => self.in_declaration(byte).map(|state| (state, Step::More)),
            (State::DeclarationEnd, b'>') => {
                self.after_declaration = true;
                more(State::BeforeHeader)
            }
            (State::DeclarationEnd, _) => Err(XmlError::NotWellFormed("a '?' in the XML declaration")),
        }?;
        self.state = state;
        Ok(step)
    }

    /// Handles the byte after `<`.
    fn begin(&mut self, byte: u8, limits: &Limits) -> Result<State, XmlError> {
        self.matched = 0;
        match byte {
            b'/' => Ok(State::EndTag),
            b'!' if self.depth > 0 => Ok(State::Bang),
            b'!' => Err(XmlError::Restricted("a comment or document type")),
            b'?' if self.depth == 0 && !self.after_declaration => Ok(State::Declaration),
            b'?' => Err(XmlError::Restricted("a processing instruction")),
            byte if is_space(byte) || matches!(byte, b'<' | b'>' | b'=' | b'"' | b'\'' | b'&') => {
                Err(XmlError::NotWellFormed("a tag without a name"))
            }
            byte => {
                self.depth += 1;
                self.attributes = 0;
                if self.depth > limits.depth_max {
                    return Err(XmlError::TooMuch("the nesting depth"));
                }
                self.expect(STREAM, byte);
                Ok(State::Name)
            }
        }
    }

    fn expect(&mut self, word: &[u8], byte: u8) {
        self.matched = match word.get(usize::from(self.matched)) {
            Some(expected) if *expected == byte => self.matched + 1,
            _ => OTHER,
        };
    }

    /// `<?xml …`: everything else is a processing instruction.
    fn in_declaration(&mut self, byte: u8) -> Result<State, XmlError> {
        if usize::from(self.matched) < DECLARATION.len() {
            self.expect(DECLARATION, byte);
            if self.matched == OTHER {
                return Err(XmlError::Restricted("a processing instruction"));
            }
        } else if byte == b'<' || byte == b'>' {
            return Err(XmlError::NotWellFormed("an invalid XML declaration"));
        }
        Ok(State::Declaration)
    }

    /// Handles the `>` of a start tag or an empty element.
    fn end_start_tag(&mut self) -> Result<(State, Step), XmlError> {
        let is_empty = self.state == State::Slash;
        let is_stream = self.depth == 1 && usize::from(self.matched) == STREAM.len();
        if is_stream && !is_empty {
            return Ok((State::Top, Step::Header));
        }
        if self.after_declaration && self.depth == 1 {
            return Err(XmlError::BadFormat("an XML declaration without a stream header"));
        }
        self.depth -= u16::from(is_empty);
        match self.depth {
            0 => Ok((State::Top, Step::Element)),
            _ => Ok((State::Text, Step::More)),
        }
    }

    fn end_tag(&mut self) -> Result<(State, Step), XmlError> {
        match self.depth {
            0 if usize::from(self.matched) == STREAM.len() && !self.after_declaration => {
                Ok((State::Top, Step::Close))
            }
            0 => Err(XmlError::NotWellFormed("an end tag without a start")),
            1 => Ok((State::Top, Step::Element)),
            _ => {
                self.depth -= 1;
                Ok((State::Text, Step::More))
            }
        }
    }
}

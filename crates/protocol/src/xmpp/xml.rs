//! The XML that XMPP allows (RFC 6120 §11.1): elements, attributes, text, CDATA and the predefined entities;
//! no comments, processing instructions, document types or entities of one's own.
//!
//! [`framer`] cuts a byte stream into top-level pieces without looking into them; [`parse`] reads one whole
//! piece into an [`element::Tree`] and is the only judge of well-formedness; `write` makes the
//! other direction. Both readers are bounded by the same [`Limits`], and nothing is allocated for what is
//! over them.

pub mod element;
pub mod framer;
mod name;
pub mod parse;
pub(super) mod write;

pub use element::{Element, Tree};
pub use framer::{Framer, Input};
pub use parse::{Header, parse_element, parse_header};

use noroshi_types::CloseReason;

use super::error::StreamError;
use super::namespace as ns;

/// What a peer's XML may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of one top-level element, from `<` to `>`; RFC 6120 §13.12 asks for at least 10,000.
    pub element_bytes_max: usize,
    /// Elements inside each other, the top-level one counted.
    pub depth_max: u16,
    /// Of one element, namespace declarations counted.
    pub attributes_max: u16,
    /// Elements and pieces of text in one top-level element.
    pub nodes_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            element_bytes_max: noroshi_types::limits::CLIENT_MESSAGE_BYTES,
            // A PubSub item with a data form inside a forwarded message is 9 deep.
            depth_max: 32,
            attributes_max: 32,
            nodes_max: 1_024,
        }
    }
}

/// Why a peer's XML ends the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// XML 1.0 or Namespaces in XML 1.0 is broken (RFC 6120 §11.3).
    #[error("not well-formed: {0}")]
    NotWellFormed(&'static str),
    /// RFC 6120 §11.1.
    #[error("not allowed in XMPP: {0}")]
    Restricted(&'static str),
    /// Text where only elements may stand.
    #[error("bad format: {0}")]
    BadFormat(&'static str),
    /// RFC 6120 §11.6.
    #[error("not UTF-8")]
    NotUtf8,
    #[error("over the limit: {0}")]
    TooMuch(&'static str),
}

impl XmlError {
    /// The condition that answers it.
    pub fn condition(&self) -> StreamError {
        match self {
            XmlError::NotWellFormed(_) => StreamError::NotWellFormed,
            XmlError::Restricted(_) => StreamError::RestrictedXml,
            XmlError::BadFormat(_) => StreamError::BadFormat,
            XmlError::NotUtf8 => StreamError::UnsupportedEncoding,
            XmlError::TooMuch(_) => StreamError::PolicyViolation,
        }
    }

    pub fn reason(&self) -> CloseReason {
        match self {
            XmlError::NotWellFormed(_) | XmlError::Restricted(_) | XmlError::BadFormat(_) => {
                CloseReason::BadMessage
            }
            XmlError::NotUtf8 => CloseReason::InvalidUtf8,
            XmlError::TooMuch(_) => CloseReason::TooBig,
        }
    }
}

/// Namespace declarations of a stream header that its elements inherit. Nearly every client declares
/// `jabber:client` and `stream` and nothing else: that costs nothing.
#[derive(Debug, Default)]
pub struct Scope {
    more: Vec<Declaration>,
}

#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    prefix: Box<str>,
    namespace: Box<str>,
}

impl Scope {
    /// Prefixes besides `stream`.
    const DECLARATIONS_MAX: usize = 8;
    const DECLARATION_BYTES_MAX: usize = 256;

    /// What a prefix means at the top level; `""` is the default namespace.
    pub(super) fn namespace(&self, prefix: &str) -> Option<&str> {
        match prefix {
            "" => return Some(ns::CLIENT),
            "stream" => return Some(ns::STREAM),
            _ => {}
        }
        let found = self.more.iter().find(|known| &*known.prefix == prefix);
        found.map(|known| &*known.namespace)
    }

    fn declare(&mut self, prefix: &str, namespace: &str) -> Result<(), XmlError> {
        if self.more.len() == Self::DECLARATIONS_MAX
            || prefix.len() + namespace.len() > Self::DECLARATION_BYTES_MAX
        {
            return Err(XmlError::TooMuch("namespace declarations of the stream header"));
        }
        self.more.push(Declaration { prefix: prefix.into(), namespace: namespace.into() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;

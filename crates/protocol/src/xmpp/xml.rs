//! The subset of XML that XMPP permits (RFC 6120 §11.1): elements, attributes, text, CDATA and the predefined
//! entities; no comments, processing instructions, document types or custom entities.
//!
//! [`framer`] splits a byte stream into top-level pieces without interpreting them; [`parse`] parses a piece
//! into an [`element::Tree`] and fully validates it; `write` serializes. Framer and parser enforce the same
//! [`Limits`], and allocate nothing for input beyond them.

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

/// Limits of a peer's XML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size of a top-level element, from `<` to `>`; RFC 6120 §13.12 requires at least 10,000.
    pub element_bytes_max: usize,
    /// Nesting depth, including the top-level element.
    pub depth_max: u16,
    /// Attributes per element, including namespace declarations.
    pub attributes_max: u16,
    /// Elements and texts per top-level element.
    pub nodes_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            element_bytes_max: noroshi_types::limits::CLIENT_MESSAGE_BYTES,
            // A PubSub item with a data form in a forwarded message is 9 levels deep.
            depth_max: 32,
            attributes_max: 32,
            nodes_max: 1_024,
        }
    }
}

/// Why a peer's XML ends the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// A violation of XML 1.0 or Namespaces in XML 1.0 (RFC 6120 §11.3).
    #[error("not well-formed: {0}")]
    NotWellFormed(&'static str),
    /// RFC 6120 §11.1.
    #[error("not allowed in XMPP: {0}")]
    Restricted(&'static str),
    /// Text where only elements are permitted.
    #[error("bad format: {0}")]
    BadFormat(&'static str),
    /// RFC 6120 §11.6.
    #[error("not UTF-8")]
    NotUtf8,
    #[error("limit exceeded: {0}")]
    TooMuch(&'static str),
}

impl XmlError {
    /// The condition of the stream error.
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

/// The namespace declarations of a stream header, which its elements inherit. Nearly every client declares
/// only `jabber:client` and `stream`, which takes no memory.
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
    /// Limit of prefixes other than `stream`.
    const DECLARATIONS_MAX: usize = 8;
    const DECLARATION_BYTES_MAX: usize = 256;

    /// The namespace of a prefix at the top level; `""` is the default namespace.
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

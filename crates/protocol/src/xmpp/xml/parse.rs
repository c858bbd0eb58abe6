//! Parses one complete piece of a stream: strictly XML 1.0 and Namespaces in XML 1.0 (RFC 6120 §11.3), with
//! the restrictions of RFC 6120 §11.1. Limits are checked while the tree grows, without recursion.

use std::borrow::Cow;

use super::element::{Attribute, Content, Node, Tree};
use super::{Limits, Scope, XmlError, name};
use crate::xmpp::namespace as ns;

use XmlError::NotWellFormed;

/// The attributes of a stream header (RFC 6120 §4.7), and the declarations that its elements inherit.
#[derive(Debug, Default)]
pub struct Header {
    pub from: Option<Box<str>>,
    pub to: Option<Box<str>>,
    pub version: Option<Box<str>>,
    pub id: Option<Box<str>>,
    pub lang: Option<Box<str>>,
    /// `xmlns`, the content namespace.
    pub content: Option<Box<str>>,
    pub scope: Scope,
}

/// Parses one element, which must be all of `text`. `scope`: the inherited declarations, if any.
pub fn parse_element<'a>(
    text: &'a str,
    scope: Option<&'a Scope>,
    limits: &Limits,
) -> Result<Tree<'a>, XmlError> {
    if text.len() > limits.element_bytes_max {
        return Err(XmlError::TooMuch("the size of an element"));
    }
    let mut parser = Parser { text, at: 0, limits };
    let mut tree = Tree { nodes: Vec::new(), attributes: Vec::new() };
    let mut bindings = Bindings { scope, known: Vec::new() };
    // Node and qualified name of the open elements.
    let mut open: Vec<(usize, &'a str)> = Vec::new();
    loop {
        let node = match parser.next()? {
            Token::Start { name, is_empty, attributes } => {
                if open.len() >= usize::from(limits.depth_max) {
                    return Err(XmlError::TooMuch("the nesting depth"));
                }
                bindings.declare(&attributes, open.len())?;
                let content = element(name, attributes, &bindings, &mut tree.attributes)?;
                if is_empty {
                    bindings.leave(open.len());
                } else {
                    open.push((tree.nodes.len(), name));
                }
                content
            }
            Token::End(name) => {
                let (at, opened) = open.pop().ok_or(NotWellFormed("an end tag without a start"))?;
                if opened != name {
                    return Err(NotWellFormed("the end tag does not match the open element"));
                }
                bindings.leave(open.len());
                tree.nodes[at].end = tree.nodes.len();
                if open.is_empty() {
                    break;
                }
                continue;
            }
            Token::Text(text) => Content::Text(text),
        };
        if tree.nodes.len() >= usize::from(limits.nodes_max) {
            return Err(XmlError::TooMuch("the number of elements and texts"));
        }
        let is_text = matches!(node, Content::Text(_));
        if is_text && open.is_empty() {
            return Err(XmlError::BadFormat("text outside of an element"));
        }
        tree.nodes.push(Node { content: node, end: tree.nodes.len() + 1 });
        if open.is_empty() {
            break;
        }
    }
    match parser.rest().is_empty() {
        true => Ok(tree),
        false => Err(XmlError::BadFormat("more than one element")),
    }
}

/// Parses `<stream:stream …>`, with an optional XML declaration before it.
pub fn parse_header(text: &str, limits: &Limits) -> Result<Header, XmlError> {
    let mut parser = Parser { text, at: 0, limits };
    if text.starts_with("<?") {
        parser.declaration()?;
    }
    let Token::Start { attributes, is_empty: false, .. } = parser.next()? else {
        return Err(XmlError::BadFormat("the stream header is missing"));
    };
    let mut header = Header::default();
    let mut stream = None;
    for (name, value) in attributes {
        let place = match name {
            "xmlns" => &mut header.content,
            "xmlns:stream" => &mut stream,
            "from" => &mut header.from,
            "to" => &mut header.to,
            "version" => &mut header.version,
            "id" => &mut header.id,
            "xml:lang" => &mut header.lang,
            _ => {
                if let Some(prefix) = name.strip_prefix("xmlns:") {
                    check_declaration(prefix, &value)?;
                    header.scope.declare(prefix, &value)?;
                }
                continue;
            }
        };
        *place = Some(value.into());
    }
    match stream.as_deref() {
        // RFC 6120 §4.9.3.10
        Some(ns::STREAM) => Ok(header),
        Some(_) | None => Err(NotWellFormed("the prefix \"stream\" does not have the stream namespace")),
    }
}

enum Token<'a> {
    Start { name: &'a str, is_empty: bool, attributes: Vec<(&'a str, Cow<'a, str>)> },
    End(&'a str),
    Text(Cow<'a, str>),
}

struct Parser<'a, 'l> {
    text: &'a str,
    at: usize,
    limits: &'l Limits,
}

impl<'a> Parser<'a, '_> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, len: usize) -> &'a str {
        let taken = &self.text[self.at..self.at + len];
        self.at += len;
        taken
    }

    fn eat(&mut self, word: &str) -> bool {
        let is_there = self.rest().starts_with(word);
        self.at += if is_there { word.len() } else { 0 };
        is_there
    }

    /// Returns whether there was any.
    fn skip_space(&mut self) -> bool {
        let rest = self.rest();
        let len = rest.bytes().position(|byte| !name::is_space(byte)).unwrap_or(rest.len());
        self.at += len;
        len > 0
    }

    /// Takes everything up to and including `end`. Returns the text before it.
    fn until(&mut self, end: &str, what: &'static str) -> Result<&'a str, XmlError> {
        let len = self.rest().find(end).ok_or(NotWellFormed(what))?;
        let taken = self.take(len);
        self.at += end.len();
        Ok(taken)
    }

    fn next(&mut self) -> Result<Token<'a>, XmlError> {
        let rest = self.rest();
        if !rest.starts_with('<') {
            let len = rest.find('<').ok_or(NotWellFormed("an unterminated element"))?;
            let text = self.take(len);
            if text.contains("]]>") {
                return Err(NotWellFormed("\"]]>\" in a text")); // XML 1.0 §2.4
            }
            return unescape(text, Place::Text).map(Token::Text);
        }
        if self.eat("<![CDATA[") {
            let text = self.until("]]>", "an unterminated CDATA section")?;
            return unescape(text, Place::Cdata).map(Token::Text);
        }
        if self.eat("</") {
            let name = self.name()?;
            self.skip_space();
            return match self.eat(">") {
                true => Ok(Token::End(name)),
                false => Err(NotWellFormed("an end tag with more than a name")),
            };
        }
        match rest.as_bytes().get(1) {
            Some(b'!') => return Err(XmlError::Restricted("a comment or document type")),
            Some(b'?') => return Err(XmlError::Restricted("a processing instruction")),
            _ => self.at += 1,
        }
        self.start_tag()
    }

    fn name(&mut self) -> Result<&'a str, XmlError> {
        let name = self.take(name::length(self.rest()));
        name::split(name).map(|_| name).ok_or(NotWellFormed("an invalid name"))
    }

    fn start_tag(&mut self) -> Result<Token<'a>, XmlError> {
        let name = self.name()?;
        let mut attributes: Vec<(&'a str, Cow<'a, str>)> = Vec::new();
        loop {
            let spaced = self.skip_space();
            let is_empty = self.eat("/>");
            if is_empty || self.eat(">") {
                return Ok(Token::Start { name, is_empty, attributes });
            }
            if !spaced {
                return Err(NotWellFormed("no white space before an attribute"));
            }
            if attributes.len() >= usize::from(self.limits.attributes_max) {
                return Err(XmlError::TooMuch("the attributes of an element"));
            }
            let (name, value) = self.attribute()?;
            if attributes.iter().any(|(known, _)| *known == name) {
                return Err(NotWellFormed("a duplicate attribute")); // XML 1.0 §3.1
            }
            attributes.push((name, value));
        }
    }

    fn attribute(&mut self) -> Result<(&'a str, Cow<'a, str>), XmlError> {
        let name = self.name()?;
        self.skip_space();
        if !self.eat("=") {
            return Err(NotWellFormed("an attribute without a value"));
        }
        self.skip_space();
        let quote = match self.rest().as_bytes().first() {
            Some(b'\'') => "'",
            Some(b'"') => "\"",
            _ => return Err(NotWellFormed("an attribute value without quotes")),
        };
        self.at += 1;
        let value = self.until(quote, "an unterminated attribute value")?;
        if value.contains('<') {
            return Err(NotWellFormed("a '<' in an attribute value"));
        }
        Ok((name, unescape(value, Place::Attribute)?))
    }

    /// XML 1.0 §2.8; RFC 6120 §11.5, §11.6.
    fn declaration(&mut self) -> Result<(), XmlError> {
        self.at += "<?".len();
        let text = self.until("?>", "an unterminated XML declaration")?;
        let after = text.strip_prefix("xml").filter(|after| after.starts_with([' ', '\t', '\r', '\n']));
        let after = after.ok_or(XmlError::Restricted("a processing instruction"))?;
        let mut inner = Parser { text: after, at: 0, limits: self.limits };
        let mut names = Vec::new();
        while inner.skip_space() && !inner.rest().is_empty() {
            let (name, value) = inner.attribute()?;
            match (name, names.len()) {
                ("version", 0) if value == "1.0" => {}
                ("encoding", 1) if value.eq_ignore_ascii_case("utf-8") => {}
                ("encoding", 1) => return Err(XmlError::NotUtf8),
                ("standalone", 1 | 2) if value == "yes" || value == "no" => {}
                _ => return Err(NotWellFormed("an invalid XML declaration")),
            }
            names.push(name);
        }
        if !inner.rest().is_empty() || names.is_empty() {
            return Err(NotWellFormed("an invalid XML declaration"));
        }
        self.skip_space();
        Ok(())
    }
}

/// Prefixes in scope. The innermost declaration of a prefix applies.
struct Bindings<'a> {
    scope: Option<&'a Scope>,
    /// Depth of the declaring element, prefix, namespace.
    known: Vec<(usize, &'a str, Cow<'a, str>)>,
}

impl<'a> Bindings<'a> {
    fn declare(&mut self, attributes: &[(&'a str, Cow<'a, str>)], depth: usize) -> Result<(), XmlError> {
        for (name, value) in attributes {
            let prefix = match (*name, name.strip_prefix("xmlns:")) {
                ("xmlns", _) => "",
                (_, Some(prefix)) => prefix,
                _ => continue,
            };
            check_declaration(prefix, value)?;
            self.known.push((depth, prefix, value.clone()));
        }
        Ok(())
    }

    /// Returns to `depth`: drops the declarations of its element and deeper ones.
    fn leave(&mut self, depth: usize) {
        while self.known.pop_if(|(declared, ..)| *declared >= depth).is_some() {}
    }

    fn namespace(&self, prefix: &str) -> Result<Cow<'a, str>, XmlError> {
        if prefix == "xml" {
            return Ok(Cow::Borrowed(ns::XML));
        }
        if let Some((.., namespace)) = self.known.iter().rev().find(|(_, known, _)| *known == prefix) {
            return Ok(namespace.clone());
        }
        let inherited = match self.scope {
            Some(scope) => scope.namespace(prefix),
            None => prefix.is_empty().then_some(""),
        };
        inherited.map(Cow::Borrowed).ok_or(NotWellFormed("an undeclared prefix"))
    }
}

/// Namespaces in XML §3: the restrictions of declarations.
fn check_declaration(prefix: &str, namespace: &str) -> Result<(), XmlError> {
    let is_wrong = match prefix {
        "xml" => namespace != ns::XML,
        "xmlns" => true,
        "" => namespace == ns::XML || namespace == ns::XMLNS,
        _ => namespace.is_empty() || namespace == ns::XML || namespace == ns::XMLNS,
    };
    if is_wrong { Err(NotWellFormed("an invalid namespace declaration")) } else { Ok(()) }
}

/// Resolves names; appends the attributes to those of earlier elements.
fn element<'a>(
    name: &'a str,
    attributes: Vec<(&'a str, Cow<'a, str>)>,
    bindings: &Bindings<'a>,
    all: &mut Vec<Attribute<'a>>,
) -> Result<Content<'a>, XmlError> {
    let begin = all.len();
    for (name, value) in attributes {
        let (prefix, name) = name.split_once(':').unwrap_or(("", name));
        if prefix == "xmlns" || (prefix.is_empty() && name == "xmlns") {
            continue;
        }
        // Namespaces in XML §6.2: the default namespace does not apply to attributes.
        let namespace = if prefix.is_empty() { Cow::Borrowed("") } else { bindings.namespace(prefix)? };
        if all[begin..].iter().any(|known| known.name == name && known.namespace == namespace) {
            return Err(NotWellFormed("a duplicate attribute")); // Namespaces in XML §6.3
        }
        all.push(Attribute { namespace, name, value });
    }
    let (prefix, name) = name.split_once(':').unwrap_or(("", name));
    if prefix == "xmlns" {
        return Err(NotWellFormed("an element with the prefix \"xmlns\""));
    }
    Ok(Content::Element { namespace: bindings.namespace(prefix)?, name, attributes: begin..all.len() })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    Attribute,
    Cdata,
}

/// Normalizes line ends (XML 1.0 §2.11), white space in values (§3.3.3) and references (§4.1); borrows if
/// none occur. Every character must be permitted by §2.2.
fn unescape(text: &str, place: Place) -> Result<Cow<'_, str>, XmlError> {
    if !text.chars().all(name::is_char) {
        return Err(NotWellFormed("a character that XML does not permit"));
    }
    let is_special = |byte: u8| match byte {
        b'&' => place != Place::Cdata,
        b'\r' => true,
        b'\n' | b'\t' => place == Place::Attribute,
        _ => false,
    };
    let Some(first) = text.bytes().position(is_special) else { return Ok(Cow::Borrowed(text)) };
    // An escape is never shorter than its character.
    let mut out = String::with_capacity(text.len());
    let (plain, mut rest) = text.split_at(first);
    out.push_str(plain);
    while let Some(byte) = rest.bytes().next() {
        rest = match byte {
            b'&' => {
                let (inside, after) = rest[1..].split_once(';').ok_or(NotWellFormed("a '&' without ';'"))?;
                out.push(reference(inside)?);
                after
            }
            _ => {
                let len = if rest.starts_with("\r\n") { 2 } else { 1 };
                out.push(if place == Place::Attribute { ' ' } else { '\n' });
                &rest[len..]
            }
        };
        let (plain, after) = rest.split_at(rest.bytes().position(is_special).unwrap_or(rest.len()));
        out.push_str(plain);
        rest = after;
    }
    Ok(Cow::Owned(out))
}

fn reference(name: &str) -> Result<char, XmlError> {
    let digits = match name {
        "lt" => return Ok('<'),
        "gt" => return Ok('>'),
        "amp" => return Ok('&'),
        "apos" => return Ok('\''),
        "quot" => return Ok('"'),
        _ => name.strip_prefix('#').ok_or(XmlError::Restricted("an entity that is not predefined"))?,
    };
    let (digits, radix) = digits.strip_prefix('x').map_or((digits, 10), |digits| (digits, 16));
    // `from_str_radix` would accept a sign.
    let number = match digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => u32::from_str_radix(digits, radix).ok(),
        false => None,
    };
    let found = number.and_then(char::from_u32).filter(|c| name::is_char(*c));
    found.ok_or(NotWellFormed("a reference to an invalid character"))
}

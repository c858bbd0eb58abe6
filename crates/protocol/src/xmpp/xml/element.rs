//! A top-level element as a flat tree: nodes in document order, each with the end of its descendants.
//! Everything without escapes is borrowed from the text and the stream's [`Scope`](super::Scope).

use std::borrow::Cow;
use std::ops::Range;

/// Node 0 is the root, always an element; there are at most `Limits::nodes_max` nodes.
#[derive(Debug)]
pub struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) attributes: Vec<Attribute<'a>>,
}

#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) content: Content<'a>,
    /// The index after its last descendant: `at < end <= nodes.len()`.
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) enum Content<'a> {
    Element {
        namespace: Cow<'a, str>,
        name: &'a str,
        /// The range of its attributes in [`Tree::attributes`].
        attributes: Range<usize>,
    },
    Text(Cow<'a, str>),
}

/// An attribute that is not a namespace declaration.
#[derive(Debug)]
pub(super) struct Attribute<'a> {
    /// `""` without prefix.
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: &'a str,
    pub(super) value: Cow<'a, str>,
}

impl Tree<'_> {
    pub fn root(&self) -> Element<'_> {
        Element { tree: self, at: 0 }
    }
}

/// An element of a [`Tree`].
#[derive(Debug, Clone, Copy)]
pub struct Element<'t> {
    tree: &'t Tree<'t>,
    at: usize,
}

/// A child of an element.
#[derive(Debug, Clone, Copy)]
pub enum Child<'t> {
    Element(Element<'t>),
    Text(&'t str),
}

impl<'t> Element<'t> {
    fn parts(self) -> (&'t str, &'t str, &'t [Attribute<'t>]) {
        match &self.tree.nodes[self.at].content {
            Content::Element { namespace, name, attributes } => {
                (namespace, name, &self.tree.attributes[attributes.clone()])
            }
            Content::Text(_) => ("", "", &[]),
        }
    }

    pub fn namespace(self) -> &'t str {
        self.parts().0
    }

    /// The local name.
    pub fn name(self) -> &'t str {
        self.parts().1
    }

    pub fn is(self, namespace: &str, name: &str) -> bool {
        self.name() == name && self.namespace() == namespace
    }

    /// The value of an attribute without prefix.
    pub fn attribute(self, name: &str) -> Option<&'t str> {
        self.attributes().find(|(namespace, known, _)| namespace.is_empty() && *known == name).map(|it| it.2)
    }

    /// Namespace, name and value of each attribute.
    pub fn attributes(self) -> impl Iterator<Item = (&'t str, &'t str, &'t str)> {
        self.parts().2.iter().map(|it| (&*it.namespace, it.name, &*it.value))
    }

    pub fn nodes(self) -> impl Iterator<Item = Child<'t>> {
        let (tree, end) = (self.tree, self.tree.nodes[self.at].end);
        let mut next = self.at + 1;
        std::iter::from_fn(move || {
            let at = next;
            let node = tree.nodes.get(at).filter(|_| at < end)?;
            next = node.end;
            Some(match &node.content {
                Content::Text(text) => Child::Text(text),
                Content::Element { .. } => Child::Element(Element { tree, at }),
            })
        })
    }

    pub fn children(self) -> impl Iterator<Item = Element<'t>> {
        self.nodes().filter_map(|node| match node {
            Child::Element(element) => Some(element),
            Child::Text(_) => None,
        })
    }

    /// The first child element with this name.
    pub fn child(self, namespace: &str, name: &str) -> Option<Element<'t>> {
        self.children().find(|child| child.is(namespace, name))
    }

    /// The concatenated text children; copied only if there are several.
    pub fn text(self) -> Cow<'t, str> {
        let mut pieces = self.nodes().filter_map(|node| match node {
            Child::Text(text) => Some(text),
            Child::Element(_) => None,
        });
        match (pieces.next(), pieces.next()) {
            (None, _) => Cow::Borrowed(""),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(first), Some(second)) => {
                let mut text = [first, second].concat();
                text.extend(pieces);
                Cow::Owned(text)
            }
        }
    }
}

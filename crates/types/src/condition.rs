//! Topic conditions in FCM's syntax: `'a' in topics && ('b' in topics || !('c' in topics))`.
//!
//! `!` binds tightest, then `&&`, then `||`. Length, topics and depth are limited before a node is allocated,
//! so a hostile condition is cheap.

use std::fmt;

use crate::{Invalid, Topic, limits};

/// A parsed condition, which keeps its original text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    text: Box<str>,
    root: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Topic(Topic),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
}

impl Condition {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.len() > limits::CONDITION_BYTES_MAX {
            return Err(Invalid::new(format!(
                "a condition must be at most {} bytes long",
                limits::CONDITION_BYTES_MAX
            )));
        }
        let mut parser = Parser { text, at: 0, topics: 0, depth: 0 };
        let root = parser.any()?;
        match parser.rest().is_empty() {
            true => Ok(Self { text: text.into(), root }),
            false => Err(parser.expected("&&, || or the end of the condition")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Whether the condition matches a device with these subscriptions.
    pub fn matches(&self, subscribed: impl Fn(&Topic) -> bool) -> bool {
        self.root.matches(&subscribed)
    }

    /// Whether the condition matches devices without any subscription (`!('a' in topics)`).
    pub fn matches_none(&self) -> bool {
        self.matches(|_| false)
    }

    /// All topics that it contains, without duplicates.
    pub fn topics(&self) -> Vec<&Topic> {
        let mut topics = Vec::new();
        self.root.collect(&mut topics);
        topics.sort();
        topics.dedup();
        topics
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    fn matches(&self, subscribed: &impl Fn(&Topic) -> bool) -> bool {
        match self {
            Node::Topic(topic) => subscribed(topic),
            Node::Not(inner) => !inner.matches(subscribed),
            Node::And(a, b) => a.matches(subscribed) && b.matches(subscribed),
            Node::Or(a, b) => a.matches(subscribed) || b.matches(subscribed),
        }
    }

    fn collect<'a>(&'a self, topics: &mut Vec<&'a Topic>) {
        match self {
            Node::Topic(topic) => topics.push(topic),
            Node::Not(inner) => inner.collect(topics),
            Node::And(a, b) | Node::Or(a, b) => {
                a.collect(topics);
                b.collect(topics);
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    topics: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expected(&mut self, what: &str) -> Invalid {
        self.rest();
        Invalid::new(format!("in the condition at byte {}: expected {what}", self.at))
    }

    fn any(&mut self) -> Result<Node, Invalid> {
        let mut node = self.all()?;
        while self.take("||") {
            node = Node::Or(Box::new(node), Box::new(self.all()?));
        }
        Ok(node)
    }

    fn all(&mut self) -> Result<Node, Invalid> {
        let mut node = self.unary()?;
        while self.take("&&") {
            node = Node::And(Box::new(node), Box::new(self.unary()?));
        }
        Ok(node)
    }

    fn unary(&mut self) -> Result<Node, Invalid> {
        self.depth += 1;
        if self.depth > limits::CONDITION_DEPTH_MAX {
            return Err(Invalid::new(format!(
                "a condition must be nested at most {} levels deep",
                limits::CONDITION_DEPTH_MAX
            )));
        }
        let node = if self.take("!") {
            Node::Not(Box::new(self.unary()?))
        } else if self.take("(") {
            let inner = self.any()?;
            if !self.take(")") {
                return Err(self.expected("')'"));
            }
            inner
        } else {
            self.topic()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn topic(&mut self) -> Result<Node, Invalid> {
        let quote = match self.rest().chars().next() {
            Some(c @ ('\'' | '"')) => c,
            _ => return Err(self.expected("'topic' in topics, '!' or '('")),
        };
        let name = self.rest()[1..].split_once(quote).map(|(name, _)| name);
        let Some(name) = name else { return Err(self.expected("a closing quote")) };
        self.at += name.len() + 2;
        let topic = Topic::parse(name)?;
        self.topics += 1;
        if self.topics > limits::CONDITION_TOPICS_MAX {
            return Err(Invalid::new(format!(
                "a condition may contain at most {} topics",
                limits::CONDITION_TOPICS_MAX
            )));
        }
        if !self.take("in") || !self.take("topics") {
            return Err(self.expected("\"in topics\""));
        }
        Ok(Node::Topic(topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, subscribed: &[&str], expected: bool) {
        let condition = Condition::parse(text).expect(text);
        assert_eq!(
            condition.matches(|t| subscribed.contains(&t.as_str())),
            expected,
            "{text} with {subscribed:?}"
        );
    }

    #[test]
    fn operators_bind_as_documented() {
        check("'a' in topics", &["a"], true);
        check("'a' in topics && !('b' in topics)", &["a"], true);
        check("'a' in topics && !('b' in topics)", &["a", "b"], false);
        check("'a' in topics || 'b' in topics && 'c' in topics", &["a"], true);
        check("('a' in topics || 'b' in topics) && 'c' in topics", &["a"], false);
        check("!'a' in topics", &[], true);
        check("\"a\"in topics", &["a"], true);
    }

    #[test]
    fn negation_matches_devices_without_subscriptions() {
        assert!(Condition::parse("!('a' in topics)").is_ok_and(|c| c.matches_none()));
        assert!(Condition::parse("'a' in topics").is_ok_and(|c| !c.matches_none()));
    }

    #[test]
    fn errors_state_the_position() {
        let check = |text: &str, part: &str| {
            let error = Condition::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("", "at byte 0");
        check("'a' in", "at byte 6");
        check("'a' in topics &&", "at byte 16");
        check("('a' in topics", "')'");
        check("'a", "closing quote");
        check("'a' in topics 'b' in topics", "at byte 14");
        check("'$everyone' in topics", "reserved");
        check(&"!".repeat(100), "deep");
        check(&["'a' in topics"; 6].join("||"), "at most 5 topics");
    }

    proptest! {
        #[test]
        fn never_panics(text in "['ab!&|() intopics\u{e9}]{0,60}") {
            let _ = Condition::parse(&text);
        }
    }
}

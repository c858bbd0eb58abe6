//! Writes the XML of toasts: elements with attributes, whose values are escaped.

/// Escapes a text for an element or a quoted attribute. Characters that XML 1.0 does not allow are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // Parsers would turn them into spaces inside attributes.
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\t' => out.push_str("&#9;"),
            // XML 1.0 §2.2
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            character => out.push(character),
        }
    }
    out
}

/// `<name a="b" …>`, without the closing bracket.
pub(super) fn open(name: &str, attributes: &[(&str, &str)]) -> String {
    let attributes: String =
        attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value))).collect();
    format!("<{name}{attributes}")
}

/// An element without content.
pub(super) fn empty(name: &str, attributes: &[(&str, &str)]) -> String {
    format!("{}/>", open(name, attributes))
}

/// An element with an escaped text.
pub(super) fn text(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes_from_its_element_or_attribute() {
        assert_eq!(
            text("text", "a<b>&\"c'</text>"),
            "<text>a&lt;b&gt;&amp;&quot;c&apos;&lt;/text&gt;</text>"
        );
        assert_eq!(empty("a", &[("b", "\" x=\"\n")]), "<a b=\"&quot; x=&quot;&#10;\"/>");
        assert_eq!(escaped("a\u{0}\u{b}b\u{ffff}é🎉"), "abé🎉");
    }
}

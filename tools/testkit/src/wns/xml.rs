//! Reads XML as strictly as WNS: one root element, balanced tags, quoted attributes, known entities. No comments, no
//! declarations.

/// What a document contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) root: String,
    /// The texts of elements, in order.
    pub(super) texts: Vec<String>,
}

pub(super) fn read(text: &str) -> Result<Document, &'static str> {
    let (mut open, mut root, mut texts) = (Vec::<&str>::new(), None, Vec::new());
    let mut rest = text;
    loop {
        let (before, tag) = match rest.split_once('<') {
            Some(parts) => parts,
            None if rest.trim().is_empty() && open.is_empty() => break,
            None => return Err("text outside of the root element"),
        };
        if !before.is_empty() {
            if open.is_empty() && !before.trim().is_empty() {
                return Err("text outside of the root element");
            }
            texts.push(unescaped(before)?);
        }
        let end = tag_end(tag).ok_or("a tag does not end")?;
        let (inside, after) = (&tag[..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err("an end tag does not fit");
            }
            continue;
        }
        let (inside, is_empty) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("a name is invalid");
        }
        check_attributes(attributes)?;
        if open.is_empty() && root.replace(name.to_owned()).is_some() {
            return Err("there is more than one root element");
        }
        if !is_empty {
            open.push(name);
        }
    }
    Ok(Document { root: root.ok_or("there is no element")?, texts })
}

/// The place of `>` outside of quotes.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quoted = false;
    tag.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b'>' && !quoted
    })
}

fn check_attributes(mut rest: &str) -> Result<(), &'static str> {
    while !rest.trim().is_empty() {
        let (name, value) = rest.trim_start().split_once("=\"").ok_or("an attribute has no value")?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("the name of an attribute is invalid");
        }
        let (value, after) = value.split_once('"').ok_or("the value of an attribute does not end")?;
        if value.contains('<') {
            return Err("an attribute contains <");
        }
        unescaped(value)?;
        rest = after;
    }
    Ok(())
}

fn unescaped(text: &str) -> Result<String, &'static str> {
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, after) = part.split_once(';').ok_or("an entity does not end")?;
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "#10" => '\n',
            "#13" => '\r',
            "#9" => '\t',
            _ => return Err("an entity is unknown"),
        });
        out.push_str(after);
    }
    match out
        .chars()
        .any(|character| matches!(character, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}'))
    {
        true => Err("a control character"),
        false => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_documents_are_read() {
        let read = |text| read(text).map(|document| (document.root, document.texts));
        assert_eq!(
            read(
                "<toast launch=\"{&quot;a&quot;:1}\"><visual><text>a &lt;b&gt;</text><image src=\"x\"/></visual></toast>"
            ),
            Ok(("toast".to_owned(), vec!["a <b>".to_owned()]))
        );
        for bad in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a b=c/>",
            "<a b=\"<\"/>",
            "<a>&x;</a>",
            "<a>& b</a>",
            "<a>\u{1}</a>",
            "<a/>x",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}

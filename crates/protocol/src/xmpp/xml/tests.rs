//! The framer and the parser: accepted and rejected input, independence of splits, and a comparison with
//! quick-xml.

use std::ops::ControlFlow;

use proptest::prelude::*;
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;

use super::element::Child;
use super::*;

fn limits() -> Limits {
    Limits { element_bytes_max: 200, depth_max: 4, attributes_max: 4, nodes_max: 8 }
}

/// Returns the pieces without white space, and the final error.
fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &Limits) -> (Vec<String>, Option<XmlError>) {
    let (mut framer, mut heard) = (Framer::new(), Vec::new());
    for piece in pieces {
        let result = framer.feed(piece, limits, &mut |input| {
            match input {
                Input::Whitespace => {}
                Input::Close => heard.push("close".to_owned()),
                Input::Header(text) => heard.push(format!("header {text}")),
                Input::Element(text) => heard.push(format!("element {text}")),
            }
            ControlFlow::Continue(())
        });
        assert!(framer.held_bytes() <= 2 * limits.element_bytes_max + 64);
        match result {
            Ok(consumed) => assert_eq!(consumed, piece.len()),
            Err(error) => {
                assert!(framer.is_idle());
                return (heard, Some(error));
            }
        }
    }
    (heard, None)
}

#[test]
fn stream_is_split_at_the_top_level() {
    let stream = "<?xml version='1.0'?>\n<stream:stream a='>' to=\"/>\">  <a/>\n<b x='/b>'><c>]]></c><![CDATA[</b>]]]></b><stream:x/>\
                  <stream:stream><stream:streams></stream:streams><d ></d > </stream:stream  > ";
    let expected = [
        "header <?xml version='1.0'?>\n<stream:stream a='>' to=\"/>\">",
        "element <a/>",
        "element <b x='/b>'><c>]]></c><![CDATA[</b>]]]></b>",
        "element <stream:x/>",
        "header <stream:stream>",
        "element <stream:streams></stream:streams>",
        "element <d ></d >",
        "close",
    ];
    assert_eq!(feed([stream.as_bytes()], &limits()), (expected.map(str::to_owned).to_vec(), None));
    assert_eq!(feed(stream.as_bytes().chunks(1), &limits()).0, expected);
}

#[test]
fn white_space_is_reported_and_break_drops_the_rest() {
    let (mut framer, mut heard) = (Framer::new(), 0);
    let consumed = framer.feed(b" \n<a/> ", &limits(), &mut |input| {
        heard += 1;
        if input == Input::Whitespace { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!((consumed, heard), (Ok(6), 2));
    assert!(framer.is_idle());
}

#[test]
fn stream_errors_are_distinguished() {
    let check = |stream: &str, expected: &str| {
        let (_, error) = feed([stream.as_bytes()], &limits());
        let outbox = error.map(|error| error.condition().as_str());
        assert_eq!(outbox, Some(expected), "{stream}");
        assert_eq!(feed(stream.as_bytes().chunks(1), &limits()).1, error, "{stream}");
    };
    for stream in
        ["<!DOCTYPE a>", "<!-- a -->", "<a><!-- b --></a>", "<a><!DOCTYPE>", "<a><?b?></a>", "<?php 1?>"]
    {
        check(stream, "restricted-xml");
    }
    for stream in
        ["x", "<a/>x", "<a/>\0", "<?xml version='1.0'?>x", "<?xml version='1.0'?><a/>", "\u{FEFF}<a/>"]
    {
        check(stream, "bad-format");
    }
    for stream in ["</a>", "< a/>", "<>", "<a/ >", "<a <b/>", "<a b='<'/>", "</stream:streamx>", "<?xml ? a"]
    {
        check(stream, "not-well-formed");
    }
    check("<a><b><c><d><e/>", "policy-violation");
    check("<a b='1' c='2' d='3' e='4' f='5'/>", "policy-violation");
    check(&format!("<a>{}", "x".repeat(200)), "policy-violation");
    check(&format!("<{}", "x".repeat(200)), "policy-violation");
}

#[test]
fn text_must_be_utf_8() {
    for bytes in [&b"<a>\xff</a>"[..], b"<a b='\xc3'/>", b"<a>\xed\xa0\x80</a>", b"<\xe9/>"] {
        assert_eq!(feed([bytes], &limits()).1, Some(XmlError::NotUtf8));
        assert_eq!(feed(bytes.chunks(1), &limits()).1, Some(XmlError::NotUtf8));
    }
}

fn read(text: &str) -> Result<String, XmlError> {
    let scope = Scope::default();
    parse_element(text, Some(&scope), &limits()).map(|tree| shown(tree.root()))
}

/// Renders names in Clark notation.
fn shown(element: Element<'_>) -> String {
    let mut out = format!("({{{}}}{}", element.namespace(), element.name());
    for (namespace, name, value) in element.attributes() {
        out += &format!(" {{{namespace}}}{name}={value:?}");
    }
    for node in element.nodes() {
        match node {
            Child::Text(text) => out += &format!(" {text:?}"),
            Child::Element(child) => out += &format!(" {}", shown(child)),
        }
    }
    out + ")"
}

#[test]
fn element_is_parsed_with_its_namespaces() {
    let check = |text: &str, expected: &str| assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
    check("<a/>", "({jabber:client}a)");
    check("<stream:a b='c'/>", "({http://etherx.jabber.org/streams}a {}b=\"c\")");
    check("<a xmlns='u' xmlns:p='v' p:b='1'><p:c/></a>", "({u}a {v}b=\"1\" ({v}c))");
    check("<a><b xmlns='u'><c/></b><d/></a>", "({jabber:client}a ({u}b ({u}c)) ({jabber:client}d))");
    check(
        "<a><p:b xmlns:p='u'/><c xmlns:p='v'><p:d/></c></a>",
        "({jabber:client}a ({u}b) ({jabber:client}c ({v}d)))",
    );
    check("<a xmlns=''/>", "({}a)");
    check("<a xml:lang='en'/>", "({jabber:client}a {http://www.w3.org/XML/1998/namespace}lang=\"en\")");
    check("<a>x<b/>y<![CDATA[<&]]>z</a>", "({jabber:client}a \"x\" ({jabber:client}b) \"y\" \"<&\" \"z\")");
    check("<a>&lt;&amp;&gt;&apos;&quot;&#65;&#x1F600;</a>", "({jabber:client}a \"<&>'\\\"A\u{1F600}\")");
    check("<a b='1\n2\t3\r\n4&#10;5'>1\r\n2\r3</a>", "({jabber:client}a {}b=\"1 2 3 4\\n5\" \"1\\n2\\n3\")");
    check("<a\tb = \"'\"\n></a >", "({jabber:client}a {}b=\"'\")");
    check("<\u{65E5}.1-\u{B7}/>", "({jabber:client}\u{65E5}.1-\u{B7})");
}

#[test]
fn element_errors_are_distinguished() {
    let check = |text: &str, expected: &str| {
        assert_eq!(read(text).map_err(|error| error.condition().as_str()), Err(expected), "{text}");
    };
    for text in [
        "",
        "<",
        "<a",
        "<a>",
        "<a></b>",
        "<a></a b>",
        "<a b/>",
        "<a b=c/>",
        "<a b='c'd='e'/>",
        "<a b='c/>",
        "<a b='' b=''/>",
        "<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''/>",
        "<p:a/>",
        "<a p:b=''/>",
        "<a:/>",
        "<:a/>",
        "<a:b:c/>",
        "<1/>",
        "<-a/>",
        "<a 1='x'/>",
        "<xmlns:a/>",
        "<a>]]></a>",
        "<a>&</a>",
        "<a>&lt</a>",
        "<a>&#0;</a>",
        "<a>&#xD800;</a>",
        "<a>&#x110000;</a>",
        "<a>&#;</a>",
        "<a>&#+65;</a>",
        "<a>\u{1}</a>",
        "<a>\u{FFFE}</a>",
        "<a b='\u{8}'/>",
        "<a><![CDATA[</a>",
        "<a><![CDATA[\u{0}]]></a>",
        "<a xmlns:p=''/>",
        "<a xmlns:xml='u'/>",
        "<a xmlns:xmlns='u'/>",
        "</a>",
        "<a xmlns='http://www.w3.org/2000/xmlns/'/>",
        "<a xmlns:p='http://www.w3.org/XML/1998/namespace'/>",
    ] {
        check(text, "not-well-formed");
    }
    for text in
        ["<a>&nbsp;</a>", "<a b='&x;'/>", "<a><!-- --></a>", "<?xml version='1.0'?><a/>", "<!DOCTYPE a>"]
    {
        check(text, "restricted-xml");
    }
    for text in ["<a/><b/>", "<a/> ", " <a/>", "x<a/>"] {
        check(text, "bad-format");
    }
    for text in [
        "<a><a><a><a><a/></a></a></a></a>",
        "<a b='' c='' d='' e='' f=''/>",
        "<a><b/><b/><b/><b/><b/><b/><b/><b/></a>",
        "<a>1<b/>2<b/>3<b/>4<b/>5</a>",
        &format!("<a>{}</a>", "x".repeat(200)),
    ] {
        check(text, "policy-violation");
    }
}

#[test]
fn header_may_declare_more_prefixes() {
    let text = "<?xml version=\"1.0\" encoding='UTF-8' standalone='no' ?>\n<stream:stream to='x.example' from='a@x.example' \
                xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' xmlns:p='u' version='1.0' xml:lang='ja'>";
    let roomy = Limits::default();
    let header = parse_header(text, &roomy).unwrap();
    assert_eq!(header.to.as_deref(), Some("x.example"));
    assert_eq!((header.version.as_deref(), header.lang.as_deref()), (Some("1.0"), Some("ja")));
    let tree = parse_element("<a><p:b/></a>", Some(&header.scope), &roomy).unwrap();
    assert_eq!(shown(tree.root()), "({jabber:client}a ({u}b))");
    let check = |text: &str, expected: &str| {
        let outbox = parse_header(text, &roomy).map(|_| ()).map_err(|error| error.condition().as_str());
        assert_eq!(outbox, Err(expected), "{text}");
    };
    check("<stream:stream xmlns='jabber:client'>", "not-well-formed");
    check("<stream:stream xmlns:stream='jabber:client'>", "not-well-formed");
    check("<?xml version='1.1'?><stream:stream>", "not-well-formed");
    check("<?xml encoding='UTF-8'?><stream:stream>", "not-well-formed");
    check("<?xml?><stream:stream>", "restricted-xml");
    check("<?xml-stylesheet a='b'?><stream:stream>", "restricted-xml");
    check("<?xml version='1.0' encoding='UTF-16'?><stream:stream>", "unsupported-encoding");
    let many: String = (0..9).map(|n| format!(" xmlns:p{n}='u'")).collect();
    check(&format!("<stream:stream xmlns:stream='{}'{many}>", ns::STREAM), "policy-violation");
    check(&format!("<stream:stream xmlns:p='{}'>", "u".repeat(300)), "policy-violation");
}

/// Renders the same with quick-xml.
fn shown_by_quick_xml(text: &str) -> Result<String, String> {
    let mut reader = NsReader::from_str(text);
    let (mut out, mut piece) = (String::new(), String::new());
    let namespace = |it: ResolveResult<'_>, default: &str| match it {
        ResolveResult::Bound(it) => Ok(it.0.to_owned()),
        ResolveResult::Unbound => Ok(default.to_owned()),
        ResolveResult::Unknown(prefix) => Err(format!("prefix {prefix:?}")),
    };
    loop {
        let (resolved, event) = reader.read_resolved_event().map_err(|error| error.to_string())?;
        let resolved = namespace(resolved, "jabber:client")?;
        if !matches!(event, Event::Text(_) | Event::GeneralRef(_) | Event::CData(_)) && !piece.is_empty() {
            out += &format!(" {:?}", std::mem::take(&mut piece));
        }
        match &event {
            Event::Start(tag) | Event::Empty(tag) => {
                let name = tag.local_name().into_inner().to_owned();
                out += &format!(" ({{{resolved}}}{name}");
                for attribute in tag.attributes() {
                    let attribute = attribute.map_err(|error| error.to_string())?;
                    if attribute.key.as_namespace_binding().is_some() {
                        continue;
                    }
                    let (resolved, name) = reader.resolver().resolve_attribute(attribute.key);
                    let name = name.into_inner().to_owned();
                    let value = attribute
                        .normalized_value(quick_xml::XmlVersion::Explicit1_0)
                        .map_err(|error| error.to_string())?;
                    out += &format!(" {{{}}}{name}={value:?}", namespace(resolved, "")?);
                }
                if matches!(event, Event::Empty(_)) {
                    out.push(')');
                }
            }
            Event::End(_) => out.push(')'),
            Event::Text(text) => piece += text,
            Event::CData(text) => piece += text,
            Event::GeneralRef(name) => {
                let name = format!("&{};", &**name);
                piece += &quick_xml::escape::unescape(&name).map_err(|error| error.to_string())?;
            }
            Event::Eof => return Ok(out.trim_start().to_owned()),
            other => return Err(format!("{other:?}")),
        }
    }
}

/// Renders our tree with adjacent texts joined and empty ones omitted.
fn joined(element: Element<'_>) -> String {
    let mut out = format!("({{{}}}{}", element.namespace(), element.name());
    for (namespace, name, value) in element.attributes() {
        out += &format!(" {{{namespace}}}{name}={value:?}");
    }
    let mut piece = String::new();
    let flush = |out: &mut String, piece: &mut String| {
        if !piece.is_empty() {
            *out += &format!(" {:?}", std::mem::take(piece));
        }
    };
    for node in element.nodes() {
        match node {
            Child::Text(text) => piece += text,
            Child::Element(child) => {
                flush(&mut out, &mut piece);
                out += &format!(" {}", joined(child));
            }
        }
    }
    flush(&mut out, &mut piece);
    out + ")"
}

/// Mostly well-formed, without input that the two normalize differently.
fn element_text() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "p:c", "q:d", "stream", "\u{e9}"]);
    let attribute = prop::sample::select(vec![
        "",
        " x='1'",
        " y=\"'&lt;\"",
        " xmlns='u'",
        " xmlns:p='v'",
        " xmlns:q=\"w'\"",
        " p:x=''",
        " xml:lang='en'",
    ]);
    let text =
        prop::sample::select(vec!["", "t", "&amp;", "&#x41;", " ", "<![CDATA[<x>&]]>", "\u{65E5}", "]]"]);
    let leaf = (name.clone(), attribute.clone(), text.clone())
        .prop_map(|(name, attribute, text)| format!("<{name}{attribute}>{text}</{name}>"));
    leaf.prop_recursive(4, 24, 4, move |inner| {
        (name.clone(), attribute.clone(), attribute.clone(), text.clone(), prop::collection::vec(inner, 0..4))
            .prop_map(|(name, first, second, text, inside)| match inside.is_empty() {
                true => format!("<{name}{first}{second}/>"),
                false => format!("<{name}{first}{second}>{text}{}</{name}>", inside.concat()),
            })
    })
}

proptest! {
    #[test]
    fn quick_xml_reads_the_same(text in element_text()) {
        let (scope, roomy) = (Scope::default(), Limits::default());
        if let Ok(tree) = parse_element(&text, Some(&scope), &roomy) {
            prop_assert_eq!(Ok(joined(tree.root())), shown_by_quick_xml(&text));
        }
    }

    #[test]
    fn splits_do_not_change_the_result(
        pieces in prop::collection::vec(prop_oneof![
            element_text(),
            prop::sample::select(vec![
                " ", "<stream:stream>", "</stream:stream>", "<?xml version='1.0'?>", "<a", "</a>", "/>", "'", "<!",
                "<![CDATA[", "]]>", "&", "\u{65E5}", "\0",
            ]).prop_map(str::to_owned),
        ], 0..6),
        size in 1..20_usize,
    ) {
        let text = pieces.concat();
        let whole = feed([text.as_bytes()], &Limits::default());
        prop_assert_eq!(&feed(text.as_bytes().chunks(size), &Limits::default()), &whole);
        prop_assert_eq!(&feed(text.as_bytes().chunks(1), &Limits::default()), &whole);
        // The parser accepts or rejects what the framer reports as one element, but never finds two.
        for element in whole.0.iter().filter_map(|heard| heard.strip_prefix("element ")) {
            let result = parse_element(element, Some(&Scope::default()), &Limits::default()).map(|_| ());
            prop_assert!(!matches!(result, Err(XmlError::BadFormat(_))), "{}", element);
        }
    }

    #[test]
    fn any_bytes_stay_within_the_limits(bytes in prop::collection::vec(any::<u8>(), 0..400), size in 1..9_usize) {
        prop_assert_eq!(feed(bytes.chunks(size), &limits()), feed([&bytes[..]], &limits()));
    }

    #[test]
    fn written_text_round_trips(text in any::<String>(), value in any::<String>()) {
        let mut out = Vec::new();
        write::push_text(&mut out, "a", &[("b", &value)], &text);
        let out = String::from_utf8(out).unwrap();
        let (scope, roomy) = (Scope::default(), Limits::default());
        let tree = parse_element(&out, Some(&scope), &roomy).unwrap();
        let sayable = |text: &str| text.chars().map(|c| if name::is_char(c) { c } else { '\u{FFFD}' }).collect::<String>();
        prop_assert_eq!(tree.root().text(), sayable(&text));
        prop_assert_eq!(tree.root().attribute("b").unwrap_or_default(), sayable(&value));
    }

    #[test]
    fn parsed_element_is_serialized_equally(text in element_text()) {
        let (scope, roomy) = (Scope::default(), Limits { depth_max: 64, ..Limits::default() });
        if let Ok(tree) = parse_element(&text, Some(&scope), &roomy) {
            let mut out = b"<o>".to_vec();
            out.extend(write::content_of(tree.root(), Some(ns::CLIENT), usize::MAX, |_| false).unwrap());
            out.extend_from_slice(b"</o>");
            let out = String::from_utf8(out).unwrap();
            let again = parse_element(&out, Some(&scope), &roomy).unwrap();
            let inside = |element: Element<'_>| joined(element).split_once(' ').map(|it| it.1.to_owned());
            let before: Vec<_> = tree.root().children().map(joined).collect();
            let after: Vec<_> = again.root().children().map(joined).collect();
            prop_assert_eq!(before, after, "{:?}", inside(again.root()));
            prop_assert_eq!(tree.root().text(), again.root().text());
        }
    }
}

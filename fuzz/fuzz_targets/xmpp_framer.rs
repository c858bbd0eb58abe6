//! Any bytes mean the same to the XMPP framer in one piece and in many, what it holds is bounded, and what it
//! takes for an element the reader takes for one or refuses: it never finds two, and what it reads can be
//! written and read again. The first byte is the size of the pieces; the rest is the wire.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::xmpp::xml::{Limits, Scope, XmlError, parse_element, parse_header};
use noroshi_protocol::xmpp::{Framer, Input};

const LIMITS: Limits = Limits { element_bytes_max: 4096, depth_max: 16, attributes_max: 16, nodes_max: 256 };

/// What was heard, as text, without white space: that is told once a piece.
fn feed(bytes: &[u8], piece: usize) -> (Vec<String>, Option<XmlError>) {
    let (mut framer, mut heard) = (Framer::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        let result = framer.feed(piece, &LIMITS, &mut |input| {
            if input != Input::Whitespace {
                heard.push(format!("{input:?}"));
            }
            match input {
                Input::Element(text) => {
                    let scope = Scope::default();
                    let read = parse_element(text, Some(&scope), &LIMITS);
                    assert!(!matches!(read, Err(XmlError::BadFormat(_))), "{text}");
                    if let Ok(tree) = read {
                        let nodes = tree.root().nodes().count();
                        assert!(nodes < usize::from(LIMITS.nodes_max));
                    }
                }
                Input::Header(text) => drop(parse_header(text, &LIMITS)),
                Input::Close | Input::Whitespace => {}
            }
            ControlFlow::Continue(())
        });
        assert!(framer.held_bytes() <= 2 * LIMITS.element_bytes_max + 64, "{framer:?}");
        if let Err(error) = result {
            assert!(framer.is_idle());
            return (heard, Some(error));
        }
    }
    (heard, None)
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, bytes @ ..] = bytes else { return };
    let whole = feed(bytes, usize::MAX);
    assert_eq!(feed(bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(feed(bytes, 1), whole);
});

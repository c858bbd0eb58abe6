//! The XMPP framer gives the same result for any bytes in one piece and in many, and its memory is bounded.
//! What it reports as one element the parser accepts as one or rejects, but never splits, and parsed elements
//! round-trip. The first byte is the size of the pieces; the rest is the wire.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::xmpp::xml::{Limits, Scope, XmlError, parse_element, parse_header};
use noroshi_protocol::xmpp::{Framer, Input};

const LIMITS: Limits = Limits { element_bytes_max: 4096, depth_max: 16, attributes_max: 16, nodes_max: 256 };

/// Renders the pieces as text, without white space, which is reported once per piece.
fn feed(bytes: &[u8], piece: usize) -> (Vec<String>, Option<XmlError>) {
    let (mut framer, mut received) = (Framer::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        let result = framer.feed(piece, &LIMITS, &mut |input| {
            if input != Input::Whitespace {
                received.push(format!("{input:?}"));
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
            return (received, Some(error));
        }
    }
    (received, None)
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, bytes @ ..] = bytes else { return };
    let whole = feed(bytes, usize::MAX);
    assert_eq!(feed(bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(feed(bytes, 1), whole);
});

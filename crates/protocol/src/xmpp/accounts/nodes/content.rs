//! The `<pubsub/>` element around the content of a response, in the two namespaces of XEP-0060.

use bytes::Bytes;

use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{push_end, push_start};

/// A response in the general namespace.
pub(super) fn content(build: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB)]);
    build(&mut out);
    push_end(&mut out, "pubsub");
    out.into()
}

/// A response in the owner namespace.
pub(super) fn owner_content(build: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB_OWNER)]);
    build(&mut out);
    push_end(&mut out, "pubsub");
    out.into()
}

//! The supported XML namespaces, each with the document that defines it.

/// RFC 6120 §4.8.
pub const STREAM: &str = "http://etherx.jabber.org/streams";
pub const CLIENT: &str = "jabber:client";
/// RFC 7395 §3.
pub const FRAMING: &str = "urn:ietf:params:xml:ns:xmpp-framing";
/// RFC 6120 §4.9.2.
pub const STREAM_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-streams";
/// RFC 6120 §8.3.2.
pub const STANZA_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-stanzas";
/// RFC 6120 §5.
pub const TLS: &str = "urn:ietf:params:xml:ns:xmpp-tls";
/// RFC 6120 §6.
pub const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";
/// XEP-0388.
pub const SASL2: &str = "urn:xmpp:sasl:2";
/// RFC 6120 §7.
pub const BIND: &str = "urn:ietf:params:xml:ns:xmpp-bind";
/// XEP-0386.
pub const BIND2: &str = "urn:xmpp:bind:0";
/// RFC 3921 §3.
pub const SESSION: &str = "urn:ietf:params:xml:ns:xmpp-session";
/// RFC 6121 §2.
pub const ROSTER: &str = "jabber:iq:roster";
/// XEP-0198.
pub const SM: &str = "urn:xmpp:sm:3";
/// XEP-0352.
pub const CSI: &str = "urn:xmpp:csi:0";
/// XEP-0199.
pub const PING: &str = "urn:xmpp:ping";
/// XEP-0030.
pub const DISCO_INFO: &str = "http://jabber.org/protocol/disco#info";
pub const DISCO_ITEMS: &str = "http://jabber.org/protocol/disco#items";
/// XEP-0060.
pub const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
pub const PUBSUB_ERRORS: &str = "http://jabber.org/protocol/pubsub#errors";
pub const PUBSUB_EVENT: &str = "http://jabber.org/protocol/pubsub#event";
pub const PUBSUB_OWNER: &str = "http://jabber.org/protocol/pubsub#owner";
/// XEP-0184.
pub const RECEIPTS: &str = "urn:xmpp:receipts";
/// XEP-0203.
pub const DELAY: &str = "urn:xmpp:delay";
/// XEP-0335.
pub const JSON: &str = "urn:xmpp:json:0";
/// XEP-0115.
pub const CAPABILITIES: &str = "http://jabber.org/protocol/caps";
/// XEP-0092.
pub const VERSION: &str = "jabber:iq:version";
/// XEP-0054.
pub const CARD: &str = "vcard-temp";
/// XEP-0280.
pub const CARBONS: &str = "urn:xmpp:carbons:2";
/// XEP-0297.
pub const FORWARD: &str = "urn:xmpp:forward:0";
/// XEP-0085.
pub const CHAT_STATES: &str = "http://jabber.org/protocol/chatstates";
/// XEP-0313.
pub const ARCHIVE: &str = "urn:xmpp:mam:2";
/// XEP-0059.
pub const RESULT_SET: &str = "http://jabber.org/protocol/rsm";
/// XEP-0359.
pub const STANZA_ID: &str = "urn:xmpp:sid:0";
/// XEP-0004.
pub const FORM: &str = "jabber:x:data";
/// XEP-0357.
pub const PUSH: &str = "urn:xmpp:push:0";
/// XEP-0334.
pub const HINTS: &str = "urn:xmpp:hints";
/// RFC 6121 §2.6.1.
pub const ROSTER_VERSIONS: &str = "urn:xmpp:features:rosterver";
/// RFC 6121 §3.4.1.
pub const PRE_APPROVAL: &str = "urn:xmpp:features:pre-approval";
/// XEP-0077.
pub const REGISTER: &str = "jabber:iq:register";
pub const REGISTER_FEATURE: &str = "http://jabber.org/features/iq-register";
/// Namespaces in XML 1.0 §3.
pub const XML: &str = "http://www.w3.org/XML/1998/namespace";
pub const XMLNS: &str = "http://www.w3.org/2000/xmlns/";
/// Our own: a notification, as the payload of a message and of a PubSub item.
pub const NOTIFICATION: &str = "urn:noroshi:notification:0";

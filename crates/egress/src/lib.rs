//! The one way out: every connection that this program opens to an address it was told by somebody else
//! passes here. Names are resolved here and the addresses checked (SSRF), proxies honoured, TLS spoken.

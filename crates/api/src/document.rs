//! The OpenAPI documents and the page made from them. The documents are written by hand and kept in the
//! repository; tests hold them against the routes, the codes and the parsers, so that they cannot
//! describe another service.

mod page;

/// What the public listener serves.
pub const PUBLIC: &str = include_str!("../openapi.json");

/// What the admin listener serves.
pub const ADMIN: &str = include_str!("../openapi-admin.json");

/// Nothing is loaded, run or framed; the page's style stands in it.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) use page::page;

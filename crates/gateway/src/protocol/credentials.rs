//! Credentials of an HTTP request that opens a connection.

/// The token that came with the request, and the app that the request names.
#[derive(Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    pub(crate) app: Option<String>,
}

//! Limits of a request head, the same for the gateway and the API.

use noroshi_protocol::http::Limits;

use crate::config::Config;

pub(crate) fn limits(config: &Config) -> Limits {
    Limits { head_bytes: config.limits.head_bytes, headers: config.limits.headers }
}

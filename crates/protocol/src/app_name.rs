//! How a request or a log-in names the app whose JWT it carries, besides the token itself.
//!
//! HTTP, WebSocket, server-sent events and long polling use `?app=NAME`, the header `Noroshi-App`, or the
//! host name `NAME.DOMAIN` if the node has a domain for that (`server.app_domain`); the first one present
//! applies.
//! MQTT and XMPP carry one user name and one password: the user name `DEVICE?app=NAME` corresponds to
//! `?app=NAME` in a URL. The name only selects the keys that verify the token, which must have been issued
//! for that app.

use std::borrow::Cow;

use noroshi_types::AppName;

pub const HEADER: &str = "noroshi-app";

/// Separates the device from the app in a user name.
const MARK: &str = "?app=";

/// The app that an HTTP request names by its query parameter `app`, its header [`HEADER`], or its `Host`.
pub fn of_request<'a>(
    query: Option<Cow<'a, str>>,
    header: Option<&'a str>,
    host: Option<&str>,
    domain: Option<&str>,
) -> Option<Cow<'a, str>> {
    query
        .or(header.map(|header| Cow::Borrowed(header.trim())))
        .or_else(|| of_host(host?, domain?).map(Cow::Owned))
}

/// Returns `shop` for the host `shop.push.example.com:443` and the domain `push.example.com`. Host names are
/// case-insensitive.
fn of_host(host: &str, domain: &str) -> Option<String> {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let host = name.map_or(host, |(host, _)| host).to_ascii_lowercase();
    let label = host.strip_suffix(&domain.to_ascii_lowercase())?.strip_suffix('.')?;
    // An app name contains no dot, so this also rejects more than one label.
    AppName::parse(label).ok().map(|_| label.to_owned())
}

/// Splits a user name into the device and, if present, the app. A name that does not end in `?app=` and a
/// valid app name is a device name as a whole.
pub(crate) fn split_user(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(MARK) {
        Some((device, app)) if AppName::parse(app).is_ok() => (device, Some(app)),
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_comes_from_query_header_or_host() {
        let domain = Some("push.example.com");
        let check = |query: Option<&'static str>, header, host, expected: Option<&str>| {
            let named = of_request(query.map(Cow::Borrowed), header, host, domain);
            assert_eq!(named.as_deref(), expected, "{query:?} {header:?} {host:?}");
        };
        let host = Some("Shop.Push.example.com:8080");
        check(Some("a"), Some("b"), host, Some("a"));
        check(None, Some(" b "), host, Some("b"));
        check(None, None, host, Some("shop"));
        check(None, None, Some("shop.push.example.com"), Some("shop"));
        for other in [
            "push.example.com",
            "a.b.push.example.com",
            "shoppush.example.com",
            "[::1]:80",
            ".push.example.com",
            "",
        ] {
            check(None, None, Some(other), None);
        }
        assert_eq!(of_request(None, None, host, None), None);
    }

    #[test]
    fn user_name_carries_the_app() {
        assert_eq!(split_user("d1"), ("d1", None));
        assert_eq!(split_user("d1?app=shop-2"), ("d1", Some("shop-2")));
        assert_eq!(split_user("?app=shop"), ("", Some("shop")));
        assert_eq!(split_user("a?app=b?app=c"), ("a?app=b", Some("c")));
        assert_eq!(split_user("d1?app="), ("d1?app=", None));
        assert_eq!(split_user("d1?app=Shop"), ("d1?app=Shop", None));
    }
}

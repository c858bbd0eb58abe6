//! The client of one app: requests its access tokens, and turns messages into requests to channels.
//!
//! A channel URI comes from a device. Its host must be Microsoft's, so that no device makes the node post anywhere else,
//! and no access token leaves for another server.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{Lane, PushToken, Timestamp};
use serde::Deserialize;
use url::{Host, Position, Url, form_urlencoded};

use super::config::Config;
use super::error;
use super::payload::Payload;
use crate::access::AccessToken;
use crate::exchange::{self, Authorization, Header, Request, Response, TokenRequest, Verdict};
use crate::push::{Answer, Push, Reason};

const HOSTS: &str = ".notify.windows.com";

#[derive(Debug)]
pub(crate) struct Client {
    config: Config,
    access: AccessToken,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, access: AccessToken::default() }
    }

    fn channel(&self, token: &PushToken) -> Result<Url, Reason> {
        let device: DeviceToken<'_> = serde_json::from_str(token.json.as_str()).map_err(|_| "bad_token")?;
        let url = Url::parse(&device.channel).map_err(|_| "bad_token")?;
        let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        let is_microsofts = url.scheme() == "https"
            && url.port().is_none()
            && matches!(url.host(), Some(Host::Domain(name)) if name.ends_with(HOSTS));
        let is_test =
            self.config.origin.as_deref().is_some_and(|origin| url.origin().ascii_serialization() == origin);
        match plain && (is_microsofts || is_test) {
            true => Ok(url),
            false => Err("bad_channel"),
        }
    }
}

/// The device's channel as the API accepted it.
#[derive(Deserialize)]
struct DeviceToken<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
}

impl exchange::Client for Client {
    fn origin(&self, token: &PushToken) -> Result<Arc<str>, Reason> {
        Ok(self.channel(token)?.origin().ascii_serialization().into())
    }

    fn authorization(&self, _: &str, now: Timestamp) -> Authorization {
        self.access.authorization(now)
    }

    fn token_request(&self, _: Timestamp) -> Option<TokenRequest> {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("client_secret", &self.config.client_secret)
            .append_pair("scope", self.config.scope)
            .finish();
        Some(TokenRequest {
            url: self.config.token_endpoint.clone(),
            content_type: "application/x-www-form-urlencoded",
            body: body.into(),
        })
    }

    fn authorized(&self, response: &Response<'_>) -> Result<(), Verdict> {
        match self.access.store(response) {
            true => Ok(()),
            false => Err(error::read_token(response)),
        }
    }

    fn renew(&self, _: &str, used: &Bytes, now: Timestamp) -> bool {
        self.access.renew(used, now)
    }

    fn request(&self, push: &Push, authorization: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer> {
        let payload = push.content.payload::<Payload>()?;
        let url = self.channel(&push.token).map_err(|reason| Answer::Refused { reason })?;
        let same_for_many = push.lane != Lane::Direct;
        let mut headers = Vec::with_capacity(8);
        let mut add = |name, value, shared| headers.push(Header { name, value, shared });
        if let Some(authorization) = authorization {
            add("authorization", authorization.clone(), true);
        }
        add("content-type", Bytes::from_static(payload.kind.content_type().as_bytes()), true);
        add("x-wns-type", Bytes::from_static(payload.kind.as_str().as_bytes()), true);
        add("x-wns-requestforstatus", Bytes::from_static(b"true"), true);
        for (name, value) in &payload.headers {
            add(name, value.clone(), same_for_many);
        }
        if payload.has_derived_ttl {
            add("x-wns-ttl", payload.ttl(now), same_for_many);
        }
        let path = url[Position::BeforePath..Position::AfterQuery].to_owned();
        Ok(Request { path, headers, body: payload.body.clone(), readable: None })
    }

    fn answer_header(&self) -> Option<&'static str> {
        Some("x-wns-status")
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        error::read(response)
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::PushService;
    use serde_json::json;

    use super::*;
    use crate::credential::tests::{parsed, wns_json};
    use crate::fields::Fields;
    use crate::fields::tests::{fields, json_text};
    use crate::push::tests::push;

    fn to(channel: &str) -> Push {
        let fields = Fields { notification: json_text(&json!({"title": "T"})), ..fields() };
        push(PushService::Wns, &json!({"service": "wns", "channel": channel}), fields)
    }

    #[test]
    fn only_microsofts_servers_are_posted_to() {
        let client = parsed(&wns_json()).client;
        let good = "https://db5p.notify.windows.com/?token=AwYAAAB%2f1";
        assert_eq!(client.origin(&to(good).token).as_deref(), Ok("https://db5p.notify.windows.com"));
        let request =
            client.request(&to(good), Some(&Bytes::from_static(b"Bearer x")), Timestamp(0)).unwrap();
        assert_eq!(request.path, "/?token=AwYAAAB%2f1");
        for bad in [
            "http://db5p.notify.windows.com/?token=1",
            "https://notify.windows.com.example/?token=1",
            "https://evilnotify.windows.com/?token=1",
            "https://a.notify.windows.com@example.com/",
            "https://u:p@a.notify.windows.com/",
            "https://a.notify.windows.com:8443/",
            "https://127.0.0.1/",
            "https://localhost/",
            "file:///etc/passwd",
            "",
        ] {
            assert!(client.origin(&to(bad).token).is_err(), "{bad}");
            assert!(client.request(&to(bad), None, Timestamp(0)).is_err(), "{bad}");
        }
        let mut test = wns_json();
        test["endpoint"] = json!("https://localhost:29446");
        let client = parsed(&test).client;
        assert!(client.origin(&to("https://localhost:29446/?token=1").token).is_ok());
        assert!(client.origin(&to("https://localhost:29447/?token=1").token).is_err());
    }

    #[test]
    fn a_token_is_requested_from_entra_or_from_live() {
        let body = |credential: &serde_json::Value| {
            let client = parsed(credential).client;
            let request = client.token_request(Timestamp(0)).unwrap();
            (request.url.to_string(), String::from_utf8(request.body.to_vec()).unwrap())
        };
        let (url, form) = body(&wns_json());
        assert_eq!(
            url,
            "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/oauth2/v2.0/token"
        );
        assert!(form.ends_with("&scope=https%3A%2F%2Fwns.windows.com%2F.default"), "{form}");
        let live = json!({"service": "wns", "client_id": "ms-app://s-1-15-2-1", "client_secret": "a+b&c"});
        let (url, form) = body(&live);
        assert_eq!(url, "https://login.live.com/accesstoken.srf");
        assert_eq!(
            form,
            "grant_type=client_credentials&client_id=ms-app%3A%2F%2Fs-1-15-2-1&client_secret=a%2Bb%26c&scope=notify.windows.com"
        );
    }
}

//! A configurable client of a push service, and the test's services and pushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use noroshi_egress::Egress;
use noroshi_push::exchange::{
    Authorization, Client, Header, Quota, Request, Response, TokenRequest, Verdict,
};
use noroshi_push::push::Reason;
use noroshi_push::{Answer, Config, Content, Credential, Fields, Push, Record, Reply, Services};
use noroshi_telemetry::Registry;
use noroshi_types::{
    AppId, JsonText, Lane, OwnFields, PushEnvironment, PushService, PushToken, Timestamp, Urgency,
};
use rustls_pki_types::CertificateDer;

use crate::answers::Answers;

pub(crate) const APP: AppId = AppId(7);

/// Bodies are the pushes' ids, so that every server can identify them.
#[derive(Debug)]
pub(crate) struct Knobs {
    pub(crate) service: PushService,
    /// Empty: the token's text names it.
    pub(crate) origin: String,
    pub(crate) one_until_authorised: bool,
    pub(crate) quota: Quota,
    pub(crate) token_url: Option<String>,
    /// The authorization is `token <n>`; with a `token_url`, 0 means none.
    pub(crate) generation: AtomicU32,
    /// How many more renewals are allowed.
    pub(crate) renewals: AtomicU32,
}

impl Knobs {
    pub(crate) fn new(service: PushService, origin: impl Into<String>) -> Self {
        Self {
            service,
            origin: origin.into(),
            one_until_authorised: false,
            quota: Quota::UNLIMITED,
            token_url: None,
            generation: AtomicU32::new(1),
            renewals: AtomicU32::new(0),
        }
    }

    fn value(generation: u32) -> Bytes {
        Bytes::from(format!("token {generation}"))
    }
}

impl Client for Knobs {
    fn origin(&self, token: &PushToken) -> Result<Arc<str>, Reason> {
        match self.origin.is_empty() {
            true => Ok(token.json.as_str().trim_matches('"').into()),
            false => Ok(self.origin.as_str().into()),
        }
    }

    fn one_until_authorised(&self) -> bool {
        self.one_until_authorised
    }

    fn authorization(&self, _: &str, _: Timestamp) -> Authorization {
        match self.generation.load(Ordering::SeqCst) {
            0 => Authorization::Missing,
            generation => Authorization::Ready(Self::value(generation)),
        }
    }

    fn token_request(&self, _: Timestamp) -> Option<TokenRequest> {
        let url = self.token_url.as_deref()?;
        Some(TokenRequest {
            url: url.into(),
            content_type: "application/x-www-form-urlencoded",
            body: Bytes::from_static(b"grant_type=test"),
        })
    }

    fn authorized(&self, response: &Response<'_>) -> Result<(), Verdict> {
        match response.status {
            200 => {
                self.generation.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            _ => Err(Verdict::Broken { reason: "no_token" }),
        }
    }

    fn renew(&self, _: &str, used: &Bytes, _: Timestamp) -> bool {
        if *used != Self::value(self.generation.load(Ordering::SeqCst)) {
            return true;
        }
        let allowed =
            self.renewals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if allowed.is_ok() {
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        allowed.is_ok()
    }

    fn request(&self, push: &Push, authorization: Option<&Bytes>, _: Timestamp) -> Result<Request, Answer> {
        let authorization = authorization.cloned().ok_or(Answer::Refused { reason: "unauthorized" })?;
        Ok(Request {
            path: format!("/push/{}", push.reply.index),
            headers: vec![Header { name: "authorization", value: authorization, shared: true }],
            body: Bytes::from(push.id.to_string()),
            readable: None,
        })
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        match response.status {
            200 => Verdict::Answer(Answer::Accepted),
            401 => Verdict::Unauthorized { reason: "unauthorized" },
            403 => Verdict::Broken { reason: "broken" },
            406 => Verdict::Wedged { reason: "wedged" },
            503 => Verdict::Overloaded { reason: "overloaded", after: response.retry_after },
            _ => Verdict::Answer(Answer::Refused { reason: "other" }),
        }
    }
}

/// Patient enough for a slow machine, unless a test sets other values.
pub(crate) fn config() -> Config {
    Config { connect_timeout: Duration::from_secs(30), ..Config::default() }
}

pub(crate) struct Bench {
    pub(crate) services: Arc<Services>,
    pub(crate) registry: Registry,
    pub(crate) client: Arc<Knobs>,
    pub(crate) answers: Arc<Answers>,
}

impl Bench {
    pub(crate) fn new(config: Config, knobs: Knobs, ca: Vec<CertificateDer<'static>>) -> Self {
        let allow = vec!["127.0.0.0/8".parse().expect("a network")];
        let egress = Egress::new(noroshi_egress::Config { allow, ca, ..Default::default() });
        let mut registry = noroshi_telemetry::registry();
        let runtime = tokio::runtime::Handle::current();
        let services = Services::new(config, Arc::new(egress.expect("no proxies")), &mut registry, runtime);
        let client = Arc::new(knobs);
        services.set_credentials(APP, vec![credential(client.clone())]);
        Self { services, registry, client, answers: Arc::default() }
    }

    pub(crate) fn push(&self, index: u32, lane: Lane) -> Push {
        self.push_to(index, lane, "{}")
    }

    pub(crate) fn push_to(&self, index: u32, lane: Lane, token: &str) -> Push {
        let environment = PushEnvironment::Production;
        Push {
            app: APP,
            lane,
            token: PushToken { service: self.client.service, environment, json: JsonText::from_valid(token) },
            content: Arc::new(Content::new(fields())),
            id: uuid::Uuid::from_u128(u128::from(index)),
            details: None,
            record: Record::All,
            reply: Reply { to: self.answers.clone(), index },
        }
    }

    pub(crate) async fn send_all(&self, count: u32) {
        for index in 0..count {
            self.services.send(self.push(index, Lane::Direct)).await;
        }
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = noroshi_telemetry::encode(&self.registry).expect("text");
        let lines = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

pub(crate) fn credential(client: Arc<Knobs>) -> Credential {
    Credential {
        service: client.service,
        environment: PushEnvironment::Production,
        provider: "".into(),
        name: String::new(),
        quota: client.quota,
        client,
        shown: JsonText::from_valid("{}"),
    }
}

fn fields() -> Fields {
    Fields {
        unread: None,
        kind: None,
        notification_id: None,
        notification: None,
        data: None,
        urgency: Urgency::Normal,
        collapse_key: None,
        expires_at: Timestamp(u64::MAX),
        own: OwnFields::default(),
    }
}

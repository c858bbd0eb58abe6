//! Requests about the device: its state, experiments, subscriptions, push tokens and preferences.

use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::{Code, Error};
use crate::http::escape;
use crate::protocol::{Call, Machine, Outcome};
use crate::types::{
    DeviceChange, DevicePushTokens, Endpoint, Endpoints, Me, NewEndpoint, NewPushToken, Preferences,
    PushToken, PushTokenKind, Variant,
};

impl Error {
    /// The machine answers each call with the outcome of its kind.
    pub(crate) fn unexpected() -> Self {
        Self::new(Code::Network, "the answer belongs to another request")
    }
}

impl Client {
    /// The state of the device: `GET /v1/me`. An answer that has not changed since the last call has no body on the network.
    pub async fn me(&self) -> Result<Me, Error> {
        match self.outcome(Machine::me).await? {
            Outcome::Me(me) => parse(me.get().as_bytes()),
            _ => Err(Error::unexpected()),
        }
    }

    /// Changes the registration of the device, and returns its new state.
    pub async fn change_me(&self, change: &DeviceChange) -> Result<Me, Error> {
        self.send(Method::PATCH, "/v1/me", change).await
    }

    /// Deletes the device and revokes its tokens.
    pub async fn delete_me(&self) -> Result<(), Error> {
        self.act(Call::new(Method::DELETE, "/v1/me")).await
    }

    /// The device's variant of an experiment, or None if it does not participate. Reports the exposure, once per
    /// user and variant. Reads the state of the device unless the last answer is less than a minute old and of the present token.
    pub async fn variant(&self, experiment: &str) -> Result<Option<Variant>, Error> {
        self.variant_of(experiment, true).await
    }

    /// [`variant`](Self::variant) without the report of an exposure.
    pub async fn peek_variant(&self, experiment: &str) -> Result<Option<Variant>, Error> {
        self.variant_of(experiment, false).await
    }

    async fn variant_of(&self, experiment: &str, expose: bool) -> Result<Option<Variant>, Error> {
        match self.outcome(|machine, now| machine.variant(now, experiment, expose)).await? {
            Outcome::Variant(variant) => variant.map(|raw| parse(raw.get().as_bytes())).transpose(),
            _ => Err(Error::unexpected()),
        }
    }

    /// Subscribes the device to a topic until [`unsubscribe_durably`](Self::unsubscribe_durably): messages wait while it is not
    /// connected.
    pub async fn subscribe_durably(&self, topic: &str) -> Result<(), Error> {
        self.act(Call::new(Method::PUT, format!("/v1/me/topics/{}", escape(topic)))).await
    }

    /// Ends a durable subscription.
    pub async fn unsubscribe_durably(&self, topic: &str) -> Result<(), Error> {
        self.act(Call::new(Method::DELETE, format!("/v1/me/topics/{}", escape(topic)))).await
    }

    /// Sets the token of the device's push service.
    pub async fn set_main_push_token(&self, token: &PushToken) -> Result<(), Error> {
        self.act(with_body(Method::PUT, "/v1/me/push-token", token)?).await
    }

    /// The push tokens of the device, without the tokens themselves.
    pub async fn push_tokens(&self) -> Result<DevicePushTokens, Error> {
        self.read(Call::new(Method::GET, "/v1/me/push-tokens")).await
    }

    /// Sets a push token. Some kinds have names.
    pub async fn set_push_token(
        &self,
        kind: impl Into<PushTokenKind>,
        name: Option<&str>,
        token: &NewPushToken,
    ) -> Result<(), Error> {
        self.act(with_body(Method::PUT, push_token_path(&kind.into(), name), token)?).await
    }

    /// Removes a push token.
    pub async fn remove_push_token(
        &self,
        kind: impl Into<PushTokenKind>,
        name: Option<&str>,
    ) -> Result<(), Error> {
        self.act(Call::new(Method::DELETE, push_token_path(&kind.into(), name))).await
    }

    /// The preferences of this device.
    pub async fn preferences(&self) -> Result<Preferences, Error> {
        self.read(Call::new(Method::GET, "/v1/me/preferences")).await
    }

    /// Replaces the preferences of this device, and returns them as stored.
    pub async fn set_preferences(&self, preferences: &Preferences) -> Result<Preferences, Error> {
        self.send(Method::PUT, "/v1/me/preferences", preferences).await
    }

    /// Deletes the preferences of this device.
    pub async fn clear_preferences(&self) -> Result<(), Error> {
        self.act(Call::new(Method::DELETE, "/v1/me/preferences")).await
    }

    /// The preferences of the user, which apply to all devices of the user.
    pub async fn user_preferences(&self) -> Result<Preferences, Error> {
        self.read(Call::new(Method::GET, "/v1/me/user/preferences")).await
    }

    /// Replaces the preferences of the user, and returns them as stored.
    pub async fn set_user_preferences(&self, preferences: &Preferences) -> Result<Preferences, Error> {
        self.send(Method::PUT, "/v1/me/user/preferences", preferences).await
    }

    /// Deletes the preferences of the user.
    pub async fn clear_user_preferences(&self) -> Result<(), Error> {
        self.act(Call::new(Method::DELETE, "/v1/me/user/preferences")).await
    }

    /// Creates an address to which application servers post Web Push messages for this device.
    pub async fn create_endpoint(&self, endpoint: &NewEndpoint) -> Result<Endpoint, Error> {
        self.send(Method::POST, "/v1/me/endpoints", endpoint).await
    }

    /// The addresses of this device.
    pub async fn endpoints(&self) -> Result<Endpoints, Error> {
        self.read(Call::new(Method::GET, "/v1/me/endpoints")).await
    }

    /// Deletes an address of this device.
    pub async fn delete_endpoint(&self, id: &str) -> Result<(), Error> {
        self.act(Call::new(Method::DELETE, format!("/v1/me/endpoints/{}", escape(id)))).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.read(with_body(method, path, body)?).await
    }

    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        match self.outcome(|machine, now| machine.call(now, call)).await? {
            Outcome::Body(body) => parse(&body),
            _ => Err(Error::unexpected()),
        }
    }

    async fn act(&self, call: Call) -> Result<(), Error> {
        self.outcome(|machine, now| machine.call(now, call)).await.map(drop)
    }
}

fn push_token_path(kind: &PushTokenKind, name: Option<&str>) -> String {
    let path = format!("/v1/me/push-tokens/{}", escape(kind.as_str()));
    match name {
        Some(name) => format!("{path}/{}", escape(name)),
        None => path,
    }
}

fn with_body(method: Method, path: impl Into<String>, body: &impl Serialize) -> Result<Call, Error> {
    let body = serde_json::to_string(body)
        .map_err(|cause| Error::new(Code::InvalidJson, cause.to_string()).caused_by(cause.into()))?;
    Ok(Call { body: Some(body), ..Call::new(method, path) })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|cause| {
        Error::new(Code::Network, format!("the answer is not what was expected: {cause}"))
            .caused_by(cause.into())
    })
}

//! Broadcast channels of APNs: created and deleted here and at Apple, bound to topics, and given broadcasts.
//!
//! A name is reserved in the store before Apple is asked, and freed when Apple refuses. If Apple's answer is lost, the name
//! is freed too: the next attempt creates another channel, and [`Channels::listed`] shows the lost one as unknown. So a name
//! never has two channels, and no channel is lost from sight.

use std::sync::Arc;
use std::time::Duration;

use noroshi_push::{ChannelAnswer, ChannelCall, ChannelError};
use noroshi_store::{Channel, Claim, Idempotency, NewBroadcast, NewChannel, Reserved, StoredBroadcast};
use noroshi_types::{
    AppId, Broadcast, Label, PushEnvironment, Quota, StoragePolicy, Timestamp, Topic, Ttl, limits,
};

use super::outlet::Outlet;
use crate::cluster::Nodes;
use crate::context::Context;
use crate::error::Error;
use crate::holder;
use crate::push_work::PushWork;
use crate::quota::Quotas;

/// Longer than a call takes. A node that is killed meanwhile keeps the name for this long.
const CLAIM: Duration = Duration::from_secs(120);

/// What a provider asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSpec {
    pub name: Label,
    pub environment: PushEnvironment,
    /// `None`: the default, or that of the channel to adopt.
    pub policy: Option<StoragePolicy>,
    pub topic: Option<Topic>,
    /// Apple's id of a channel that exists there: it is adopted, and none is created.
    pub adopt: Option<String>,
}

/// A channel at Apple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedChannel {
    pub apple: String,
    /// `None`: no channel of the app has this id.
    pub name: Option<Label>,
}

pub struct Channels {
    pub(super) context: Arc<Context>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) work: Arc<PushWork>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) outlet: Arc<dyn Outlet>,
}

impl Channels {
    /// Creates the channel, or returns the one with the name and false. Not cancel-safe: Apple may have created it.
    pub async fn create(&self, app: AppId, spec: ChannelSpec) -> Result<(Channel, bool), Error> {
        self.nodes.require_broadcasts()?;
        let ChannelSpec { name, environment, policy, topic, adopt } = spec.clone();
        let store = &self.context.store;
        if let Some(found) = store.channel(app, &name).await?
            && found.apple.is_some()
        {
            return existing(found, &spec);
        }
        let bundle = self.outlet.channel_bundle(app, environment).ok_or(ChannelError::Unconfigured)?;
        let policy = match &adopt {
            None => policy.unwrap_or_default(),
            Some(apple) => self.policy_at_apple(app, environment, apple, policy).await?,
        };
        let claim = Claim { by: holder::draw().max(1), until: self.now().saturating_add(CLAIM) };
        let new = NewChannel { app, name: name.clone(), environment, bundle: bundle.clone(), policy, topic };
        match store.reserve_channel(new, claim, limits::CHANNELS_MAX, self.now()).await? {
            Reserved::Claimed => {}
            Reserved::Exists(found) => return existing(found, &spec),
            Reserved::Busy => return Err(Error::ChannelBusy),
        }
        let apple = match adopt.clone() {
            Some(apple) => apple,
            None => {
                let call = ChannelCall::Create(policy);
                match self.outlet.call_channels(app, environment, Some(bundle.clone()), &call).await {
                    Ok(ChannelAnswer::Created(apple)) => apple,
                    Ok(_) => return Err(self.freed(app, &name, claim, odd().into()).await),
                    Err(error) => return Err(self.freed(app, &name, claim, error.into()).await),
                }
            }
        };
        match store.complete_channel(app, &name, claim.by, apple.clone()).await {
            Ok(channel) => Ok((channel, true)),
            Err(error) => {
                if adopt.is_none() {
                    self.discard(app, environment, bundle, apple).await;
                }
                let error = match error {
                    noroshi_store::Error::Conflict => Error::ChannelBusy,
                    error => error.into(),
                };
                Err(self.freed(app, &name, claim, error).await)
            }
        }
    }

    /// The policy of a channel that is adopted: the provider cannot choose another one.
    async fn policy_at_apple(
        &self,
        app: AppId,
        environment: PushEnvironment,
        apple: &str,
        wanted: Option<StoragePolicy>,
    ) -> Result<StoragePolicy, Error> {
        let call = ChannelCall::Read(apple.to_owned());
        let ChannelAnswer::Read(found) = self.outlet.call_channels(app, environment, None, &call).await?
        else {
            return Err(odd().into());
        };
        match wanted {
            Some(wanted) if wanted != found => Err(Error::ChannelDiffers("storage")),
            _ => Ok(found),
        }
    }

    /// Frees a name that was reserved in vain. If the store fails, the claim ends after two minutes.
    async fn freed(&self, app: AppId, name: &Label, claim: Claim, error: Error) -> Error {
        if let Err(failed) = self.context.store.abandon_channel(app, name, claim.by).await {
            tracing::warn!(error = %failed, "could not free the name of a channel; it is free in two minutes");
        }
        error
    }

    /// Deletes a channel that was created in vain.
    async fn discard(&self, app: AppId, environment: PushEnvironment, bundle: String, apple: String) {
        let call = ChannelCall::Delete(apple.clone());
        if let Err(error) = self.outlet.call_channels(app, environment, Some(bundle), &call).await {
            tracing::warn!(app = app.0, channel = apple, %error, "a channel of no name is left at APNs");
        }
    }

    /// Deletes the channel at Apple and here; broadcasts that wait are cancelled. `forget`: only here. Repeat it after an
    /// error.
    pub async fn delete(&self, app: AppId, name: &Label, forget: bool) -> Result<(), Error> {
        let store = &self.context.store;
        let found = store.channel(app, name).await?.ok_or(noroshi_store::Error::NotFound)?;
        if let Some(apple) = found.apple.filter(|_| !forget) {
            let call = ChannelCall::Delete(apple);
            let bundle = Some(found.bundle);
            match self.outlet.call_channels(app, found.environment, bundle, &call).await {
                // An earlier attempt deleted it there.
                Ok(_) | Err(ChannelError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(store.delete_channel(app, name, self.now()).await?)
    }

    /// The channels of the credential's bundle id at Apple, each with its name here.
    pub async fn listed(
        &self,
        app: AppId,
        environment: PushEnvironment,
    ) -> Result<Vec<ListedChannel>, Error> {
        let call = ChannelCall::List;
        let ChannelAnswer::Listed(ids) = self.outlet.call_channels(app, environment, None, &call).await?
        else {
            return Err(odd().into());
        };
        let known = self.context.store.known_channels(app, ids.clone()).await?;
        let known: std::collections::HashMap<String, Label> = known.into_iter().collect();
        Ok(ids.into_iter().map(|apple| ListedChannel { name: known.get(&apple).cloned(), apple }).collect())
    }

    /// Deletes a channel at Apple that no channel of the app names.
    pub async fn delete_unknown(
        &self,
        app: AppId,
        environment: PushEnvironment,
        apple: String,
    ) -> Result<(), Error> {
        let known = self.context.store.known_channels(app, vec![apple.clone()]).await?;
        if let Some((_, name)) = known.into_iter().next() {
            return Err(Error::ChannelKnown(name));
        }
        self.outlet.call_channels(app, environment, None, &ChannelCall::Delete(apple)).await?;
        Ok(())
    }

    /// Accepts a broadcast to one channel. True: it repeats an earlier call. Cancel-safe: it may be accepted.
    pub async fn broadcast(
        &self,
        app: AppId,
        channel: Label,
        (broadcast, ttl): (Broadcast, Ttl),
        idempotency: Option<Idempotency>,
    ) -> Result<(StoredBroadcast, bool), Error> {
        self.nodes.require_broadcasts()?;
        self.quotas.take(app, Quota::PublishesPerSecond, 1)?;
        let now = self.now();
        let expires_at = now.saturating_add(ttl.duration());
        let new = NewBroadcast { app, channel, broadcast, expires_at, idempotency };
        let accepted = self.context.store.broadcast(new, limits::BROADCASTS_WAITING_MAX, now).await;
        match accepted {
            Ok((stored, replayed)) => {
                if replayed {
                    self.quotas.give_back_publish(app);
                } else {
                    self.work.wake();
                }
                Ok((stored, replayed))
            }
            Err(error) => {
                self.quotas.give_back_publish(app);
                Err(match error {
                    noroshi_store::Error::Conflict => Error::ChannelBusy,
                    error => error.into(),
                })
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.context.now()
    }
}

/// Apple answered another question.
fn odd() -> ChannelError {
    ChannelError::Failed { reason: "other", may_be_done: true }
}

/// The channel, if it is what the provider asks for.
fn existing(found: Channel, spec: &ChannelSpec) -> Result<(Channel, bool), Error> {
    if found.environment != spec.environment {
        return Err(Error::ChannelDiffers("environment"));
    }
    if spec.policy.is_some_and(|policy| policy != found.policy) {
        return Err(Error::ChannelDiffers("storage"));
    }
    if spec.topic.is_some() && spec.topic != found.topic {
        return Err(Error::ChannelDiffers("topic"));
    }
    if spec.adopt.is_some() && spec.adopt != found.apple {
        return Err(Error::ChannelDiffers("apns_id"));
    }
    Ok((found, false))
}

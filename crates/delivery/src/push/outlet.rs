//! The interface to push services: [`noroshi_push::Services`], and a fake one in tests.
//!
//! Push owns this trait, so that it knows neither connections nor protocols of push services.

use noroshi_push::{ChannelAnswer, ChannelCall, ChannelError, Credential, CredentialStatus, Push, Services};
use noroshi_types::{AppId, PushEnvironment};

/// Sends pushes; each is answered exactly once through its `reply`.
#[async_trait::async_trait]
pub trait Outlet: Send + Sync {
    /// Waits while there is no room for this lane.
    async fn send(&self, push: Push);

    /// Sends a push with a credential that is not in use, to test it.
    async fn send_with(&self, credential: Credential, push: Push);

    /// Replaces all credentials of an app. Unchanged ones keep their connections.
    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>);

    /// The state of an app's credentials in this process.
    fn status(&self, app: AppId) -> Vec<CredentialStatus>;

    /// The bundle id of an app's credential for APNs; `None` without a credential.
    fn channel_bundle(&self, app: AppId, environment: PushEnvironment) -> Option<String> {
        let _ = (app, environment);
        None
    }

    /// Asks APNs about channels. `bundle`: `None` for that of the credential. Cancel-safe: the call may have reached APNs.
    async fn call_channels(
        &self,
        app: AppId,
        environment: PushEnvironment,
        bundle: Option<String>,
        call: &ChannelCall,
    ) -> Result<ChannelAnswer, ChannelError> {
        let _ = (app, environment, bundle, call);
        Err(ChannelError::Unconfigured)
    }
}

#[async_trait::async_trait]
impl Outlet for Services {
    async fn send(&self, push: Push) {
        Services::send(self, push).await;
    }

    async fn send_with(&self, credential: Credential, push: Push) {
        Services::send_with(self, credential, push).await;
    }

    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>) {
        Services::set_credentials(self, app, credentials);
    }

    fn status(&self, app: AppId) -> Vec<CredentialStatus> {
        Services::status(self, app)
    }

    fn channel_bundle(&self, app: AppId, environment: PushEnvironment) -> Option<String> {
        Services::channel_bundle(self, app, environment)
    }

    async fn call_channels(
        &self,
        app: AppId,
        environment: PushEnvironment,
        bundle: Option<String>,
        call: &ChannelCall,
    ) -> Result<ChannelAnswer, ChannelError> {
        Services::call_channels(self, app, environment, bundle, call).await
    }
}

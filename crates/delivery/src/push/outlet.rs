//! The interface to push services: [`noroshi_push::Services`], and a fake one in tests.
//!
//! Push owns this trait, so that it knows neither connections nor protocols of push services.

use noroshi_push::{Credential, Push, Services};
use noroshi_types::AppId;

/// Sends pushes; each is answered exactly once through its `reply`.
#[async_trait::async_trait]
pub trait Outlet: Send + Sync {
    /// Waits while there is no room for this lane.
    async fn send(&self, push: Push);

    /// Replaces all credentials of an app. Unchanged ones keep their connections.
    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>);
}

#[async_trait::async_trait]
impl Outlet for Services {
    async fn send(&self, push: Push) {
        Services::send(self, push).await;
    }

    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>) {
        Services::set_credentials(self, app, credentials);
    }
}

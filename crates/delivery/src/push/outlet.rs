//! What the decisions ask of the push services: [`noroshi_push::Services`], and in tests one that answers
//! when it is told to.

use noroshi_push::{Credential, Push, Services};
use noroshi_types::AppId;

/// Takes pushes; each is answered exactly once through its `reply`.
#[async_trait::async_trait]
pub trait Outlet: Send + Sync {
    /// Waits while there is no room for this lane.
    async fn send(&self, push: Push);

    /// All credentials of an app, from now on. Those that are the same as before keep their connections.
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

//! What the decisions ask of the push services.

use std::sync::Arc;

use noroshi_push::{Credential, Push, Services};
use noroshi_types::AppId;

/// Takes pushes; each is answered exactly once through its `reply`.
#[async_trait::async_trait]
pub trait Outlet: Send + Sync {
    /// Waits while there is no room for this lane.
    async fn send(&self, push: Push);

    /// All credentials of an app, from now on.
    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>);
}

#[async_trait::async_trait]
impl<T: Outlet + ?Sized> Outlet for Arc<T> {
    async fn send(&self, push: Push) {
        (**self).send(push).await;
    }

    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>) {
        (**self).set_credentials(app, credentials);
    }
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

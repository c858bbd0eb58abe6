//! Devices and users.

use http::Method;

use crate::client::Client;
use crate::pages::Pages;
use crate::request::Request;
use crate::types::{
    Device, DevicePushTokens, DeviceRegistration, Devices, DevicesQuery, Endpoints, Invalidation,
    Invalidations, InvalidationsQuery, Item, ItemCounts, Items, ItemsDeleted, ItemsOfUserQuery, NewPushToken,
    Preferences, PushTokenKind, Registered, Revoked, UserRevoked,
};

impl Client {
    /// Registers a device and returns its token. A registration that names its device is repeated after a failure; without a name,
    /// another attempt might register a second device.
    pub fn register_device(&self, registration: &DeviceRegistration) -> Request<Registered> {
        let request = self.post("/v1/devices", &[]).json(registration);
        match registration.device {
            Some(_) => request.repeatable(),
            None => request,
        }
    }

    /// A page of the devices. A page may be empty although more follow, while it has a `next`.
    pub fn list_devices(&self, query: &DevicesQuery) -> Request<Devices> {
        self.get("/v1/devices", &[]).query(query.pairs())
    }

    /// The devices.
    pub fn devices(&self, query: DevicesQuery) -> Pages<Device> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_devices(&DevicesQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.devices, page.next)) }
        })
    }

    /// A device.
    pub fn device(&self, device: &str) -> Request<Device> {
        self.get("/v1/devices/{}", &[device])
    }

    /// Deletes a device and revokes its tokens.
    pub fn delete_device(&self, device: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/devices/{}", &[device])
    }

    /// Revokes the tokens and JWTs of a device. Its connection ends.
    pub fn revoke_device(&self, device: &str) -> Request<Revoked> {
        self.post("/v1/devices/{}/revoke", &[device]).repeatable()
    }

    /// The push tokens of a device, without the tokens themselves.
    pub fn device_push_tokens(&self, device: &str) -> Request<DevicePushTokens> {
        self.get("/v1/devices/{}/push-tokens", &[device])
    }

    /// Sets a push token of a device. Some kinds have names.
    pub fn set_device_push_token(
        &self,
        device: &str,
        kind: impl Into<PushTokenKind>,
        name: Option<&str>,
        token: &NewPushToken,
    ) -> Request<()> {
        self.act_on_push_token(Method::PUT, device, &kind.into(), name).json(token)
    }

    /// Removes a push token of a device.
    pub fn remove_device_push_token(
        &self,
        device: &str,
        kind: impl Into<PushTokenKind>,
        name: Option<&str>,
    ) -> Request<()> {
        self.act_on_push_token(Method::DELETE, device, &kind.into(), name)
    }

    fn act_on_push_token(
        &self,
        method: Method,
        device: &str,
        kind: &PushTokenKind,
        name: Option<&str>,
    ) -> Request<()> {
        match name {
            Some(name) => {
                self.act(method, "/v1/devices/{}/push-tokens/{}/{}", &[device, kind.as_str(), name])
            }
            None => self.act(method, "/v1/devices/{}/push-tokens/{}", &[device, kind.as_str()]),
        }
    }

    /// The preferences of a device.
    pub fn device_preferences(&self, device: &str) -> Request<Preferences> {
        self.get("/v1/devices/{}/preferences", &[device])
    }

    /// Replaces the preferences of a device, and returns them as stored.
    pub fn set_device_preferences(&self, device: &str, preferences: &Preferences) -> Request<Preferences> {
        self.put("/v1/devices/{}/preferences", &[device]).json(preferences)
    }

    /// Deletes the preferences of a device.
    pub fn clear_device_preferences(&self, device: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/devices/{}/preferences", &[device])
    }

    /// The Web Push addresses of a device.
    pub fn device_endpoints(&self, device: &str) -> Request<Endpoints> {
        self.get("/v1/devices/{}/endpoints", &[device])
    }

    /// Deletes a Web Push address of a device.
    pub fn delete_device_endpoint(&self, device: &str, id: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/devices/{}/endpoints/{}", &[device, id])
    }

    /// Revokes the tokens and JWTs of a user on all devices, also on devices that do not exist yet.
    pub fn revoke_user(&self, user: &str) -> Request<UserRevoked> {
        self.post("/v1/users/{}/revoke", &[user]).repeatable()
    }

    /// A page of the notification centre of a user, newest first.
    pub fn list_user_items(&self, user: &str, query: &ItemsOfUserQuery) -> Request<Items> {
        self.get("/v1/users/{}/items", &[user]).query(query.pairs())
    }

    /// The items of a user, newest first.
    pub fn user_items(&self, user: &str, query: ItemsOfUserQuery) -> Pages<Item> {
        let (client, user) = (self.clone(), user.to_owned());
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_user_items(&user, &ItemsOfUserQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.items, page.next)) }
        })
    }

    /// Deletes all items of a user.
    pub fn delete_user_items(&self, user: &str) -> Request<ItemsDeleted> {
        self.delete("/v1/users/{}/items", &[user])
    }

    /// The numbers of unread items of a user.
    pub fn user_item_counts(&self, user: &str) -> Request<ItemCounts> {
        self.get("/v1/users/{}/items/counts", &[user])
    }

    /// The preferences of a user.
    pub fn user_preferences(&self, user: &str) -> Request<Preferences> {
        self.get("/v1/users/{}/preferences", &[user])
    }

    /// Replaces the preferences of a user, and returns them as stored.
    pub fn set_user_preferences(&self, user: &str, preferences: &Preferences) -> Request<Preferences> {
        self.put("/v1/users/{}/preferences", &[user]).json(preferences)
    }

    /// Deletes the preferences of a user.
    pub fn clear_user_preferences(&self, user: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/users/{}/preferences", &[user])
    }

    /// A page of the push tokens that push services reported as gone, oldest first.
    pub fn list_invalidations(&self, query: &InvalidationsQuery) -> Request<Invalidations> {
        self.get("/v1/push/invalidations", &[]).query(query.pairs())
    }

    /// The push tokens that push services reported as gone, oldest first.
    pub fn invalidations(&self, query: InvalidationsQuery) -> Pages<Invalidation> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_invalidations(&InvalidationsQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.invalidations, page.next)) }
        })
    }
}

//! Live Activities, and broadcast channels of `APNs`.

use http::Method;

use crate::client::Client;
use crate::pages::Pages;
use crate::request::Request;
use crate::types::{
    Activities, ActivitiesQuery, Activity, ActivityDevice, ActivityEnd, ActivityUpdate, AppleChannels,
    BroadcastState, Channel, ChannelChange, Channels, ChannelsQuery, NewActivity, NewBroadcast, NewChannel,
    PushEnvironment,
};

impl Client {
    /// Starts a Live Activity.
    pub fn start_activity(&self, activity: &NewActivity) -> Request<Activity> {
        self.post("/v1/activities", &[]).keyed().json(activity)
    }

    /// A page of the Live Activities.
    pub fn list_activities(&self, query: &ActivitiesQuery) -> Request<Activities> {
        self.get("/v1/activities", &[]).query(query.pairs())
    }

    /// The Live Activities.
    pub fn activities(&self, query: ActivitiesQuery) -> Pages<Activity> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_activities(&ActivitiesQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.activities, page.next)) }
        })
    }

    /// A Live Activity.
    pub fn activity(&self, id: &str) -> Request<Activity> {
        self.get("/v1/activities/{}", &[id])
    }

    /// Sets a new state. Not repeated if the service may have processed it, because each update counts.
    pub fn update_activity(&self, id: &str, update: &ActivityUpdate) -> Request<Activity> {
        self.patch("/v1/activities/{}", &[id]).json(update)
    }

    /// Ends a Live Activity on all devices with its last state.
    pub fn end_activity(&self, id: &str, end: &ActivityEnd) -> Request<Activity> {
        self.delete("/v1/activities/{}", &[id]).json(end)
    }

    /// The state of a Live Activity on a device.
    pub fn activity_device(&self, id: &str, device: &str) -> Request<ActivityDevice> {
        self.get("/v1/activities/{}/devices/{}", &[id, device])
    }

    /// A page of the broadcast channels.
    pub fn list_channels(&self, query: &ChannelsQuery) -> Request<Channels> {
        self.get("/v1/push/channels", &[]).query(query.pairs())
    }

    /// The broadcast channels.
    pub fn channels(&self, query: ChannelsQuery) -> Pages<Channel> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_channels(&ChannelsQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.channels, page.next)) }
        })
    }

    /// Creates a broadcast channel at Apple. An existing channel with the same name and settings is returned.
    pub fn create_channel(&self, channel: &NewChannel) -> Request<Channel> {
        self.post("/v1/push/channels", &[]).repeatable().json(channel)
    }

    /// A broadcast channel.
    pub fn channel(&self, name: &str) -> Request<Channel> {
        self.get("/v1/push/channels/{}", &[name])
    }

    /// Changes the topic of a broadcast channel.
    pub fn change_channel(&self, name: &str, change: &ChannelChange) -> Request<Channel> {
        self.patch("/v1/push/channels/{}", &[name]).repeatable().json(change)
    }

    /// Deletes a broadcast channel at Apple and here.
    pub fn delete_channel(&self, name: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/push/channels/{}", &[name])
    }

    /// Deletes a broadcast channel here; it stays at Apple.
    pub fn forget_channel(&self, name: &str) -> Request<()> {
        self.delete_channel(name).query([("forget", "true".to_owned())])
    }

    /// Sends an update to all devices that subscribe to a channel.
    pub fn broadcast(&self, channel: &str, broadcast: &NewBroadcast) -> Request<BroadcastState> {
        self.post("/v1/push/channels/{}/broadcasts", &[channel]).keyed().json(broadcast)
    }

    /// The state of a broadcast.
    pub fn broadcast_state(&self, id: &str) -> Request<BroadcastState> {
        self.get("/v1/push/broadcasts/{}", &[id])
    }

    /// The channels at Apple.
    pub fn apple_channels(&self, environment: impl Into<PushEnvironment>) -> Request<AppleChannels> {
        self.get("/v1/push/apns-channels", &[]).query([("environment", environment.into().to_string())])
    }

    /// Deletes a channel at Apple that no channel of the app names.
    pub fn delete_apple_channel(&self, id: &str, environment: impl Into<PushEnvironment>) -> Request<()> {
        let environment = environment.into().to_string();
        self.act(Method::DELETE, "/v1/push/apns-channels/{}", &[id]).query([("environment", environment)])
    }
}

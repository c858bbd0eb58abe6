//! Notifications, presence and topics.

use std::collections::BTreeMap;

use http::Method;

use crate::client::Client;
use crate::error::Error;
use crate::pages::Pages;
use crate::request::Request;
use crate::types::{
    Cancelled, ListedNotification, Message, Notification, NotificationState, Notifications,
    NotificationsQuery, PresenceAnswer, PresenceAnswerUser, PresenceQuery, Receipt, Topic, TopicAction,
    TopicPermission, Topics, TopicsQuery, Trace,
};

impl Client {
    /// Publishes a notification, to one user or to millions. Repeated with the same `Idempotency-Key`, so it is published once.
    pub fn publish(&self, notification: &Notification) -> Request<Receipt> {
        self.post("/v1/notifications", &[]).keyed().json(notification)
    }

    /// The state of a notification, with counts by outcome.
    pub fn notification(&self, id: &str) -> Request<NotificationState> {
        self.get("/v1/notifications/{}", &[id])
    }

    /// A page of the notifications that the service still keeps, newest first. A page may be empty although more follow, while it
    /// has a `next`.
    pub fn list_notifications(&self, query: &NotificationsQuery) -> Request<Notifications> {
        self.get("/v1/notifications", &[]).query(query.pairs())
    }

    /// The notifications that the service still keeps, newest first.
    pub fn notifications(&self, query: NotificationsQuery) -> Pages<ListedNotification> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_notifications(&NotificationsQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.notifications, page.next)) }
        })
    }

    /// Cancels a notification where it has not been delivered yet.
    pub fn cancel(&self, id: &str) -> Request<Cancelled> {
        self.delete("/v1/notifications/{}", &[id])
    }

    /// What happened to a notification on a device.
    pub fn trace(&self, id: &str, device: &str) -> Request<Trace> {
        self.get("/v1/notifications/{}/devices/{}", &[id, device])
    }

    /// The presence of at most 1,000 users, and their connected devices.
    pub async fn presence<U: Into<String>>(
        &self,
        users: impl IntoIterator<Item = U>,
    ) -> Result<BTreeMap<String, PresenceAnswerUser>, Error> {
        let request: Request<PresenceAnswer> = self.post("/v1/presence", &[]);
        Ok(request.repeatable().json(&PresenceQuery::new(users)).await?.users)
    }

    /// A page of the topics.
    pub fn list_topics(&self, query: &TopicsQuery) -> Request<Topics> {
        self.get("/v1/topics", &[]).query(query.pairs())
    }

    /// The topics.
    pub fn topics(&self, query: TopicsQuery) -> Pages<Topic> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_topics(&TopicsQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.topics, page.next)) }
        })
    }

    /// The numbers of subscribers and the position of a topic.
    pub fn topic(&self, topic: &str) -> Request<Topic> {
        self.get("/v1/topics/{}", &[topic])
    }

    /// The retained message of a topic.
    pub fn retained(&self, topic: &str) -> Request<Message> {
        self.get("/v1/topics/{}/retained", &[topic])
    }

    /// Deletes the retained message of a topic.
    pub fn delete_retained(&self, topic: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/topics/{}/retained", &[topic])
    }

    /// What the app's topic rules decide for a device, and why.
    pub fn topic_permission(
        &self,
        device: &str,
        topic: &str,
        action: impl Into<TopicAction>,
    ) -> Request<TopicPermission> {
        let action = action.into().to_string();
        self.get("/v1/devices/{}/topics/{}/permission", &[device, topic]).query([("action", action)])
    }
}

//! Registers devices, one or many, and issues their ids and tokens.

use std::sync::Arc;
use std::time::Duration;

use noroshi_auth::Auth;
use noroshi_delivery::{Admission, Delivery, Session};
use noroshi_store::{Device, Preferring, Registration};
use noroshi_types::{AppId, CloseReason, DeviceId, Timestamp, TokenKey, Topic, UserId};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::Problem;

/// Registers all in one commit; answers in order. A store failure fails every registration; one that exceeds the app's
/// quotas fails only itself.
pub(crate) async fn register(
    delivery: &Delivery,
    app: AppId,
    registrations: Vec<Registration>,
) -> Vec<Result<Device, Problem>> {
    let admitted = match delivery.usage.admit_registrations(app, &registrations).await {
        Ok(admitted) => admitted,
        Err(error) => {
            let problem = Problem::from(error);
            return registrations.iter().map(|_| Err(problem.clone())).collect();
        }
    };
    let mut admission = Admission::new(registrations, admitted);
    let admitted = admission.take();
    let registered =
        if admitted.is_empty() { Vec::new() } else { register_admitted(delivery, app, admitted).await };
    admission.finish(registered, Result::is_ok, |error| Err(error.into()))
}

async fn register_admitted(
    delivery: &Delivery,
    app: AppId,
    registrations: Vec<Registration>,
) -> Vec<Result<Device, Problem>> {
    let count = registrations.len();
    let users: Vec<(DeviceId, UserId)> =
        registrations.iter().filter_map(|one| one.device.clone().zip(one.user.clone())).collect();
    let tokens: Vec<Vec<TokenKey>> =
        registrations.iter().map(|one| one.push_tokens.iter().map(|new| new.key.clone()).collect()).collect();
    let zones: Vec<bool> = registrations.iter().map(|one| one.attributes.timezone.is_some()).collect();
    let topics: Vec<Vec<Topic>> = registrations.iter().map(|one| one.topics.clone()).collect();
    let registered = delivery.store().register(app, registrations, delivery.clock().now()).await;
    match registered {
        Ok(answers) => {
            let ids = answers.iter().filter_map(|answer| Some(&answer.as_ref().ok()?.id));
            delivery.freshness.devices_changed(app, ids);
            answers.iter().flatten().for_each(|device| delivery.context.outcomes.registered(device));
            let zoned = answers.iter().zip(zones).filter(|(_, has_zone)| *has_zone);
            for device in zoned.filter_map(|(answer, _)| answer.as_ref().ok()) {
                // Quiet hours may follow its clock.
                delivery.preferences.changed(app, Preferring::Device(device.id.clone()));
            }
            disconnect_moved(delivery, app, &users).await;
            join_activities(delivery, &answers, &tokens).await;
            let answered = answers.iter().zip(&topics);
            let subscribed =
                answered.filter_map(|(answer, topics)| Some((&answer.as_ref().ok()?.id, &topics[..])));
            delivery.sessions.subscribed(app, &subscribed.collect::<Vec<_>>()).await;
            answers.into_iter().map(|answer| answer.map_err(Problem::from)).collect()
        }
        Err(error) => vec![Err(error.into()); count],
    }
}

pub(crate) async fn register_one(
    delivery: &Delivery,
    app: AppId,
    registration: Registration,
) -> Result<Device, Problem> {
    let one = register(delivery, app, vec![registration]).await.pop();
    one.unwrap_or_else(|| Err(Problem::internal("the store returned no result for one registration")))
}

/// Issues device tokens.
#[derive(Clone)]
pub(crate) struct TokenIssuer {
    pub(crate) auth: Arc<Auth>,
    pub(crate) ttl: Duration,
}

impl TokenIssuer {
    /// A new token of a device, and when it expires.
    pub(crate) fn issue(&self, device: &Device, now: Timestamp) -> (String, Timestamp) {
        let expires_at = now.saturating_add(self.ttl);
        (self.auth.issue(device.app, &device.id, device.token_version, expires_at), expires_at)
    }
}

/// 128 random bits: not guessable.
pub fn draw_device_id() -> Result<DeviceId, Problem> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Problem::internal("the operating system returned no random bytes"))?;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    DeviceId::parse(&text).map_err(Problem::internal)
}

/// Devices that registered tokens of activities join them. If this fails, they get the next state anyway.
async fn join_activities(
    delivery: &Delivery,
    answers: &[Result<Device, noroshi_store::Error>],
    tokens: &[Vec<TokenKey>],
) {
    for (answer, keys) in answers.iter().zip(tokens) {
        let Ok(device) = answer else { continue };
        for key in keys {
            if let Err(error) = delivery.activities.joined(device.app, device.num, key).await {
                tracing::debug!(%error, "a device could not join its activity at its registration");
            }
        }
    }
}

/// Disconnects devices that moved to another user. Their connections were opened for the previous user and would keep
/// receiving that user's messages.
async fn disconnect_moved(delivery: &Delivery, app: AppId, moved: &[(DeviceId, UserId)]) {
    let devices: Vec<DeviceId> = moved.iter().map(|(device, _)| device.clone()).collect();
    let found = delivery.sessions.of_devices(app, &devices).await;
    let connected: Vec<_> =
        moved.iter().zip(found).filter(|(_, session)| session.is_some()).map(|(moved, _)| moved).collect();
    if connected.is_empty() {
        return;
    }
    let users: Vec<UserId> = connected.iter().map(|(_, user)| user.clone()).collect();
    let sessions = delivery.sessions.of_users(app, &users).await;
    let has_device =
        |sessions: &[Session], device: &DeviceId| sessions.iter().any(|session| session.device == *device);
    let moved =
        connected.iter().zip(&sessions).filter(|((device, _), sessions)| !has_device(sessions, device));
    let moved: Vec<DeviceId> = moved.map(|((device, _), _)| device.clone()).collect();
    delivery.sessions.close(app, &moved, CloseReason::Drain).await;
}

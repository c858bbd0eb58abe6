//! Making devices and bringing them up to date, for one and for many; their ids and tokens.

use noroshi_delivery::{Admission, Session};
use noroshi_store::{Device, Registration};
use noroshi_types::{AppId, DeviceId, Timestamp, Topic, UserId};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::Problem;
use crate::state::State;

/// All in one commit; answers in order. A failure of the store is everyone's; who has no room in the app's quotas is
/// refused alone.
pub(crate) async fn register(
    state: &State,
    app: AppId,
    registrations: Vec<Registration>,
) -> Vec<Result<Device, Problem>> {
    let admitted = match state.delivery.admit_registrations(app, &registrations).await {
        Ok(admitted) => admitted,
        Err(error) => {
            let problem = Problem::from(error);
            return registrations.iter().map(|_| Err(problem.clone())).collect();
        }
    };
    let mut admission = Admission::new(registrations, admitted);
    let let_in = admission.take();
    let registered = if let_in.is_empty() { Vec::new() } else { register_admitted(state, app, let_in).await };
    admission.finish(registered, Result::is_ok, |error| Err(error.into()))
}

async fn register_admitted(
    state: &State,
    app: AppId,
    registrations: Vec<Registration>,
) -> Vec<Result<Device, Problem>> {
    let count = registrations.len();
    let users: Vec<(DeviceId, UserId)> =
        registrations.iter().filter_map(|one| one.device.clone().zip(one.user.clone())).collect();
    let topics: Vec<Vec<Topic>> = registrations.iter().map(|one| one.topics.clone()).collect();
    let registered = state.delivery.store().register(app, registrations, state.now()).await;
    match registered {
        Ok(answers) => {
            let made = answers.iter().filter_map(|made| Some(&made.as_ref().ok()?.id));
            state.delivery.devices_changed(app, made);
            answers.iter().flatten().for_each(|device| state.delivery.registered(device));
            end_moved_sessions(state, app, &users).await;
            let made = answers.iter().zip(&topics);
            let subscribed = made.filter_map(|(made, topics)| Some((&made.as_ref().ok()?.id, &topics[..])));
            state.delivery.subscribed(app, &subscribed.collect::<Vec<_>>()).await;
            answers.into_iter().map(|answer| answer.map_err(Problem::from)).collect()
        }
        Err(error) => vec![Err(error.into()); count],
    }
}

pub(crate) async fn register_one(
    state: &State,
    app: AppId,
    registration: Registration,
) -> Result<Device, Problem> {
    let one = register(state, app, vec![registration]).await.pop();
    one.unwrap_or_else(|| Err(Problem::internal("the store answered nothing for one registration")))
}

/// A new token of a device and when it ends.
pub(crate) fn issue(api: &State, app: AppId, device: &Device) -> (String, Timestamp) {
    let expires_at = api.now().saturating_add(api.config.device_token_ttl);
    (api.auth.issue(app, &device.id, device.token_version, expires_at), expires_at)
}

/// 128 random bits: no one guesses another's.
pub fn draw_device_id() -> Result<DeviceId, Problem> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Problem::internal("the system gave no randomness"))?;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    DeviceId::parse(&text).map_err(Problem::internal)
}

/// Ends the connections of devices that went over to another user: they were opened as the first
/// user's, and would go on hearing what is meant for that one.
async fn end_moved_sessions(api: &State, app: AppId, moved: &[(DeviceId, UserId)]) {
    let devices: Vec<DeviceId> = moved.iter().map(|(device, _)| device.clone()).collect();
    let found = api.delivery.device_sessions(app, &devices).await;
    let connected: Vec<_> =
        moved.iter().zip(found).filter(|(_, session)| session.is_some()).map(|(moved, _)| moved).collect();
    if connected.is_empty() {
        return;
    }
    let users: Vec<UserId> = connected.iter().map(|(_, user)| user.clone()).collect();
    let sessions = api.delivery.sessions(app, &users).await;
    let is_the_users = |device: &DeviceId, sessions: &[Session]| sessions.iter().any(|s| s.device == *device);
    let moved =
        connected.iter().zip(&sessions).filter(|((device, _), of_user)| !is_the_users(device, of_user));
    let moved: Vec<DeviceId> = moved.map(|((device, _), _)| device.clone()).collect();
    api.delivery.disconnect(app, &moved).await;
}

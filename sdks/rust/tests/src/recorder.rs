//! Devices that record what they show.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use noroshi_client::{
    BoxError, Builder, Client, Delivery, Error, Event, Reason, Recovered, State, TokenReason, TokenRequest,
};
use noroshi_server_sdk::types::{DeviceRegistration, To};
use noroshi_server_sdk::{DeviceClaims, Notification, Signer};
use tokio::time::{Instant, sleep};

use crate::Problem;
use crate::node::JWT_SECRET;

/// A slow machine makes a test slow, but never fail.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `probe` is true.
pub async fn until(what: &str, mut probe: impl FnMut() -> bool) -> Result<(), Problem> {
    let deadline = Instant::now() + PATIENCE;
    while !probe() {
        if Instant::now() > deadline {
            return Err(format!("waited {PATIENCE:?} for {what}").into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// An app JWT of the test node.
pub fn jwt(device: &str, lifetime: Duration) -> String {
    let signer = Signer::hs256(JWT_SECRET).expect("the secret is long enough");
    signer.sign(&DeviceClaims::new(user_of(device), device, lifetime)).expect("the claims are valid")
}

/// The user of a device.
pub fn user_of(device: &str) -> String {
    format!("user-of-{device}")
}

/// A notification with a text as its data.
pub fn text(to: To, text: impl Into<String>) -> Notification {
    Notification::new(to).data(text.into())
}

/// What a device showed and reported.
#[derive(Debug, Default)]
pub struct Record {
    /// The texts of messages.
    pub shown: Vec<String>,
    /// States of the client.
    pub states: Vec<State>,
    /// Errors that no call returned.
    pub errors: Vec<Error>,
    /// Ends of recoveries.
    pub recovered: Vec<Recovered>,
    /// The number of messages that were shown before each recovery that was not complete.
    pub gaps: Vec<usize>,
    /// Why tokens were requested.
    pub asked: Vec<TokenReason>,
    /// Other events, as text.
    pub others: Vec<String>,
}

/// A client with a record of what it showed.
#[derive(Debug)]
pub struct Device {
    /// The client.
    pub client: Client,
    /// The id of the device.
    pub name: String,
    record: Arc<Mutex<Record>>,
    lifetime_ms: Arc<AtomicU64>,
}

/// What a device does with a message.
pub type Handle = Box<dyn FnMut(&Delivery) -> Result<(), BoxError> + Send>;

impl Device {
    /// A device that is not connected yet.
    pub fn new(url: &str, name: &str, change: impl FnOnce(Builder) -> Builder) -> Result<Self, Problem> {
        Self::with(url, name, change, Box::new(|_| Ok(())), Duration::ZERO)
    }

    /// `handle` is called before a message is shown, which takes `slowness`.
    pub fn with(
        url: &str,
        name: &str,
        change: impl FnOnce(Builder) -> Builder,
        mut handle: Handle,
        slowness: Duration,
    ) -> Result<Self, Problem> {
        let record = Arc::<Mutex<Record>>::default();
        let lifetime_ms = Arc::new(AtomicU64::new(3_600_000));
        let tokens = {
            let (record, lifetime, name) = (Arc::clone(&record), Arc::clone(&lifetime_ms), name.to_owned());
            move |request: TokenRequest| {
                lock(&record).asked.push(request.reason);
                let token = jwt(&name, Duration::from_millis(lifetime.load(Ordering::Relaxed)));
                async { Ok(token) }
            }
        };
        let (client, mut events) = change(Client::builder(url, tokens)).build()?;
        let log = Arc::clone(&record);
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::Message(message) => {
                        if slowness > Duration::ZERO {
                            sleep(slowness).await;
                        }
                        let result = handle(&message).and_then(|()| Ok(message.data::<String>()?));
                        if let Ok(text) = &result {
                            lock(&log).shown.push(text.clone());
                        }
                        message.finish(result);
                    }
                    Event::State(state) => lock(&log).states.push(state),
                    Event::Error(error) => lock(&log).errors.push(error),
                    Event::Recovered(event) => {
                        let mut log = lock(&log);
                        if event.complete != Some(true) {
                            let shown = log.shown.len();
                            log.gaps.push(shown);
                        }
                        log.recovered.push(event);
                    }
                    other => lock(&log).others.push(format!("{other:?}")),
                }
            }
        });
        Ok(Self { client, name: name.to_owned(), record, lifetime_ms })
    }

    /// What it has shown until now.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    /// The texts that it has shown.
    pub fn shown(&self) -> Vec<String> {
        self.record().shown.clone()
    }

    /// Forgets what it has shown.
    pub fn forget(&self) {
        let mut record = self.record();
        record.shown.clear();
        record.gaps.clear();
    }

    /// The lifetime of its tokens.
    pub fn set_lifetime(&self, lifetime: Duration) {
        let ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.lifetime_ms.store(ms, Ordering::Relaxed);
    }

    /// Its user, as a target.
    pub fn user(&self) -> To {
        To::Users(vec![user_of(&self.name)])
    }

    /// Registration of the device of the same user.
    pub fn registration(&self) -> DeviceRegistration {
        DeviceRegistration::new().device(&self.name).user(user_of(&self.name))
    }

    /// Whether a connection ended for this reason.
    pub fn had_reason(&self, reason: &Reason) -> bool {
        self.record().states.iter().any(|state| state.reason() == Some(reason))
    }

    /// Connects, and waits until the service has accepted the log-in.
    pub async fn connect(&self) -> Result<(), Problem> {
        self.client.connect();
        self.connected().await
    }

    /// Waits until it is connected.
    pub async fn connected(&self) -> Result<(), Problem> {
        until(&format!("{} to be connected", self.name), || self.client.state().is_connected()).await
    }

    /// Waits until it has shown these texts, and no others.
    pub async fn shows<T: AsRef<str>>(&self, expected: &[T]) -> Result<(), Problem> {
        let _ = until("", || self.record().shown.len() >= expected.len()).await;
        let record = self.record();
        match record.shown.iter().map(String::as_str).eq(expected.iter().map(AsRef::as_ref)) {
            true => Ok(()),
            false => Err(format!("{} showed: {record:?}", self.name).into()),
        }
    }
}

fn lock(record: &Arc<Mutex<Record>>) -> MutexGuard<'_, Record> {
    record.lock().expect("no panic under the lock")
}

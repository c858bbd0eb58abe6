//! The day on which a device was last seen.

use noroshi_delivery::{LocalSession, LoginAttempt, LoginResult};
use noroshi_store::{Devices as _, Login};
use noroshi_types::{DeviceId, UtcDay};

use crate::{Bench, NOW, bench};

async fn last_seen(bench: &Bench, device: &DeviceId) -> Option<UtcDay> {
    bench.store.device(bench.app, device).await.expect("read").expect("a device").last_seen
}

fn login(bench: &Bench, device: &DeviceId) -> Login {
    Login {
        app: bench.app,
        device: device.clone(),
        token_version: Some(1),
        user: None,
        issued: noroshi_store::Issued::Elsewhere,
        create: false,
        topics: Vec::new(),
        session_topics: Vec::new(),
        resume: None,
        now: NOW,
    }
}

#[tokio::test]
async fn a_device_that_logs_in_is_seen() {
    let bench = bench().await;
    let ((device, _), (other, _)) = (bench.device("u1").await, bench.device("u2").await);
    let refused = Login { token_version: Some(0), ..login(&bench, &other) };
    let entering = [login(&bench, &device), refused].map(|login| LoginAttempt { login, generation: 1 });
    let (reply, entered) = tokio::sync::oneshot::channel();
    bench.delivery.logins.log_in(entering.into(), |result| drop(reply.send(result)));
    let entered = entered.await.expect("answered").expect("no failure");
    assert!(matches!(entered[..], [LoginResult::In { .. }, LoginResult::Refused(_)]));
    assert_eq!(last_seen(&bench, &device).await, None, "no log-in waits for a write");
    // The drain writes what waits.
    bench.delivery.clone().run(std::future::ready(())).await;
    assert_eq!(last_seen(&bench, &device).await, Some(UtcDay::of(NOW)));
    assert_eq!(last_seen(&bench, &other).await, None);
}

#[tokio::test]
async fn a_device_that_stays_connected_is_seen() {
    let bench = bench().await;
    let (device, num) = bench.device("u1").await;
    bench.edge.connect(LocalSession {
        app: bench.app,
        device: device.clone(),
        num,
        device_key: noroshi_cluster::SessionKey(1),
        user_key: None,
        generation: 1,
        revision: None,
    });
    bench.delivery.seen.look(0);
    bench.delivery.clone().run(std::future::ready(())).await;
    assert_eq!(last_seen(&bench, &device).await, None, "it is on another page");
    bench.delivery.seen.look(1);
    bench.delivery.clone().run(std::future::ready(())).await;
    assert_eq!(last_seen(&bench, &device).await, Some(UtcDay::of(NOW)));
}

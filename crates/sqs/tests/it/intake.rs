//! The intake: accepted messages are deleted, impossible ones go to the dead-letter queue, others are retried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_sqs::IntakeConfig;
use noroshi_sqs::intake::{self, Accept, Incoming, Verdict};
use noroshi_sqs::metrics::Metrics;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

use crate::sqs::{DEADLINE, Sqs, attribute, sqs};

/// Published messages by idempotency key: the body, and the number of attempts.
type Published = Arc<Mutex<BTreeMap<String, (Incoming, u32)>>>;

struct Running {
    drain: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(config: IntakeConfig, accept: Accept) -> Self {
        let (drain, drained) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let drained = async {
                let _ = drained.await;
            };
            intake::run(config, Metrics::default(), accept, drained).await.expect("a right configuration");
        });
        Self { drain: Some(drain), task }
    }

    async fn stop(mut self) {
        drop(self.drain.take());
        tokio::time::timeout(DEADLINE, &mut self.task).await.expect("it drains").expect("it ends");
    }
}

fn accept<F>(decide: impl Fn(Incoming) -> F + Send + Sync + 'static) -> Accept
where
    F: Future<Output = Verdict> + Send + 'static,
{
    Arc::new(move |incoming| Box::pin(decide(incoming)))
}

/// Publishes bodies that begin with a brace.
fn publisher(published: &Published) -> Accept {
    let published = published.clone();
    accept(move |incoming| {
        let published = published.clone();
        async move {
            if !incoming.body.starts_with('{') {
                return Verdict::Poison("body: not JSON: expected value at line 1 column 1".to_owned());
            }
            let mut published = published.lock().await;
            let key = incoming.idempotency_key.clone();
            published.entry(key).or_insert((incoming, 0)).1 += 1;
            Verdict::Accepted
        }
    })
}

async fn config(sqs: &Sqs) -> IntakeConfig {
    let mut config = IntakeConfig::new(sqs.connection.clone(), sqs.queue("in").await);
    config.app = Some("shop".to_owned());
    config.dead_letter_url = Some(sqs.queue("dead").await);
    config.visibility = Duration::from_secs(3);
    config.poll = Duration::from_secs(1);
    config.receives_max = 2;
    config
}

async fn until(mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !reached().await {
        assert!(Instant::now() < deadline, "it does not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_messages_are_published_and_gone() {
    let Some(sqs) = sqs().await else { return };
    const MESSAGES: usize = 10_000;
    let (config, published) = (config(&sqs).await, Published::default());
    let bodies: Vec<String> = (0..MESSAGES).map(|n| format!("{{\"n\":{n}}}")).collect();
    sqs.send(&config.queue_url, &bodies, &[]).await;
    let began = Instant::now();
    // Longer than the whole test, so that a repeated message is an error.
    let config = IntakeConfig { visibility: Duration::from_secs(120), ..config };
    let running = Running::start(config.clone(), publisher(&published));
    until(async || published.lock().await.len() == MESSAGES).await;
    let seconds = began.elapsed().as_secs_f64();
    println!("{MESSAGES} messages in {seconds:.1} s: {:.0}/s", MESSAGES as f64 / seconds);
    sqs.empty(&config.queue_url).await;
    running.stop().await;
    let published = published.lock().await;
    assert!(published.values().all(|(incoming, times)| incoming.app == "shop" && *times == 1));
    let got: BTreeSet<&str> = published.values().map(|(incoming, _)| incoming.body.as_str()).collect();
    assert_eq!(got.len(), MESSAGES);
    assert_eq!(sqs.depth(config.dead_letter_url.as_deref().expect("one")).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_name_the_app_and_the_idempotency_key() {
    let Some(sqs) = sqs().await else { return };
    let (config, published) = (config(&sqs).await, Published::default());
    let attributes = [("app", "other"), ("idempotency_key", "order-7")];
    sqs.send(&config.queue_url, &["{}".to_owned(), "{}".to_owned()], &attributes).await;
    let running = Running::start(config.clone(), publisher(&published));
    sqs.empty(&config.queue_url).await;
    running.stop().await;
    let published = published.lock().await;
    let (incoming, times) = &published["order-7"];
    assert_eq!((published.len(), incoming.app.as_str(), *times), (1, "other", 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impossible_message_goes_to_the_dead_letter_queue_with_its_error() {
    let Some(sqs) = sqs().await else { return };
    let (mut config, published) = (config(&sqs).await, Published::default());
    config.app = None;
    sqs.send(&config.queue_url, &["not json".to_owned()], &[("app", "shop"), ("trace", "t-1")]).await;
    sqs.send(&config.queue_url, &["{}".to_owned()], &[]).await;
    let running = Running::start(config.clone(), publisher(&published));
    let dead = sqs.receive(config.dead_letter_url.as_deref().expect("one"), 2).await;
    sqs.empty(&config.queue_url).await;
    running.stop().await;
    assert!(published.lock().await.is_empty());
    let bad = dead.iter().find(|message| message.body() == Some("not json")).expect("it is there");
    assert_eq!(attribute(bad, "error"), Some("body: not JSON: expected value at line 1 column 1"));
    assert_eq!((attribute(bad, "app"), attribute(bad, "trace")), (Some("shop"), Some("t-1")));
    assert!(attribute(bad, "message_id").is_some_and(|id| id.len() == 36));
    let nobodys = dead.iter().find(|message| message.body() == Some("{}")).expect("it is there");
    assert!(attribute(nobodys, "error").is_some_and(|error| error.contains("`app`")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_node_keeps_its_messages() {
    let Some(sqs) = sqs().await else { return };
    let (config, published) = (config(&sqs).await, Published::default());
    let bodies: Vec<String> = (0..40).map(|n| format!("{{\"n\":{n}}}")).collect();
    sqs.send(&config.queue_url, &bodies, &[]).await;
    let began = Instant::now();
    let publish = publisher(&published);
    // Longer than the visibility timeout, with more failures than a message may have.
    let overloaded = accept(move |incoming| {
        let publish = publish.clone();
        async move {
            match began.elapsed() < Duration::from_secs(7) {
                true => Verdict::Retry,
                false => publish(incoming).await,
            }
        }
    });
    let config = IntakeConfig { in_work_max: 15, ..config };
    let running = Running::start(config.clone(), overloaded);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (visible, _) = sqs.depth(&config.queue_url).await;
    assert!(visible >= 25, "no more than fits is received: {visible} are left");
    until(async || published.lock().await.len() == 40).await;
    sqs.empty(&config.queue_url).await;
    running.stop().await;
    assert!(published.lock().await.values().all(|(_, times)| *times == 1), "extended while it waited");
    assert_eq!(sqs.depth(config.dead_letter_url.as_deref().expect("one")).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_while_others_succeed_goes_to_the_dead_letter_queue() {
    let Some(sqs) = sqs().await else { return };
    let (config, published) = (config(&sqs).await, Published::default());
    let publish = publisher(&published);
    let stubborn = accept(move |incoming: Incoming| {
        let publish = publish.clone();
        async move {
            match incoming.body.contains("stubborn") {
                true => Verdict::Retry,
                false => publish(incoming).await,
            }
        }
    });
    sqs.send(&config.queue_url, &["{\"stubborn\":1}".to_owned()], &[]).await;
    let running = Running::start(config.clone(), stubborn);
    let dead_url = config.dead_letter_url.clone().expect("one");
    // Other messages are accepted meanwhile.
    until(async || {
        sqs.send(&config.queue_url, &["{}".to_owned()], &[]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        sqs.depth(&dead_url).await.0 == 1
    })
    .await;
    let dead = sqs.receive(&dead_url, 1).await;
    assert_eq!(attribute(&dead[0], "error"), Some("received 2 times without being accepted"));
    sqs.empty(&config.queue_url).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_dead_consumer_are_received_by_another() {
    let Some(sqs) = sqs().await else { return };
    let (config, published) = (config(&sqs).await, Published::default());
    let bodies: Vec<String> = (0..20).map(|n| format!("{{\"n\":{n}}}")).collect();
    sqs.send(&config.queue_url, &bodies, &[]).await;
    // Receives messages without an answer, as a process that is then killed would.
    let taken = sqs.client.receive_message().queue_url(&config.queue_url).max_number_of_messages(10);
    let taken = taken.visibility_timeout(4).send().await.expect("received").messages.unwrap_or_default();
    assert!(!taken.is_empty());
    let running = Running::start(config.clone(), publisher(&published));
    until(async || published.lock().await.len() == 20).await;
    sqs.empty(&config.queue_url).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_drains_gives_back_what_it_did_not_finish() {
    let Some(sqs) = sqs().await else { return };
    let (config, published) = (config(&sqs).await, Published::default());
    let config =
        IntakeConfig { visibility: Duration::from_secs(300), drain: Duration::from_secs(3), ..config };
    sqs.send(&config.queue_url, &["{\"n\":1}".to_owned()], &[]).await;
    let asked = Arc::new(tokio::sync::Notify::new());
    let begun = asked.clone();
    let forever = accept(move |_| {
        begun.notify_one();
        std::future::pending()
    });
    let running = Running::start(config.clone(), forever);
    tokio::time::timeout(DEADLINE, asked.notified()).await.expect("received");
    running.stop().await;
    // Long before its visibility timeout.
    let running = Running::start(config.clone(), publisher(&published));
    until(async || published.lock().await.len() == 1).await;
    sqs.empty(&config.queue_url).await;
    running.stop().await;
}

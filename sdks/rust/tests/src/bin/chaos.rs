//! Devices against a node under faults: kill -9, drain, a stalled and a cut network, revoked devices, replaced connections, tokens
//! of a few seconds. Every message that the node accepted must be shown exactly once, except messages of a topic for which the
//! client reported a gap.
//!
//! ```text
//! NOROSHI_BIN=… chaos [MINUTES [SEED]]
//! ```
//!
//! It prints counts, and exits with 1 if a message was lost or shown twice.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use noroshi_client::{Acknowledge, Subscribe, Transport};
use noroshi_sdk_tests::Problem;
use noroshi_sdk_tests::node::{KEY, Node};
use noroshi_sdk_tests::proxy::Proxy;
use noroshi_sdk_tests::recorder::{Device, text, until};
use noroshi_server_sdk::{Client as Backend, To};
use tokio::time::{Instant, sleep};

const TOPIC: &str = "chaos";
const CLIENTS: usize = 6;
/// Messages that waited for the application when a gap was reported.
const TOLERANCE: usize = 20;
const FAULTS: [&str; 6] = ["kill", "drain", "freeze", "cut", "revoke", "replace"];

/// SplitMix64: the same faults for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let place = usize::try_from(self.below(list.len() as u64)).unwrap_or_default();
        &list[place]
    }

    fn ms(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

#[derive(Default)]
struct Sent {
    /// Of each message: its id, and whether it was published to the topic.
    messages: Vec<(String, bool)>,
    /// What each device has to show.
    expected: Vec<Vec<String>>,
    log: Vec<String>,
}

struct Chaos {
    proxy: Arc<Proxy>,
    backend: Backend,
    devices: Vec<Device>,
    sent: Mutex<Sent>,
    is_over: AtomicBool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let minutes = arguments.next().map_or(Ok(10.0), |text| text.parse());
    let seed = arguments.next().map_or_else(|| Ok(now_ms() % 1_000_000), |text| text.parse());
    let (Ok(minutes), Ok(seed)) = (minutes, seed) else {
        eprintln!("usage: chaos [MINUTES [SEED]]");
        return ExitCode::from(64);
    };
    match run(Duration::from_secs_f64(f64::max(minutes, 0.0) * 60.0), seed).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or_default()
}

/// Returns how many devices lost a message or showed one twice.
async fn run(duration: Duration, seed: u64) -> Result<usize, Problem> {
    let mut node = Node::start().await?;
    let proxy = Proxy::start(node.port()).await?;
    // The same key in every attempt: a message whose answer was lost is not published twice.
    let backend =
        Backend::builder(node.url(), KEY).attempts(10_000).deadline(Duration::from_secs(120)).build()?;
    let mut devices = Vec::new();
    for n in 0..CLIENTS {
        devices.push(connect(&proxy.url(), n).await?);
    }
    let sent = Sent { expected: vec![Vec::new(); CLIENTS], ..Sent::default() };
    let chaos =
        Arc::new(Chaos { proxy, backend, devices, sent: Mutex::new(sent), is_over: AtomicBool::new(false) });
    chaos.begin().await?;

    let publishing = tokio::spawn(Arc::clone(&chaos).publish_until_over(Random(seed ^ 1)));
    let mut happened: BTreeMap<&str, usize> = BTreeMap::new();
    let mut random = Random(seed);
    let end = Instant::now() + duration;
    while Instant::now() < end {
        let fault = *random.pick(&FAULTS);
        chaos.note(&format!("begin {fault}"));
        chaos.fault(fault, &mut node, &mut random).await.map_err(|problem| format!("{fault}: {problem}"))?;
        chaos.note(&format!("end {fault}"));
        *happened.entry(fault).or_default() += 1;
        sleep(random.ms(4_000)).await;
    }
    chaos.is_over.store(true, Ordering::SeqCst);
    publishing.await??;
    for (n, device) in chaos.devices.iter().enumerate() {
        let count = chaos.sent().expected[n].len();
        let _ = until("", || device.record().shown.len() >= count).await;
    }
    sleep(Duration::from_secs(1)).await;
    let mut failures = 0;
    for n in 0..CLIENTS {
        failures += usize::from(!chaos.report(n).await);
    }
    let count = chaos.sent().messages.len();
    println!("seed {seed}, {count} messages, {:.0} s, faults: {happened:?}", duration.as_secs_f64());
    Ok(failures)
}

async fn connect(url: &str, n: usize) -> Result<Device, Problem> {
    let device = Device::new(url, &format!("chaos-{n}"), |builder| {
        let builder = builder.ping_interval(Duration::from_secs(1));
        if n % 3 == 2 { builder.transports([Transport::Sse]) } else { builder }
    })?;
    if n % 2 == 1 {
        device.set_lifetime(Duration::from_secs(8));
    }
    device.client.subscribe(TOPIC, Subscribe::with_recovery());
    device.connect().await?;
    Ok(device)
}

impl Chaos {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().expect("no panic under the lock")
    }

    fn note(&self, text: &str) {
        let mut sent = self.sent();
        let line = format!("{:6} {text}", sent.messages.len());
        sent.log.push(line);
    }

    /// Gives every device a position to recover from (R3).
    async fn begin(&self) -> Result<(), Problem> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.devices.iter().any(|device| device.record().shown.is_empty()) {
            if Instant::now() > deadline {
                return Err("the subscriptions are not active".into());
            }
            self.publish(None, &[]).await?;
            sleep(Duration::from_millis(100)).await;
        }
        sleep(Duration::from_millis(500)).await;
        for device in &self.devices {
            device.forget();
        }
        Ok(())
    }

    /// To the user of a device, or to the topic.
    async fn publish(&self, device: Option<usize>, receivers: &[usize]) -> Result<(), Problem> {
        let number = {
            let mut sent = self.sent();
            sent.messages.push((String::new(), device.is_none()));
            sent.messages.len() - 1
        };
        let to = device.map_or_else(|| To::Topic(TOPIC.to_owned()), |n| self.devices[n].user());
        let receipt = self.backend.publish(&text(to, number.to_string())).await?;
        let mut sent = self.sent();
        sent.messages[number].0 = receipt.id;
        for n in receivers {
            sent.expected[*n].push(number.to_string());
        }
        Ok(())
    }

    async fn publish_until_over(self: Arc<Self>, mut random: Random) -> Result<(), Problem> {
        let all: Vec<usize> = (0..CLIENTS).collect();
        while !self.is_over.load(Ordering::SeqCst) {
            sleep(random.ms(20)).await;
            if random.below(10) < 3 {
                self.publish(None, &all).await?;
            } else {
                let one = *random.pick(&all);
                self.publish(Some(one), &[one]).await?;
            }
        }
        Ok(())
    }

    async fn fault(&self, name: &str, node: &mut Node, random: &mut Random) -> Result<(), Problem> {
        match name {
            "kill" => {
                node.kill().await?;
                node.spawn().await?;
            }
            "drain" => {
                node.drain().await?;
                node.spawn().await?;
            }
            "freeze" => {
                self.proxy.freeze();
                sleep(Duration::from_secs(2) + random.ms(13_000)).await;
                self.proxy.heal().await?;
            }
            "cut" => {
                self.proxy.cut().await;
                sleep(random.ms(3_000)).await;
                self.proxy.heal().await?;
            }
            "revoke" => {
                self.backend.revoke_device(&random.pick(&self.devices).name).await?;
            }
            _ => self.replace(random.pick(&self.devices), &node.url()).await?,
        }
        Ok(())
    }

    /// A connection of the same device that acknowledges nothing.
    async fn replace(&self, victim: &Device, url: &str) -> Result<(), Problem> {
        if !victim.client.state().is_connected() {
            return Ok(());
        }
        let other = Device::new(url, &victim.name, |builder| builder.acknowledge(Acknowledge::Manual))?;
        other.connect().await?;
        other.client.close().await;
        until("the client to be replaced", || !victim.client.state().is_connected()).await?;
        if victim.client.state().is_closed() {
            victim.client.connect();
        }
        Ok(())
    }

    /// Prints what a device showed. Returns false if a message was lost or shown twice.
    async fn report(&self, n: usize) -> bool {
        let device = &self.devices[n];
        let (shown, gaps) = (device.shown(), device.record().gaps.clone());
        let mut counts: HashMap<&str, usize> = HashMap::new();
        // Where each message of the topic was shown.
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        let (messages, expected) = {
            let sent = self.sent();
            (sent.messages.clone(), sent.expected[n].clone())
        };
        for (place, data) in shown.iter().enumerate() {
            *counts.entry(data).or_default() += 1;
            let number: usize = data.parse().unwrap_or_default();
            if messages[number].1 {
                places.insert(number, place);
            }
        }
        // The client reported a gap between the messages of the topic before and after this one.
        let is_reported = |number: usize| {
            let from = places.range(..number).next_back().map_or(0, |(_, place)| *place);
            let to = places.range(number..).next().map_or(shown.len(), |(_, place)| *place);
            gaps.iter().any(|gap| (from.saturating_sub(TOLERANCE)..=to + TOLERANCE).contains(gap))
        };
        let (mut lost, mut twice, mut reported) = (Vec::new(), Vec::new(), 0);
        for data in &expected {
            let number: usize = data.parse().unwrap_or_default();
            match counts.get(data.as_str()).copied().unwrap_or_default() {
                1 => {}
                // A change from a WebSocket to a stream has no position of a topic: the client reports a gap (X5, X6).
                0 if messages[number].1 && is_reported(number) => reported += 1,
                0 => lost.push(number),
                _ => twice.push(number),
            }
        }
        let mut codes: BTreeMap<String, usize> = BTreeMap::new();
        for error in &device.record().errors {
            *codes.entry(error.code().to_string()).or_default() += 1;
        }
        println!(
            "{}: {} expected, {} lost, {} twice, {reported} in {} reported gaps, errors: {codes:?}",
            device.name,
            expected.len(),
            lost.len(),
            twice.len(),
            gaps.len()
        );
        if lost.is_empty() && twice.is_empty() {
            return true;
        }
        println!("  lost: {lost:?}\n  twice: {twice:?}");
        for state in &device.record().states {
            println!("  {state}");
        }
        if let Some(first) = lost.first() {
            let trace = self.backend.trace(&messages[*first].0, &device.name).await;
            println!("  the first one: {trace:?}");
        }
        for line in &self.sent().log {
            println!("  {line}");
        }
        false
    }
}

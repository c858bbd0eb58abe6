//! Compares the messages that every device received with those it was owed, over random sequences of steps.
//!
//! A seed decides the steps of a run and its kind ([`Kind`]), but not how threads interleave. `NOROSHI_MODEL_SEED`
//! chooses a seed, `NOROSHI_MODEL_STEPS` the length and `NOROSHI_MODEL_RUNS` how many seeds from there on
//! (CONTRIBUTING.md). A difference names the seed, the length and the last steps.

mod ledger;
mod mqtt;
mod native;
mod random;
mod socket_io;
mod world;
mod xmpp;

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt;
use noroshi_types::{Request, Ttl, When};

use crate::node::{Node, PATIENCE, request, topic, user};
use ledger::{Account, INBOX, Ledger, Tally};
use random::Random;
use world::World;

const DEVICES: usize = 4;
const TOPICS: [&str; 6] = ["a/1", "a/2", "b/1", "b/2", "a/1/x", "c"];
/// The listener of XMPP, behind those of HTTP and MQTT.
const XMPP: usize = 2;
const SHORT: Duration = Duration::from_secs(60);
/// How long a session outlasts its connection, where it ends.
const EXPIRY_S: u32 = 3_600;
/// Most of a step is waiting: for commits, for acknowledgements to be written, for the other end of a socket.
const RUNS_AT_ONCE: usize = 4;
/// No token ends within a run.
const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

/// An error is a difference between the received and the expected messages.
type Came = Result<(), String>;

/// What a device works with.
struct Scene<'r> {
    node: &'r Node,
    ledger: &'r mut Ledger,
    random: &'r mut Random,
    /// Whose turn it is, and its name.
    at: usize,
    name: &'r str,
}

impl Scene<'_> {
    fn account(&mut self) -> &mut Account {
        &mut self.ledger.accounts[self.at]
    }

    /// A device has a session, and all that is published to these topics and to itself is for it.
    fn hears(&mut self, topics: &[&'static str]) {
        let account = self.account();
        account.begin_session();
        for filter in topics.iter().chain([&INBOX]) {
            account.ask(filter);
            account.subscribe(filter);
        }
    }

    fn receive(&mut self, number: usize, topic: &str, retained: bool) -> Came {
        self.ledger.received(self.at, number, topic, retained)
    }

    fn acknowledge(&mut self, number: usize, retained: bool) {
        self.ledger.acknowledge(self.at, number, retained);
    }

    fn note(&mut self, number: usize, what: String) {
        self.ledger.note(self.at, Some(number), what);
    }

    /// Of no message.
    fn note_step(&mut self, what: String) {
        self.ledger.note(self.at, None, what);
    }
}

/// How a device reconnects.
#[derive(Debug, Clone, Copy)]
struct Entry {
    clean: bool,
    /// The node does not remember its last connection.
    forgets: bool,
}

/// A device's side of a protocol.
#[async_trait::async_trait]
trait Speaker: Send {
    fn describe(&self) -> String;
    fn is_connected(&self) -> bool;
    /// Logs in, over a connection that it may still have.
    async fn connect(&mut self, scene: &mut Scene<'_>, entry: Entry) -> Came;
    /// Vanishes, or announces that it leaves.
    async fn leave(&mut self, scene: &mut Scene<'_>, politely: bool);
    /// The node is gone, or ended the connection.
    fn is_cut(&mut self, scene: &mut Scene<'_>);
    /// Reads everything that the server has sent so far.
    async fn read(&mut self, scene: &mut Scene<'_>) -> Came;
    /// Acknowledges at most `count` messages.
    async fn acknowledge(&mut self, scene: &mut Scene<'_>, count: usize);
    /// Whether all received messages are acknowledged, and all expected redeliveries arrived.
    fn is_done(&self, account: &Account) -> bool;

    /// Whether its session ends some time after its connection.
    fn expires(&self) -> bool {
        false
    }

    /// Topics that it subscribes to when it is registered.
    fn topics(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Its session ended while it was away.
    fn forget(&mut self) {}

    /// Some time passed: messages may have expired. `next`: the number of the first that is published after it.
    fn may_lack_messages(&mut self, _next: usize) {}

    /// What had to come again on this connection and did not.
    fn take_missing(&mut self, _account: &Account) -> Vec<usize> {
        Vec::new()
    }

    async fn change_subscriptions(&mut self, _scene: &mut Scene<'_>) -> (String, Came) {
        ("keeps its topics".to_owned(), Ok(()))
    }
}

struct Device {
    name: String,
    speaker: Box<dyn Speaker>,
}

/// What may happen in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Devices read and acknowledge before they go, and nothing else ends a connection: no acknowledged message may come
    /// again.
    Calm,
    /// Connections end at any moment.
    Rough,
    /// And the node forgets every session without a connection.
    Forgetful,
    /// And the node is killed or stopped.
    Deadly,
}

impl Kind {
    fn of(seed: u64) -> Self {
        [Self::Calm, Self::Rough, Self::Forgetful, Self::Deadly][(seed % 4) as usize]
    }
}

struct Run {
    world: World,
    ledger: Ledger,
    devices: Vec<Device>,
    /// Messages may be retained.
    retains: bool,
    /// Devices share messages (`$share`).
    shares: bool,
    seed: u64,
    random: Random,
    kind: Kind,
    /// The first differences.
    differences: String,
}

impl Run {
    async fn start(seed: u64, speaks: Speaks) -> Self {
        let mut random = Random::new(seed);
        let kind = Kind::of(seed);
        let mut config = crate::mqtt::config();
        crate::xmpp::listen(&mut config);
        (config.frames_per_second, config.frames_burst) = (1_000_000, 1_000_000);
        (config.connects_per_second, config.connections_per_client) = (1_000_000, 0);
        if kind == Kind::Forgetful {
            config.parked_sessions_bytes = 1;
        }
        let world = World::start(config).await;
        let mut devices = Vec::new();
        for at in 0..DEVICES {
            let speaker = match speaks {
                Speaks::Mqtt => Box::new(mqtt::Device::new(&mut random)) as Box<dyn Speaker>,
                Speaks::Shared => Box::new(mqtt::Device::member(&mut random, at)),
                Speaks::Native => Box::new(native::Device::new(&mut random)),
                Speaks::SocketIo => Box::new(socket_io::Device::new(&mut random)),
                Speaks::Xmpp => Box::new(xmpp::Device::new(&mut random)),
            };
            let name = format!("d{at}");
            world.node.device(&name, &name, &speaker.topics()).await;
            devices.push(Device { name, speaker });
        }
        let (retains, shares) = (speaks == Speaks::Mqtt, speaks == Speaks::Shared);
        let (ledger, differences) = (Ledger::new(DEVICES), String::new());
        Self { world, ledger, devices, retains, shares, seed, random, kind, differences }
    }

    /// A device, and what it works with.
    fn turn(&mut self, at: usize) -> (&mut dyn Speaker, Scene<'_>) {
        let Device { name, speaker } = &mut self.devices[at];
        let (node, ledger, random) = (&self.world.node, &mut self.ledger, &mut self.random);
        (&mut **speaker, Scene { node, ledger, random, at, name })
    }

    fn is_connected(&self, at: usize) -> bool {
        self.devices[at].speaker.is_connected()
    }

    fn note(&mut self, at: usize, what: String) {
        self.ledger.note(at, None, what);
    }

    fn differs(&mut self, at: usize, what: &str, numbers: &[usize]) {
        if self.differences.len() < 20_000 {
            let (step, device) = (self.ledger.step, self.devices[at].speaker.describe());
            let story = self.ledger.story(at, numbers);
            let _ = writeln!(self.differences, "step {step}: d{at} ({device}): {what}\n{story}");
        }
    }

    async fn step(&mut self) {
        self.ledger.step += 1;
        self.random = Random::of_step(self.seed, self.ledger.step);
        self.world.advance(Duration::from_millis(1));
        let at = self.random.below(DEVICES);
        match self.random.below(1_000) {
            0..330 => self.publish().await,
            330..340 => {
                for _ in 0..80 {
                    self.publish().await;
                }
            }
            340..680 => self.read_and_acknowledge(at).await,
            680..760 => self.leave(at).await,
            760..900 => self.connect(at).await,
            900..975 => self.change_subscriptions(at).await,
            975..983 => self.settle(at).await,
            983..990 => self.wait(SHORT).await,
            // When a session ends that the node has forgotten is not known to the second.
            990..992 if matches!(self.kind, Kind::Calm | Kind::Rough) => {
                self.wait(Duration::from_secs(2 * u64::from(EXPIRY_S))).await
            }
            992..995 if self.kind == Kind::Deadly => self.restart().await,
            _ => {}
        }
    }

    async fn publish(&mut self) {
        let to = self.random.chance(12).then(|| self.random.below(DEVICES));
        let name = if to.is_some() { INBOX } else { self.random.pick(&TOPICS) };
        let number = self.ledger.next_number();
        let (qos, retain) = (self.random.below(10), self.random.chance(10));
        let retain = retain && self.retains && to.is_none();
        // Half of the messages have a provider's own data; the others have data for MQTT clients.
        let data = match qos {
            0..5 => number.to_string(),
            qos => {
                let qos = [0, 1, 2, 2, 2][qos - 5];
                format!(r#"{{"mqtt":{{"text":"{number}","qos":{qos}}}}}"#)
            }
        };
        let target = to.map_or_else(|| topic(name), |to| user(&self.devices[to].name));
        let short = self.random.chance(15);
        let request = Request {
            retain,
            ttl: if short { Ttl::new(SHORT).expect("short") } else { Ttl::default() },
            ..request(target, When::Stored, &data)
        };
        let expires_at = request.expires_at(self.world.now());
        self.world.node.publish_request(request).await;
        self.ledger.accepted(name, expires_at, (qos == 5, retain), to);
    }

    async fn read_and_acknowledge(&mut self, at: usize) {
        if self.is_connected(at) {
            let count = [0, 1, 3, 10, 100][self.random.below(5)];
            self.note(at, format!("reads and acknowledges {count}"));
            self.read(at).await;
            let (device, mut scene) = self.turn(at);
            device.acknowledge(&mut scene, count).await;
        }
    }

    async fn read(&mut self, at: usize) -> bool {
        let (device, mut scene) = self.turn(at);
        let read = device.read(&mut scene).await;
        self.check(at, read)
    }

    /// A connection that the server ended, or what should not have come.
    fn check(&mut self, at: usize, result: Came) -> bool {
        if let Err(why) = &result {
            self.differs(at, why, &[]);
            let (device, mut scene) = self.turn(at);
            device.is_cut(&mut scene);
        }
        let repeated = self.ledger.accounts[at].take_repeated();
        if self.kind == Kind::Calm && !repeated.is_empty() {
            self.differs(at, &format!("{repeated:?} came again, and were acknowledged"), &repeated);
        }
        result.is_ok()
    }

    /// In a calm run: the server has received a device's acknowledgements, and has written them.
    async fn calm(&mut self, at: usize) {
        if self.kind == Kind::Calm && self.is_connected(at) {
            self.read(at).await;
            self.world.acknowledgements_written().await;
        }
    }

    async fn leave(&mut self, at: usize) {
        if self.is_connected(at) {
            self.calm(at).await;
            let politely = self.random.chance(30);
            self.note(at, format!("leaves, politely: {politely}"));
            let (device, mut scene) = self.turn(at);
            device.leave(&mut scene, politely).await;
        }
    }

    async fn connect(&mut self, at: usize) {
        let takes_over = self.is_connected(at);
        if takes_over && self.random.chance(70) {
            return;
        }
        self.calm(at).await;
        let clean = self.random.chance(2);
        self.log_in(at, clean).await;
    }

    async fn log_in(&mut self, at: usize, clean: bool) {
        // What a member did not acknowledge may be another member's by now.
        let forgets = self.kind == Kind::Forgetful || self.shares;
        let entry = Entry { clean, forgets };
        let takes_over = self.is_connected(at);
        self.note(at, format!("connects, clean: {clean}, takes over: {takes_over}"));
        let (device, mut scene) = self.turn(at);
        let connected = device.connect(&mut scene, entry).await;
        if self.check(at, connected) && self.ledger.accounts[at].filters.is_empty() {
            self.change_subscriptions(at).await;
        }
    }

    async fn change_subscriptions(&mut self, at: usize) {
        if self.is_connected(at) {
            let (device, mut scene) = self.turn(at);
            let (what, result) = device.change_subscriptions(&mut scene).await;
            self.note(at, what);
            self.check(at, result);
        }
    }

    async fn wait(&mut self, time: Duration) {
        let is_long = time > SHORT;
        if is_long {
            // Sessions end some time after the node saw their connections go.
            let count = self.devices.iter().filter(|device| device.speaker.is_connected()).count();
            self.world.node.until_sessions(count).await;
        }
        self.world.advance(time);
        self.ledger.expire(self.world.now());
        let next = self.ledger.next_number();
        for at in 0..DEVICES {
            self.note(at, format!("{time:?} pass"));
            let device = &mut self.devices[at].speaker;
            device.may_lack_messages(next);
            if is_long && !device.is_connected() && device.expires() {
                self.ledger.end_session(at);
                device.forget();
            }
        }
    }

    async fn restart(&mut self) {
        let is_sudden = self.random.chance(60);
        self.world.restart(is_sudden).await;
        for at in 0..DEVICES {
            self.note(at, format!("the node ends, suddenly: {is_sudden}"));
            let (device, mut scene) = self.turn(at);
            device.is_cut(&mut scene);
        }
    }

    fn has_all(&self, at: usize) -> bool {
        let account = &self.ledger.accounts[at];
        account.owes_nothing() && self.devices[at].speaker.is_done(account)
    }

    /// A device comes, and stays until it has everything.
    async fn settle(&mut self, at: usize) {
        self.note(at, "takes everything".to_owned());
        if !self.is_connected(at) {
            self.log_in(at, false).await;
        }
        let until = tokio::time::Instant::now() + PATIENCE;
        while self.is_connected(at) && !self.has_all(at) {
            if !self.read(at).await {
                break;
            }
            let (device, mut scene) = self.turn(at);
            device.acknowledge(&mut scene, 1_000).await;
            if tokio::time::Instant::now() > until {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let again = self.devices[at].speaker.take_missing(&self.ledger.accounts[at]);
        if !again.is_empty() {
            self.differs(at, &format!("{again:?} did not come again"), &again);
        }
        let lost = self.ledger.accounts[at].write_off();
        if !lost.is_empty() {
            let mut text = format!("lost {} messages:", lost.len());
            for (number, filters) in lost.iter().take(5) {
                let _ = write!(text, " [{}, for {filters:?}]", self.ledger.describe(*number));
            }
            let numbers: Vec<usize> = lost.iter().take(5).map(|(number, _)| *number).collect();
            self.differs(at, &text, &numbers);
        }
    }
}

impl Run {
    /// All are there, and take what their groups are owed.
    async fn settle_groups(&mut self) {
        // A device that takes one message at a time needs a while.
        let until = tokio::time::Instant::now() + 3 * PATIENCE;
        while !self.ledger.owed_to_groups().is_empty() && tokio::time::Instant::now() < until {
            for at in 0..DEVICES {
                if !self.is_connected(at) {
                    self.log_in(at, false).await;
                }
                self.read(at).await;
                let (device, mut scene) = self.turn(at);
                device.acknowledge(&mut scene, 1_000).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let lost = self.ledger.owed_to_groups();
        if !lost.is_empty() {
            self.ledger.accounts[0].tally.lost += lost.len();
            let shown = &lost[..lost.len().min(5)];
            let described: Vec<String> = shown.iter().map(|number| self.ledger.describe(*number)).collect();
            for at in 0..DEVICES {
                self.differs(at, &format!("groups lost {} messages: {described:?}", lost.len()), shown);
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Mqtt,
    /// MQTT, with shared subscriptions only.
    Shared,
    Native,
    SocketIo,
    Xmpp,
}

fn some_topics(random: &mut Random) -> Vec<&'static str> {
    TOPICS.into_iter().filter(|_| random.chance(50)).collect()
}

/// Runs the model. Returns the counts of the run and its first differences.
async fn run(seed: u64, steps: usize, speaks: Speaks) -> (Tally, String) {
    let mut run = Run::start(seed, speaks).await;
    for at in 0..DEVICES {
        run.log_in(at, false).await;
    }
    for _ in 0..steps {
        run.step().await;
    }
    for at in 0..DEVICES {
        run.settle(at).await;
    }
    run.settle_groups().await;
    (run.ledger.tally(), run.differences)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

async fn check(speaks: Speaks) {
    let steps = number("NOROSHI_MODEL_STEPS").map_or(400, |steps| steps as usize);
    let chosen = number("NOROSHI_MODEL_SEED");
    let count = number("NOROSHI_MODEL_RUNS").unwrap_or(1);
    let seeds = chosen.map_or(0..4, |seed| seed..seed + count);
    let start = |seed| async move { (seed, tokio::spawn(run(seed, steps, speaks)).await) };
    let mut runs = futures_util::stream::iter(seeds).map(start).buffer_unordered(RUNS_AT_ONCE);
    let mut failed = String::new();
    while let Some((seed, result)) = runs.next().await {
        let (tally, differences) = match result {
            Ok(result) => result,
            Err(panic) => {
                let _ = writeln!(failed, "seed {seed}, {steps} steps: {panic}");
                continue;
            }
        };
        println!("{speaks:?}, seed {seed}, {steps} steps, {:?}: {tally:?}", Kind::of(seed));
        // Acknowledged messages of groups still come again where a member leaves its group and joins it once more.
        let is_strict = chosen.is_some() || speaks != Speaks::Shared;
        if tally.lost > 0 || (is_strict && !differences.is_empty()) {
            let _ = writeln!(failed, "seed {seed}, {steps} steps, {tally:?}\n{differences}");
        }
    }
    assert!(failed.is_empty(), "NOROSHI_MODEL_SEED and NOROSHI_MODEL_STEPS repeat it:\n{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mqtt_devices_receive_every_message_they_are_due() {
    check(Speaks::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_receive_every_message_they_are_due() {
    check(Speaks::Shared).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_devices_receive_every_message_they_are_due() {
    check(Speaks::Native).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_io_devices_receive_every_message_they_are_due() {
    check(Speaks::SocketIo).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn xmpp_devices_receive_every_message_they_are_due() {
    check(Speaks::Xmpp).await;
}

//! A worker's event loop: the sockets of its devices and providers, a timer that is exact to the
//! microsecond, and a wake for commands. One thread, one epoll, one read buffer; what happened is left in
//! lists that the running task drains.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::device::{Device, Ended, Reading, Shared};
use crate::dialect::Dialect;
use crate::homes::Homes;
use crate::jwt::Signer;
use crate::partition::Partition;
use crate::payload::Names;
use crate::sender::{Answer, Pending, Sender};
use crate::socket::Route;
use crate::speech::Login;
use crate::stats::Latency;
use crate::tls::{Connector, Handshakes};
use crate::{Error, http::Origin};

/// Devices are numbered from 0; a process cannot have as many.
const SENDERS: usize = 1 << 24;
const TIMER: Token = Token(1 << 25);
const WAKER: Token = Token((1 << 25) + 1);
/// Small, so that a request that is due waits for few devices.
const EVENTS_PER_TURN: usize = 256;
/// Of some 28,000 ports an address has by default: the kernel's search for a free one stays short.
const CONNECTIONS_PER_SOURCE: u32 = 2_000;

/// An address of 127.1.0.1 to 127.250.254.254, the same for equal numbers.
fn source(number: u32) -> Ipv4Addr {
    let (third, fourth) = (number / 254 % 254, number % 254);
    let second = number / (254 * 254) % 250;
    let octet = |value: u32| value as u8 + 1; // all are below 254
    Ipv4Addr::new(127, octet(second), octet(third), octet(fourth))
}

/// Who the devices are and where they connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) origin: Origin,
    /// Nodes that devices connect to; none: `origin`.
    #[serde(default)]
    pub(crate) homes: Vec<Origin>,
    /// The last of them, which nobody connects to at first.
    #[serde(default)]
    pub(crate) spare_homes: usize,
    /// Nodes that requests go to, by turns of the workers; none: `origin`.
    #[serde(default)]
    pub(crate) providers: Vec<Origin>,
    pub(crate) names: Names,
    pub(crate) signer: Signer,
    pub(crate) api_key: String,
    /// Subscribed to by every device.
    pub(crate) topic: Option<String>,
    /// How devices speak.
    pub(crate) dialect: Dialect,
    /// Where the addresses of all workers begin: elsewhere each time, since the ports of those that an
    /// earlier measurement used are in TIME_WAIT, and looking for free ones among them takes milliseconds.
    pub(crate) sources_start: u32,
}

pub(crate) struct Engine {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    /// What the timer is set to; 0 if it is not.
    timer_ns: u64,
    setup: Arc<Setup>,
    /// None: the server is spoken to without TLS.
    pub(crate) connector: Option<Connector>,
    partition: Partition,
    pub(crate) shared: Shared,
    devices: Vec<Option<Device>>,
    /// Which of several homes each device connects to.
    homes: Homes,
    senders: Vec<Sender>,
    /// Connections that have an address of [`source`].
    sources_used: u32,
    /// Devices that are on their way in, and that are in.
    pub(crate) opening: usize,
    pub(crate) ready: usize,
    /// From the first packet to `ready`, or to the subscription.
    pub(crate) log_in: Latency,
    pub(crate) last_log_in_ns: u64,
    pub(crate) handshakes: Handshakes,
    /// Devices from this number on connect as over a narrow network.
    pub(crate) narrow_from: usize,
    /// Since they were last drained.
    pub(crate) ended: Vec<(usize, Ended)>,
    pub(crate) answers: Vec<Answer>,
}

impl Engine {
    pub(crate) fn new(setup: Arc<Setup>, partition: Partition) -> Result<(Self, Waker), Error> {
        let poll = Poll::new().map_err(Error::system("epoll"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|errno| Error::System { what: "timerfd", source: errno.into() })?;
        let registry = poll.registry();
        registry
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(Error::system("epoll"))?;
        let waker = Waker::new(registry, WAKER).map_err(Error::system("eventfd"))?;
        let engine = Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_TURN),
            timer,
            timer_ns: 0,
            shared: Shared::new(setup.topic.clone(), setup.dialect.clone()),
            connector: setup.origin.connector()?,
            homes: Homes::new(setup.homes.len(), setup.spare_homes, partition.index as u64),
            setup,
            partition,
            devices: Vec::new(),
            senders: Vec::new(),
            sources_used: 0,
            opening: 0,
            ready: 0,
            log_in: Latency::new(),
            last_log_in_ns: 0,
            handshakes: Handshakes::default(),
            narrow_from: usize::MAX,
            ended: Vec::new(),
            answers: Vec::new(),
        };
        Ok((engine, waker))
    }

    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    pub(crate) fn partition(&self) -> Partition {
        self.partition
    }

    /// Waits for events, at most until `wake_ns`, and handles them.
    pub(crate) fn turn(&mut self, wake_ns: u64) -> Result<(), Error> {
        let timeout = match wake_ns {
            u64::MAX => None,
            wake_ns if wake_ns <= clock::now_ns() => Some(Duration::ZERO),
            wake_ns => {
                self.set_timer(wake_ns)?;
                None
            }
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(Error::System { what: "epoll_wait", source: error });
            }
            Ok(()) | Err(_) => {}
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                TIMER => self.timer_ns = 0,
                WAKER => {}
                Token(number) if number >= SENDERS => {
                    self.take_turn(number);
                    self.answers.extend(self.senders[number - SENDERS].handle_ready());
                }
                Token(number) => self.handle_device(
                    number,
                    event.is_readable() || event.is_error(),
                    event.is_writable(),
                    event.is_read_closed(),
                ),
            }
        }
        self.events = events;
        Ok(())
    }

    /// Handles what has happened so far.
    pub(crate) fn catch_up(&mut self) -> Result<(), Error> {
        loop {
            self.turn(0)?;
            if self.events.is_empty() {
                return Ok(());
            }
        }
    }

    /// Publishes `text` to everybody as device `number`, if it is there; waits for the socket to take it at most until
    /// `deadline_ns`.
    pub(crate) fn say(&mut self, number: usize, text: &str, deadline_ns: u64) -> Result<(), Error> {
        let ended = |reason: &str| Error::Ended(reason.to_owned());
        let device = self.devices.get_mut(number).and_then(Option::as_mut);
        let device = device.ok_or_else(|| ended("it is no longer open"))?;
        device.say(text, &self.shared).map_err(|why| ended(&why.reason))?;
        while self.devices[number].as_ref().ok_or_else(|| ended("it was closed"))?.is_sending() {
            if clock::now_ns() >= deadline_ns {
                return Err(ended("the server does not take what is published"));
            }
            self.turn(deadline_ns)?;
        }
        Ok(())
    }

    /// epoll's own timeout counts in milliseconds.
    fn set_timer(&mut self, wake_ns: u64) -> Result<(), Error> {
        if self.timer_ns == wake_ns {
            return Ok(());
        }
        self.timer_ns = wake_ns;
        let at =
            Timespec { tv_sec: (wake_ns / 1_000_000_000) as i64, tv_nsec: (wake_ns % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map(drop)
            .map_err(|errno| Error::System { what: "timerfd", source: errno.into() })
    }

    /// TLS sessions belong to whoever's turn it is.
    fn take_turn(&self, number: usize) {
        if let Some(connector) = &self.connector {
            connector.turn_of(number);
        }
    }

    fn handle_device(&mut self, number: usize, readable: bool, writable: bool, peer_closed: bool) {
        self.take_turn(number);
        let Some(device) = self.devices.get_mut(number).and_then(Option::as_mut) else { return };
        let was_ready = device.is_ready();
        let mut result = Ok(());
        if writable {
            result = device.handle_writable();
        }
        if result.is_ok() && readable && device.reading == Reading::Eager {
            result = device.handle_readable(peer_closed, &mut self.shared);
        }
        if device.is_ready() && !was_ready {
            self.opening -= 1;
            self.ready += 1;
            self.last_log_in_ns = clock::now_ns();
            self.log_in.record(device.opened_ns, self.last_log_in_ns);
            self.handshakes.count(device.socket.handshake());
        }
        if let Err(ended) = result {
            self.remove(number);
            self.homes.leave(number);
            self.ended.push((number, ended));
        }
    }

    /// From now on it takes what arrives only in sips.
    pub(crate) fn slow_down(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number).and_then(Option::as_mut) {
            device.reading = Reading::Slow;
        }
    }

    /// A slow device takes at most `bytes` of what has arrived.
    pub(crate) fn sip(&mut self, number: usize, bytes: usize) {
        let Some(device) = self.devices.get_mut(number).and_then(Option::as_mut) else { return };
        if let Err(ended) = device.sip(bytes, &mut self.shared) {
            self.remove(number);
            self.ended.push((number, ended));
        }
    }

    /// When a device began to connect that is not ready yet.
    pub(crate) fn opening_since_ns(&self, number: usize) -> Option<u64> {
        let device = self.devices.get(number)?.as_ref()?;
        (!device.is_ready()).then_some(device.opened_ns)
    }

    /// Ends a connection as a device does that loses its network: without a closing handshake.
    pub(crate) fn remove(&mut self, number: usize) {
        let Some(device) = self.devices.get_mut(number).and_then(Option::take) else { return };
        match device.is_ready() {
            true => self.ready -= 1,
            false => self.opening -= 1,
        }
    }

    /// Begins to connect this worker's device `number`.
    pub(crate) fn open(&mut self, number: usize) {
        let name = self.setup.names.connected(self.partition.global(number));
        let source = self.next_source();
        self.take_turn(number);
        let origin = self.setup.homes.get(self.homes.of(number)).unwrap_or(&self.setup.origin);
        let tls = self.connector.as_ref();
        let narrow = number >= self.narrow_from;
        let route = Route { to: origin.address, source, narrow, tls };
        let dialect = &self.setup.dialect;
        let secret = dialect.secret(&name, &self.setup.signer, clock::unix_seconds());
        let topic = self.shared.topic.as_deref();
        let login = Login { host: &origin.host, name: &name, secret: secret.as_deref(), topic };
        let opened = Device::open(route, dialect, login, clock::now_ns());
        self.add(number, opened);
    }

    /// Begins a TLS handshake as device `number`, which ends as `HANDSHAKE_DONE` where all is well.
    pub(crate) fn open_handshake(&mut self, number: usize) {
        let source = self.next_source();
        self.take_turn(number);
        let tls = self.connector.as_ref();
        let route = Route { to: self.setup.origin.address, source, narrow: false, tls };
        let opened = Device::open_handshake(route, clock::now_ns());
        self.add(number, opened);
    }

    fn add(&mut self, number: usize, opened: io::Result<Device>) {
        if self.devices.len() <= number {
            self.devices.resize_with(number + 1, || None);
        }
        let registry = self.poll.registry();
        let opened = opened.and_then(|mut device| {
            device.socket.register(registry, Token(number))?;
            Ok(device)
        });
        match opened {
            Ok(device) => {
                self.devices[number] = Some(device);
                self.opening += 1;
            }
            Err(error) => {
                self.homes.leave(number);
                self.ended.push((number, Ended::io(&error)));
            }
        }
    }

    /// On one machine connections come from many addresses of 127.0.0.0/8, each with its own ports.
    fn next_source(&mut self) -> Option<SocketAddr> {
        if !matches!(self.setup.origin.address, SocketAddr::V4(address) if address.ip().is_loopback()) {
            return None;
        }
        // Each worker has addresses of its own, by the rule that gives it its devices.
        let own = self.partition.global((self.sources_used / CONNECTIONS_PER_SOURCE) as usize) as u32;
        let number = self.setup.sources_start.wrapping_add(own);
        self.sources_used = self.sources_used.wrapping_add(1);
        Some(SocketAddr::from((source(number), 0)))
    }

    /// [`Engine::remove`] for all.
    pub(crate) fn disconnect(&mut self) {
        self.devices.clear();
        self.opening = 0;
        self.ready = 0;
        self.ended.clear();
    }

    /// Numbers of the devices that are in.
    pub(crate) fn ready_devices(&self) -> impl Iterator<Item = usize> {
        let devices = self.devices.iter().enumerate();
        devices.filter(|(_, device)| device.as_ref().is_some_and(Device::is_ready)).map(|(number, _)| number)
    }

    /// Which of the first `count` devices have no connection.
    pub(crate) fn missing_devices(&self, count: usize) -> impl Iterator<Item = usize> {
        (0..count).filter(|number| self.devices.get(*number).is_none_or(Option::is_none))
    }

    /// How many devices that are connected have received at least `count` messages.
    pub(crate) fn devices_with(&self, count: u32) -> usize {
        self.devices.iter().flatten().filter(|device| device.is_ready() && device.received() >= count).count()
    }

    /// How many devices that are in have this home.
    pub(crate) fn ready_at(&self, home: usize) -> usize {
        self.ready_devices().filter(|number| self.homes.of(*number) == home).count()
    }

    /// Where this worker's requests go.
    pub(crate) fn provider(&self) -> &Origin {
        let providers = &self.setup.providers;
        let turn = self.partition.index % providers.len().max(1);
        providers.get(turn).unwrap_or(&self.setup.origin)
    }

    /// As many provider connections as requests may be in flight.
    pub(crate) fn set_senders(&mut self, count: usize) {
        let address = self.provider().address;
        self.senders.truncate(count);
        while self.senders.len() < count {
            let token = Token(SENDERS + self.senders.len());
            self.senders.push(Sender::new(address, self.connector.clone(), token));
        }
    }

    pub(crate) fn idle_sender(&self) -> Option<usize> {
        self.senders.iter().position(Sender::is_idle)
    }

    pub(crate) fn senders_busy(&self) -> usize {
        self.senders.iter().filter(|sender| !sender.is_idle()).count()
    }

    pub(crate) fn send(&mut self, sender: usize, pending: Pending, write: impl FnOnce(&mut Vec<u8>)) {
        self.take_turn(SENDERS + sender);
        let answer = self.senders[sender].send(self.poll.registry(), pending, write);
        self.answers.extend(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_numbers_have_addresses_of_their_own_that_a_host_may_use() {
        for start in [0, 254 * 254 - 2, u32::MAX - 1] {
            let sources: Vec<_> = (0..4).map(|n| source(start.wrapping_add(n))).collect();
            assert!(sources.iter().all(|source| source.is_loopback() && !source.octets().contains(&0)));
            assert!(sources.windows(2).all(|pair| pair[0] != pair[1]), "{sources:?}");
        }
        assert_eq!(source(0), Ipv4Addr::new(127, 1, 1, 1));
    }
}

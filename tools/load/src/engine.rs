//! A worker's event loop: the sockets of its devices and providers, a timer with microsecond precision, and a
//! waker for commands. One thread, one epoll, one read buffer; events are left in lists that the running task
//! drains.

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
use crate::connection::{Ended, Reading};
use crate::device::{Device, Shared};
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

/// Device numbers start at 0 and stay below this.
const SENDERS: usize = 1 << 24;
const TIMER: Token = Token(1 << 25);
const WAKER: Token = Token((1 << 25) + 1);
/// Small, so that a due request waits for few devices.
const EVENTS_PER_TURN: usize = 256;
/// Of about 28,000 ports per address by default: the kernel's search for a free one stays short.
pub(crate) const CONNECTIONS_PER_SOURCE: u32 = 2_000;

/// An address from 127.1.0.1 to 127.250.254.254, determined by the number.
fn source(number: u32) -> Ipv4Addr {
    let (third, fourth) = (number / 254 % 254, number % 254);
    let second = number / (254 * 254) % 250;
    let octet = |value: u32| value as u8 + 1; // all are below 254
    Ipv4Addr::new(127, octet(second), octet(third), octet(fourth))
}

/// The identities of the devices, and the server's addresses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) origin: Origin,
    /// Nodes that devices connect to; empty: `origin`.
    #[serde(default)]
    pub(crate) homes: Vec<Origin>,
    /// The number of spare nodes at the end of `homes`, unused at first.
    #[serde(default)]
    pub(crate) spare_homes: usize,
    /// Nodes that receive requests, in turn by worker; empty: `origin`.
    #[serde(default)]
    pub(crate) providers: Vec<Origin>,
    pub(crate) names: Names,
    pub(crate) signer: Signer,
    pub(crate) api_key: String,
    /// Subscribed by every device.
    pub(crate) topic: Option<String>,
    /// The protocol of the devices.
    pub(crate) dialect: Dialect,
    /// Start of the workers' source addresses: different for each measurement, since the ports of an earlier
    /// one are in TIME_WAIT, and searching for free ones among them takes milliseconds.
    pub(crate) sources_start: u32,
}

pub(crate) struct Engine {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    /// The time of the timer; 0 if it is not set.
    timer_ns: u64,
    setup: Arc<Setup>,
    /// `None`: without TLS.
    pub(crate) connector: Option<Connector>,
    partition: Partition,
    pub(crate) shared: Shared,
    devices: Vec<Option<Device>>,
    /// The node that each device connects to.
    homes: Homes,
    /// The ready devices of each node: counting them would read the memory of all devices.
    ready_at: Vec<usize>,
    senders: Vec<Sender>,
    /// The number of connections with an address of [`source`].
    sources_used: u32,
    /// Connecting devices, and ready devices.
    pub(crate) opening: usize,
    pub(crate) ready: usize,
    /// Time from the first packet to `ready`, or to the subscription.
    pub(crate) log_in: Latency,
    pub(crate) last_log_in_ns: u64,
    pub(crate) handshakes: Handshakes,
    /// Devices from this number on connect with small socket buffers.
    pub(crate) narrow_from: usize,
    /// Since the last drain.
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
            ready_at: vec![0; setup.homes.len().max(1)],
            setup,
            partition,
            devices: Vec::new(),
            senders: Vec::new(),
            sources_used: 0,
            opening: 0,
            ready: 0,
            log_in: Latency::default(),
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

    /// Waits for events until `wake_ns` at the latest, and handles them.
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

    /// Handles all pending events.
    pub(crate) fn catch_up(&mut self) -> Result<(), Error> {
        loop {
            self.turn(0)?;
            if self.events.is_empty() {
                return Ok(());
            }
        }
    }

    /// Publishes `text` to all devices through device `number`, if it is connected; waits for the socket
    /// until `deadline_ns` at the latest.
    pub(crate) fn publish(&mut self, number: usize, text: &str, deadline_ns: u64) -> Result<(), Error> {
        let ended = |reason: &str| Error::Ended(reason.to_owned());
        let device = self.devices.get_mut(number).and_then(Option::as_mut);
        let device = device.ok_or_else(|| ended("the connection is closed"))?;
        device.publish(text, &self.shared).map_err(|why| ended(&why.reason))?;
        while self.devices[number].as_ref().ok_or_else(|| ended("it was closed"))?.is_sending() {
            if clock::now_ns() >= deadline_ns {
                return Err(ended("the server does not read what is published"));
            }
            self.turn(deadline_ns)?;
        }
        Ok(())
    }

    /// epoll's own timeout has a resolution of milliseconds.
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

    /// Selects the TLS sessions of the current device.
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
            self.ready_at[self.homes.of(number)] += 1;
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

    /// From now on, the device reads only through `read_bytes`.
    pub(crate) fn slow_down(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number).and_then(Option::as_mut) {
            device.reading = Reading::Slow;
        }
    }

    /// A slow device reads at most `bytes`.
    pub(crate) fn read_bytes(&mut self, number: usize, bytes: usize) {
        let Some(device) = self.devices.get_mut(number).and_then(Option::as_mut) else { return };
        if let Err(ended) = device.read_bytes(bytes, &mut self.shared) {
            self.remove(number);
            self.ended.push((number, ended));
        }
    }

    /// When a device that is not ready yet started to connect.
    pub(crate) fn opening_since_ns(&self, number: usize) -> Option<u64> {
        let device = self.devices.get(number)?.as_ref()?;
        (!device.is_ready()).then_some(device.opened_ns)
    }

    /// Ends a connection like a network loss: without a closing handshake.
    pub(crate) fn remove(&mut self, number: usize) {
        let Some(device) = self.devices.get_mut(number).and_then(Option::take) else { return };
        match device.is_ready() {
            true => {
                self.ready -= 1;
                self.ready_at[self.homes.of(number)] -= 1;
            }
            false => self.opening -= 1,
        }
    }

    /// Reserves memory for `count` devices. Growth by doubling would waste up to half of it in many small
    /// processes.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.devices.reserve_exact(count.saturating_sub(self.devices.len()));
    }

    /// Starts to connect this worker's device `number`.
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

    /// Starts a TLS handshake as device `number`, which ends with `HANDSHAKE_DONE` on success.
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

    /// On one machine, connections use many addresses of 127.0.0.0/8, each with its own ports.
    fn next_source(&mut self) -> Option<SocketAddr> {
        if !matches!(self.setup.origin.address, SocketAddr::V4(address) if address.ip().is_loopback()) {
            return None;
        }
        // Each worker has its own addresses, distributed like its devices.
        let own = self.partition.global((self.sources_used / CONNECTIONS_PER_SOURCE) as usize) as u32;
        let number = self.setup.sources_start.wrapping_add(own);
        self.sources_used = self.sources_used.wrapping_add(1);
        Some(SocketAddr::from((source(number), 0)))
    }

    /// Every ready device sends the acknowledgements that it holds.
    pub(crate) fn send_acks(&mut self) {
        for number in 0..self.devices.len() {
            self.take_turn(number);
            let Some(device) = self.devices[number].as_mut() else { continue };
            if let Err(ended) = device.send_acks() {
                self.remove(number);
                self.homes.leave(number);
                self.ended.push((number, ended));
            }
        }
    }

    /// [`Engine::remove`] for all.
    pub(crate) fn disconnect(&mut self) {
        self.devices.clear();
        self.opening = 0;
        self.ready = 0;
        self.ready_at.fill(0);
        self.ended.clear();
    }

    /// The numbers of the ready devices.
    pub(crate) fn ready_devices(&self) -> impl Iterator<Item = usize> {
        let devices = self.devices.iter().enumerate();
        devices.filter(|(_, device)| device.as_ref().is_some_and(Device::is_ready)).map(|(number, _)| number)
    }

    /// The devices among the first `count` without a connection.
    pub(crate) fn missing_devices(&self, count: usize) -> impl Iterator<Item = usize> {
        (0..count).filter(|number| self.devices.get(*number).is_none_or(Option::is_none))
    }

    /// The number of connected devices that have received at least `count` messages.
    pub(crate) fn devices_with(&self, count: u32) -> usize {
        self.devices.iter().flatten().filter(|device| device.is_ready() && device.received() >= count).count()
    }

    /// The number of ready devices with this home.
    pub(crate) fn ready_at(&self, home: usize) -> usize {
        self.ready_at.get(home).copied().unwrap_or(0)
    }

    /// The target of this worker's requests.
    pub(crate) fn provider(&self) -> &Origin {
        let providers = &self.setup.providers;
        let turn = self.partition.index % providers.len().max(1);
        providers.get(turn).unwrap_or(&self.setup.origin)
    }

    /// Creates as many provider connections as requests may be in flight.
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
    fn adjacent_numbers_have_distinct_valid_addresses() {
        for start in [0, 254 * 254 - 2, u32::MAX - 1] {
            let sources: Vec<_> = (0..4).map(|n| source(start.wrapping_add(n))).collect();
            assert!(sources.iter().all(|source| source.is_loopback() && !source.octets().contains(&0)));
            assert!(sources.windows(2).all(|pair| pair[0] != pair[1]), "{sources:?}");
        }
        assert_eq!(source(0), Ipv4Addr::new(127, 1, 1, 1));
    }
}

//! On which day each device was last seen: it logged in, used the API itself, or was connected.
//!
//! The store keeps a day (UTC) for each device, so a device costs at most one write a day on each node, and no log-in waits
//! for it. Two bits in memory say which devices were seen today and which of them are not written yet; most log-ins only
//! read a bit. [`Seen::run`] writes a thousand devices at a time and rests in between. It also looks at connected
//! sessions, a page at a time, so that a connection that lasts for days counts on each of them.
//!
//! A crash loses the last seconds. After a restart devices are written again, which changes no row. The memory is
//! bounded: beyond it a device is looked at again when it is seen again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{DeviceNum, UtcDay};
use parking_lot::Mutex;

use crate::context::Context;
use crate::edge::SESSION_PAGES;

/// The pause between two rounds of writes.
const INTERVAL: Duration = Duration::from_secs(5);
/// Rounds between two pages of sessions: all sessions in 64 minutes.
const ROUNDS_PER_PAGE: u32 = 12;
/// Devices of one commit, which takes about 10 ms.
const WRITTEN: usize = 1_000;
/// The pause after a commit, as a multiple of its time: a twentieth of the writer's time at most, so that a storm of log-ins
/// does not notice it. A million devices take three minutes.
const REST: u32 = 19;
/// A drain writes this long at most: 200,000 devices.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Devices with numbers that share all but the last 12 bits.
const BLOCK: u64 = 4_096;
/// 16 MiB; up to 67 million devices a day whose numbers are close together.
const BLOCKS_MAX: usize = 16_384;

pub struct Seen {
    context: Arc<Context>,
    /// Guards only itself.
    days: Mutex<Days>,
}

impl Seen {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, days: Mutex::new(Days::default()) }
    }

    /// The device uses the API now.
    pub fn device(&self, device: DeviceNum) {
        self.devices(std::iter::once(device));
    }

    /// The devices are connected now.
    pub(crate) fn devices(&self, devices: impl Iterator<Item = DeviceNum>) {
        let day = UtcDay::of(self.context.now());
        let mut days = self.days.lock();
        days.begin(day);
        devices.for_each(|device| days.today.add(device));
    }

    /// Writes what was seen until `drain` resolves, and then the rest as far as [`LAST_WRITES`] permits.
    pub(crate) async fn run(&self, drain: impl Future<Output = ()> + Send) {
        tokio::pin!(drain);
        for round in 1_u32.. {
            tokio::select! {
                () = &mut drain => break,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            if round.is_multiple_of(ROUNDS_PER_PAGE) {
                self.look((round / ROUNDS_PER_PAGE) as usize);
            }
            tokio::select! {
                () = &mut drain => break,
                () = self.write(REST) => {}
            }
        }
        // What remains is written when the devices are seen again.
        let _ = tokio::time::timeout(LAST_WRITES, self.write(0)).await;
    }

    /// The sessions of a page are connected now.
    pub fn look(&self, page: usize) {
        let Some(edge) = self.context.edge() else { return };
        let sessions = edge.sessions_page(page % SESSION_PAGES);
        self.devices(sessions.into_iter().map(|session| session.num));
    }

    /// Writes all that waits, unless the store fails. Cancel-safe: what may not be written waits again.
    async fn write(&self, rest: u32) {
        loop {
            let Some(mut part) = Part::take(&self.days) else { return };
            let began = tokio::time::Instant::now();
            if let Err(error) = self.context.store.record_seen(part.devices.clone(), part.day).await {
                tracing::debug!(%error, "could not write which devices were seen; retrying");
                return;
            }
            part.is_written = true;
            drop(part);
            tokio::time::sleep(began.elapsed() * rest).await;
        }
    }
}

/// Devices that are being written. Unless that succeeds, they wait again.
struct Part<'a> {
    days: &'a Mutex<Days>,
    day: UtcDay,
    devices: Vec<DeviceNum>,
    is_written: bool,
}

impl<'a> Part<'a> {
    fn take(days: &'a Mutex<Days>) -> Option<Self> {
        let (day, devices) = days.lock().take(WRITTEN)?;
        Some(Self { days, day, devices, is_written: false })
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            self.days.lock().restore(self.day, &self.devices);
        }
    }
}

#[derive(Default)]
struct Days {
    day: UtcDay,
    today: Sightings,
    /// What waits of the day before.
    before: Option<(UtcDay, Sightings)>,
}

impl Days {
    /// A clock that goes back does not begin a day.
    fn begin(&mut self, day: UtcDay) {
        if day > self.day {
            let ended = (self.day, std::mem::take(&mut self.today));
            self.before = (ended.1.pending > 0).then_some(ended);
            self.day = day;
        }
    }

    /// At most `max` devices that wait, and their day. `None`: none waits.
    fn take(&mut self, max: usize) -> Option<(UtcDay, Vec<DeviceNum>)> {
        if let Some((day, sightings)) = &mut self.before {
            let devices = sightings.take(max);
            if !devices.is_empty() {
                return Some((*day, devices));
            }
            self.before = None;
        }
        let devices = self.today.take(max);
        (!devices.is_empty()).then_some((self.day, devices))
    }

    fn restore(&mut self, day: UtcDay, devices: &[DeviceNum]) {
        let sightings = match &mut self.before {
            _ if day == self.day => &mut self.today,
            Some((before, sightings)) if *before == day => sightings,
            // The day ended while they were being written.
            before => &mut before.insert((day, Sightings::default())).1,
        };
        devices.iter().for_each(|device| sightings.restore(*device));
    }
}

/// The devices that were seen on a day.
#[derive(Default)]
struct Sightings {
    /// By the number of the first device, over [`BLOCK`].
    blocks: BTreeMap<u64, Box<Block>>,
    /// Devices that wait, in all blocks.
    pending: usize,
    /// Devices of each block wait.
    is_full: bool,
}

/// A bit for each device.
struct Block {
    seen: [u64; BLOCK as usize / 64],
    pending: [u64; BLOCK as usize / 64],
    /// Bits of `pending`.
    count: u32,
}

impl Sightings {
    fn add(&mut self, device: DeviceNum) {
        let (word, bit) = place(device);
        let Some(block) = self.block(device) else { return };
        if block.seen[word] & bit == 0 {
            block.seen[word] |= bit;
            self.restore(device);
        }
    }

    fn restore(&mut self, device: DeviceNum) {
        let (word, bit) = place(device);
        let Some(block) = self.block(device) else { return };
        if block.pending[word] & bit == 0 {
            block.seen[word] |= bit;
            block.pending[word] |= bit;
            block.count += 1;
            self.pending += 1;
        }
    }

    /// `None`: there is no room.
    fn block(&mut self, device: DeviceNum) -> Option<&mut Block> {
        let number = device.0 / BLOCK;
        if self.blocks.len() >= BLOCKS_MAX && !self.blocks.contains_key(&number) {
            // Devices of a block that is dropped are written once more if they are seen again.
            if !self.is_full {
                self.blocks.retain(|_, block| block.count > 0);
                self.is_full = self.blocks.len() >= BLOCKS_MAX;
            }
            if self.is_full {
                return None;
            }
        }
        let empty = || Box::new(Block { seen: [0; _], pending: [0; _], count: 0 });
        Some(self.blocks.entry(number).or_insert_with(empty))
    }

    /// In order.
    fn take(&mut self, max: usize) -> Vec<DeviceNum> {
        let mut taken = Vec::with_capacity(max.min(self.pending));
        if self.pending == 0 {
            return taken;
        }
        for (number, block) in self.blocks.iter_mut().filter(|(_, block)| block.count > 0) {
            for word in 0..block.pending.len() {
                while block.pending[word] != 0 && taken.len() < max {
                    let bit = block.pending[word].trailing_zeros();
                    block.pending[word] &= block.pending[word] - 1;
                    block.count -= 1;
                    taken.push(DeviceNum(number * BLOCK + word as u64 * 64 + u64::from(bit)));
                }
            }
            if taken.len() == max {
                break;
            }
        }
        self.pending -= taken.len();
        self.is_full = false;
        taken
    }
}

/// Of its bit in its block.
fn place(device: DeviceNum) -> (usize, u64) {
    let within = device.0 % BLOCK;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: UtcDay = UtcDay(20_000);

    fn nums(numbers: &[u64]) -> Vec<DeviceNum> {
        numbers.iter().copied().map(DeviceNum).collect()
    }

    fn day_of(numbers: &[u64]) -> Days {
        let mut days = Days::default();
        days.begin(DAY);
        numbers.iter().for_each(|number| days.today.add(DeviceNum(*number)));
        days
    }

    #[test]
    fn a_device_is_written_once_a_day() {
        let mut days = day_of(&[70_000, 3, 4_095, 4_096, 3]);
        assert_eq!(days.take(3), Some((DAY, nums(&[3, 4_095, 4_096]))));
        days.today.add(DeviceNum(3));
        assert_eq!(days.take(3), Some((DAY, nums(&[70_000]))));
        assert_eq!(days.take(3), None);
        let tomorrow = UtcDay(DAY.0 + 1);
        days.begin(tomorrow);
        days.begin(DAY);
        days.today.add(DeviceNum(3));
        assert_eq!(days.take(3), Some((tomorrow, nums(&[3]))));
    }

    #[test]
    fn a_day_that_ended_is_written_as_that_day() {
        let mut days = day_of(&[1, 2]);
        let tomorrow = UtcDay(DAY.0 + 1);
        days.begin(tomorrow);
        days.today.add(DeviceNum(1));
        assert_eq!(days.take(1), Some((DAY, nums(&[1]))));
        days.restore(DAY, &nums(&[1]));
        assert_eq!(days.take(9), Some((DAY, nums(&[1, 2]))));
        assert_eq!(days.take(9), Some((tomorrow, nums(&[1]))));
        // They were being written at midnight.
        days.restore(DAY, &nums(&[2]));
        assert_eq!(days.take(9), Some((DAY, nums(&[2]))));
        assert_eq!(days.take(9), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut days = day_of(&[]);
        let far = |block: u64| DeviceNum(block * BLOCK);
        (0..BLOCKS_MAX as u64 + 10).for_each(|block| days.today.add(far(block)));
        assert_eq!((days.today.blocks.len(), days.today.pending), (BLOCKS_MAX, BLOCKS_MAX));
        let (_, written) = days.take(5).expect("they wait");
        assert_eq!(written, (0..5).map(far).collect::<Vec<_>>());
        // Blocks of which nothing waits are evicted.
        days.today.add(far(BLOCKS_MAX as u64));
        assert_eq!(days.today.blocks.len(), BLOCKS_MAX - 4);
        // Seen again: written again.
        days.today.add(far(0));
        assert_eq!(days.take(1), Some((DAY, vec![far(0)])));
    }
}

//! Tests of estimates.

use noroshi_types::local_time::LocalTime;

use super::*;
use crate::campaign::spec::tests::spec;

fn strata(devices: &[f64]) -> Vec<Sums> {
    devices.iter().map(|devices| Sums { devices: *devices, ..Sums::default() }).collect()
}

#[test]
fn the_interval_covers_the_truth_as_often_as_it_says() {
    // A density that differs from part to part; 500 samples of it.
    let density = |place: u64| 0.2 + 0.6 * ((place / 1_000) % 3) as f64 / 2.0;
    let truth: f64 = (0..64_000).map(density).sum();
    let mut random = Random(7);
    let mut covered = 0;
    for _ in 0..500 {
        let draw = |random: &mut Random, stratum: u64| {
            let after = stratum * 1_000 + random.below(800);
            let hits = (after..after + 200)
                .filter(|place| (random.below(1_000_000) as f64) < density(*place) * 1e6)
                .count();
            hits as f64 * 5.0
        };
        let devices: Vec<f64> = (0..64).map(|stratum| draw(&mut random, stratum)).collect();
        let size = sized(&strata(&devices), |sums| sums.devices, 0);
        covered += u32::from((size.low..=size.high).contains(&(truth as u64)));
    }
    assert!(covered >= 475, "{covered} of 500 intervals cover the truth");
}

#[test]
fn what_was_counted_is_the_least() {
    let size = sized(&strata(&[10.0, 0.0]), |sums| sums.devices, 8);
    assert_eq!((size.value, size.low), (10, 8));
}

#[test]
fn users_count_once_for_all_their_devices() {
    let devices = Size { value: 1_000, low: 900, high: 1_100 };
    let all = users_of(devices, 1.0, &[0.5; 50]);
    assert_eq!((all.value, all.low, all.high), (500, 450, 550));
    assert_eq!(users_of(devices, 0.5, &[1.0; 50]).value, 500, "half of the devices have no user");
    let mixed = users_of(devices, 1.0, &[1.0, 0.5, 1.0, 0.5]);
    assert!(mixed.value == 750 && mixed.low < 650 && mixed.high > 850, "few users: {mixed:?}");
    assert_eq!(users_of(devices, 0.0, &[]), Size::exact(0));
}

#[test]
fn the_end_follows_rate_clock_and_quiet_hours() {
    let now = Timestamp::parse("2026-11-22T00:00:00Z").expect("a time");
    let hour = |hours: u64| Timestamp(now.0 + hours * 3_600_000);
    let zones = BTreeMap::from([("Asia/Tokyo", 3_600.0), ("", 7_200.0)]);
    let measured = Some(Measured { per_second: 10.0, campaigns: 3 });
    let free = forecast(&spec(), &zones, measured, now);
    assert_eq!((free.steps.clone(), free.rate_from), (vec![(now, 10_800)], RateFrom::Measured));
    assert_eq!(free.ends_at, Some(Timestamp(now.0 + 1_080_000)));
    let unknown = forecast(&spec(), &zones, None, now);
    assert_eq!((unknown.rate_from, unknown.ends_at), (RateFrom::Unknown, None));

    let at_nine = Spec { local_time: LocalTime::parse("09:00").ok(), rate_per_second: Some(1), ..spec() };
    let local = forecast(&at_nine, &zones, measured, now);
    // In Tokyo it is nine now, in UTC in nine hours.
    assert_eq!(local.steps, [(now, 3_600), (hour(9), 7_200)]);
    assert_eq!((local.rate_from, local.ends_at), (RateFrom::Limit, Some(hour(11))));
}

#[test]
fn a_reservoir_keeps_each_item_as_often() {
    let mut kept = [0; 10];
    for seed in 0..2_000 {
        let (mut random, mut reservoir) = (Random(seed), Reservoir::new(3));
        (0..10).for_each(|item| reservoir.offer(item, &mut random));
        reservoir.kept.iter().for_each(|item: &usize| kept[*item] += 1);
    }
    // 2,000 × 3/10 = 600, with a deviation of 20.
    assert!(kept.iter().all(|count: &i32| (500..700).contains(count)), "{kept:?}");
}

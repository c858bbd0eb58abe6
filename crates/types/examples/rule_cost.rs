//! Measures a decision by topic rules: the last of 16 rules with variables decides.
//!
//! `cargo run --release -p noroshi-types --example rule_cost`

use std::time::Instant;

use noroshi_types::rule::{Action, Allow, Pattern, Rule, Subject};
use noroshi_types::{DeviceId, TopicRules, UserId};

const TIMES: u32 = 1_000_000;

fn main() {
    let (device, user) =
        (DeviceId::parse("d1").expect("a device"), UserId::parse("user-4711").expect("a user"));
    let subject = Subject { device: &device, user: Some(&user), claims: None };
    let mut patterns: Vec<String> = (0..15).map(|number| format!("area-{number}/{{user}}/+/*")).collect();
    patterns.push("user/{user}/#".to_owned());
    let rule =
        |text: &String| Rule { pattern: Pattern::parse(text).expect("a pattern"), allow: Allow::Anyone };
    let rules = TopicRules::new(Some(patterns.iter().map(rule).collect()), None, None).expect("rules");
    let began = Instant::now();
    for _ in 0..TIMES {
        let topic = std::hint::black_box("user/user-4711/mail/new");
        std::hint::black_box(rules.decide(Action::Subscribe, topic, subject));
    }
    println!("{} ns a decision", began.elapsed().as_nanos() / u128::from(TIMES));
}

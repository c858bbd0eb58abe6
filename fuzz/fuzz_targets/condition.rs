//! Any text is a condition within its limits or an error; a condition keeps its text and its meaning when it
//! is parsed again. Evaluation with every subset of its topics detects trees that are deeper than the limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_types::{Condition, limits};

fuzz_target!(|text: &str| {
    let Ok(condition) = Condition::parse(text) else { return };
    assert!(text.len() <= limits::CONDITION_BYTES_MAX);
    assert_eq!(condition.as_str(), text);
    assert_eq!(Condition::parse(condition.as_str()).as_ref(), Ok(&condition));
    let topics = condition.topics();
    assert!((1..=limits::CONDITION_TOPICS_MAX).contains(&topics.len()));
    assert_eq!(condition.matches_none(), condition.matches(|_| false));
    // Every subset of the topics.
    for subset in 0u32..1 << topics.len() {
        condition.matches(|topic| {
            topics.iter().position(|named| *named == topic).is_some_and(|i| subset >> i & 1 == 1)
        });
    }
});

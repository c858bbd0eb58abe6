//! Tests of the machine, without input or output.

mod limits;
mod player;
mod rules;

use player::Player;
pub(crate) use player::presence;

use crate::tests::vectors;

#[test]
fn every_vector_passes() {
    let mut failures = Vec::new();
    let all = vectors::load();
    for vector in &all {
        if let Err(difference) = Player::new(vector).play() {
            failures.push(format!("{}: {}: {difference}", vector.file, vector.name));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} vectors fail:\n{}",
        failures.len(),
        all.len(),
        failures.join("\n")
    );
}

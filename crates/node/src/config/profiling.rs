//! Rules of the keys of continuous profiling, and of the build's features.

use super::Profiling;
use super::reader::Reader;

impl Profiling {
    pub(super) fn check(&self, reader: &mut Reader) {
        if let Some(Err((part, problem))) = self.push.as_ref().map(noroshi_profiling::Config::check) {
            reader.problem(&format!("profiling.{part}"), problem);
        }
    }
}

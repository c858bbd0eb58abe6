//! Standard output, for a collector of the platform. The log of the process is on standard error.

use std::io::Write as _;

use super::Failure;
use crate::batch::Batch;

pub(crate) struct Stdout;

impl Stdout {
    pub(crate) fn write(&self, batch: &Batch) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        let failed = |error: std::io::Error| Failure(format!("standard output: {error}"));
        out.write_all(&batch.bytes).and_then(|()| out.flush()).map_err(failed)
    }
}

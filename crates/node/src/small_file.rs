//! Reads files with one secret or a few lines. Does not read a larger file, which was named by mistake.

use std::path::Path;

/// None if the file exceeds `bytes_max`. Err: a message for the operator.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    if std::fs::metadata(path).map_err(failed)?.len() > bytes_max {
        return Ok(None);
    }
    std::fs::read_to_string(path).map(Some).map_err(failed)
}

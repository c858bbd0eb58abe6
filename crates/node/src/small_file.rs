//! Files that hold one secret or a few lines. What is larger is another file, named by mistake: it is not read.

use std::path::Path;

/// None where there is more than `bytes_max`; otherwise an operator's words for what is wrong.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    if std::fs::metadata(path).map_err(failed)?.len() > bytes_max {
        return Ok(None);
    }
    std::fs::read_to_string(path).map(Some).map_err(failed)
}

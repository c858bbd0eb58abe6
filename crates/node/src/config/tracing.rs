//! Rules of tracing: the file with headers, the build's features, and parsed attributes.

use std::path::Path;

use super::Tracing;
use super::reader::Reader;
use crate::small_file;

/// Longer than any list of headers. A larger file is a different one.
const FILE_BYTES_MAX: u64 = 16 << 10;

impl Tracing {
    pub(super) fn complete(&mut self, reader: &mut Reader) {
        if self.endpoint.is_some() && !noroshi_otel::AVAILABLE {
            let text = "this build does not include OpenTelemetry (feature `otel`); `make dist` builds one that does";
            reader.problem("tracing.endpoint", text);
        }
        if let Some(path) = &self.headers_file {
            match read(path) {
                Ok(headers) => self.headers = headers,
                Err(problem) => reader.problem("tracing.headers_file", problem),
            }
        }
        match noroshi_otel::config::attributes(self.attributes_text.as_deref().unwrap_or_default()) {
            Ok(attributes) => self.attributes = attributes,
            Err(expected) => reader.problem("tracing.attributes", format!("must be {expected}")),
        }
    }
}

fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text = small_file::read(path, FILE_BYTES_MAX)?;
    let text = text.ok_or_else(|| format!("{} is too large for a list of headers", path.display()))?;
    noroshi_otel::config::headers(&text).map_err(|problem| format!("{}: {problem}", path.display()))
}

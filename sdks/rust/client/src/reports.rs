//! Where reports of opened messages survive the process.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Keeps reports of opened messages until the service has them. The client calls it in a thread for blocking work, once at a time.
pub trait ReportStore: Send + Sync + 'static {
    /// What an earlier process left.
    fn load(&self) -> io::Result<Vec<String>>;
    /// Replaces what is stored.
    fn save(&self, ids: &[String]) -> io::Result<()>;
}

impl<S: ReportStore> ReportStore for Arc<S> {
    fn load(&self) -> io::Result<Vec<String>> {
        (**self).load()
    }

    fn save(&self, ids: &[String]) -> io::Result<()> {
        (**self).save(ids)
    }
}

/// Keeps reports in a file. Each client needs a file of its own.
#[derive(Debug, Clone)]
pub struct FileReports(PathBuf);

impl FileReports {
    /// The file need not exist. Its folder does.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl ReportStore for FileReports {
    fn load(&self) -> io::Result<Vec<String>> {
        let text = match std::fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(serde_json::from_slice(&text)?)
    }

    /// Renames a complete file, so that a process that ends meanwhile leaves the old or the new one.
    fn save(&self, ids: &[String]) -> io::Result<()> {
        let mut name = self.0.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = self.0.with_file_name(name);
        std::fs::write(&new, serde_json::to_vec(ids)?)?;
        std::fs::rename(&new, &self.0)
    }
}

/// The newest reports that are not stored yet.
pub(crate) struct Saver {
    pub(crate) store: Arc<dyn ReportStore>,
    pub(crate) newest: Option<Vec<String>>,
    pub(crate) is_running: bool,
}

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").field("is_running", &self.is_running).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_reports() -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("noroshi-reports-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let reports = FileReports::new(folder.join("opened.json"));
        assert!(reports.load()?.is_empty());
        reports.save(&["a".to_owned(), "b".to_owned()])?;
        assert_eq!(FileReports::new(folder.join("opened.json")).load()?, ["a", "b"]);
        std::fs::write(folder.join("opened.json"), "{")?;
        assert!(reports.load().is_err());
        std::fs::remove_dir_all(folder)
    }
}

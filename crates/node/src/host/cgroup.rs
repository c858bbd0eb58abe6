//! Memory limits of control groups, version 1 and 2. A group's limit applies to its descendants, so the tightest one up to the
//! root is effective.

use std::path::{Path, PathBuf};

use super::{number, text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    pub limit_bytes: u64,
    /// Without file pages that the kernel can drop.
    pub used_bytes: u64,
}

/// The files of one version.
struct Files {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`.
    droppable: &'static str,
}

/// Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files".
const V2: Files = Files {
    folder: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    droppable: "inactive_file ",
};

/// Documentation/admin-guide/cgroup-v1/memory.rst.
const V1: Files = Files {
    folder: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file ",
};

impl Cgroup {
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// The group with the least available memory. Ignores a limit above `total_bytes`: version 1 represents "no limit" by a very
    /// large number.
    pub(super) fn tightest(root: &Path, process: &str, total_bytes: u64) -> Option<Self> {
        let groups = text(root, &format!("proc/{process}/cgroup")).unwrap_or_default();
        // cgroups(7): hierarchy-ID:controller-list:path
        let paths = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            match controllers {
                "" => Some((&V2, path)),
                list if list.split(',').any(|name| name == "memory") => Some((&V1, path)),
                _ => None,
            }
        });
        let all = paths.flat_map(|(files, path)| files.path_and_parents(root, path));
        all.filter(|group| group.limit_bytes < total_bytes).min_by_key(Self::left_bytes)
    }
}

impl Files {
    /// All groups from the process's own to the root. In a container the path may be the host's; then only the root exists, which
    /// is the container's own group.
    fn path_and_parents(&self, root: &Path, path: &str) -> Vec<Cgroup> {
        let base = root.join(self.folder);
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter_map(|path| self.read(&base.join(path))).collect()
    }

    fn read(&self, folder: &Path) -> Option<Cgroup> {
        let file = |name: &str| -> Option<u64> { number(folder, name) };
        // Version 2 has "max", which is not a number.
        let limit_bytes = file(self.limit)?;
        let stat = text(&PathBuf::from(folder), "memory.stat").unwrap_or_default();
        let droppable = stat.lines().find_map(|line| line.strip_prefix(self.droppable)?.parse().ok());
        let used_bytes = file(self.used).unwrap_or(0).saturating_sub(droppable.unwrap_or(0));
        Some(Cgroup { limit_bytes, used_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::tree;

    fn check(files: &[(&str, &str)], expected: Option<(u64, u64)>) {
        let root = tree(files);
        let found = Cgroup::tightest(root.path(), "self", 1_000_000);
        assert_eq!(found.map(|group| (group.limit_bytes, group.used_bytes)), expected, "{files:?}");
    }

    #[test]
    fn the_tightest_limit_of_all_parents_counts() {
        let of_process = ("proc/self/cgroup", "0::/system.slice/noroshi.service\n");
        check(
            &[
                of_process,
                ("sys/fs/cgroup/system.slice/noroshi.service/memory.max", "max\n"),
                ("sys/fs/cgroup/system.slice/memory.max", "5000\n"),
                ("sys/fs/cgroup/system.slice/memory.current", "3000\n"),
                ("sys/fs/cgroup/system.slice/memory.stat", "anon 1\ninactive_file 500\n"),
                ("sys/fs/cgroup/memory.max", "4000\n"),
            ],
            Some((5_000, 2_500)),
        );
        check(&[of_process, ("sys/fs/cgroup/memory.max", "max\n")], None);
        check(&[of_process], None);
        check(&[], None);
    }

    #[test]
    fn version_1_and_containers_are_understood() {
        let of_process = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/0123\n0::/\n");
        check(
            &[
                of_process,
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n"),
                ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 40\n"),
            ],
            Some((7_000, 60)),
        );
        check(&[of_process, ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")], None);
    }
}

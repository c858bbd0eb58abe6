//! The mapped program text of files: `/proc/self/maps` (proc(5)).

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// An executable part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) start: u64,
    pub(crate) limit: u64,
    /// The file offset of its first byte.
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    pub(crate) path: String,
}

impl Map {
    /// Opens the mapped file itself, even if another file has its name now.
    pub(crate) fn open(&self) -> Result<File, String> {
        let program = Path::new("/proc/self/exe");
        let is_program = std::fs::read_link(program).is_ok_and(|path| path == Path::new(&self.path));
        let path = if is_program { program } else { Path::new(&self.path) };
        let file = File::open(path).map_err(|error| error.to_string())?;
        match file.metadata().is_ok_and(|metadata| metadata.ino() == self.inode) {
            true => Ok(file),
            false => Err("the file was replaced".to_owned()),
        }
    }
}

/// In the order of addresses.
pub(crate) fn read() -> Vec<Map> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines().filter_map(executable).collect()
}

pub(crate) fn at(maps: &[Map], address: u64) -> Option<&Map> {
    let map = maps.get(maps.partition_point(|map| map.start <= address).checked_sub(1)?)?;
    (address < map.limit).then_some(map)
}

fn executable(line: &str) -> Option<Map> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let inode = fields.nth(1)?.parse().ok()?;
    if rights.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let path = line.find('/').map(|at| line[at..].to_owned())?;
    let (start, limit) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Map { start: number(start)?, limit: number(limit)?, offset: number(offset)?, inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_file_mappings_are_read() {
        let right = Map {
            start: 0x55d0,
            limit: 0x55f0,
            offset: 0x1000,
            inode: 1234,
            path: "/usr/bin/with space".to_owned(),
        };
        let line = "55d0-55f0 r-xp 00001000 fe:01 1234                       /usr/bin/with space";
        assert_eq!(executable(line), Some(right.clone()));
        for line in [
            "55d0-55f0 r--p 00000000 fe:01 1234   /usr/bin/x",
            "7ffe-7fff r-xp 00000000 00:00 0      [vdso]",
            "",
        ] {
            assert_eq!(executable(line), None, "{line}");
        }
        let maps = [right];
        for (address, inside) in [(0x55cf, false), (0x55d0, true), (0x55ef, true), (0x55f0, false)] {
            assert_eq!(at(&maps, address).is_some(), inside, "{address:#x}");
        }
    }
}

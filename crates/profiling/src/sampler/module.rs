//! The unwind information of a mapped file (`.eh_frame`, `.eh_frame_hdr`), used where the loader has mapped it: nothing
//! is copied.

#![allow(unsafe_code)] // slices of what the loader has mapped

use std::ops::Range;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::elf::{FileHeader64, PF_X};
use object::read::elf::ElfFile;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSegment as _, ReadCache, SegmentFlags};

use crate::map::Map;

/// For a file that stays mapped for the life of the process: the program, or a library that it is linked with.
pub(super) fn of(map: &Map) -> Result<Module<&'static [u8]>, String> {
    let cache = ReadCache::new(map.open()?);
    let elf = ElfFile::<FileHeader64<Endianness>, _>::parse(&cache).map_err(|error| error.to_string())?;
    let here = map.offset..map.offset.saturating_add(map.limit - map.start);
    let runs = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
    let segment =
        elf.segments().find(|segment| here.contains(&segment.file_range().0) && runs(segment.flags()));
    let segment = segment.ok_or("no executable segment")?;
    // The difference between addresses in memory and in the file.
    let bias = (map.start + (segment.file_range().0 - map.offset)).wrapping_sub(segment.address());
    let range = |name: &str| -> Option<Range<u64>> {
        let section = elf.section_by_name(name)?;
        let range = section.address()..section.address().checked_add(section.size())?;
        let loaded = |segment: object::read::elf::ElfSegment<'_, '_, FileHeader64<Endianness>, _>| {
            let loaded = segment.address()..segment.address().saturating_add(segment.file_range().1);
            loaded.start <= range.start && range.end <= loaded.end
        };
        elf.segments().any(loaded).then_some(range)
    };
    // SAFETY: the section is in a segment that the loader has mapped from the file. It stays mapped: nothing here
    // unloads libraries (dlclose), and libc keeps those that it loads for itself.
    let data = |range: &Range<u64>| unsafe {
        let start = bias.wrapping_add(range.start) as *const u8;
        std::slice::from_raw_parts(start, (range.end - range.start) as usize)
    };
    let (eh_frame, eh_frame_hdr) = (range(".eh_frame"), range(".eh_frame_hdr"));
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame: eh_frame.as_ref().map(data),
        eh_frame_svma: eh_frame,
        eh_frame_hdr: eh_frame_hdr.as_ref().map(data),
        eh_frame_hdr_svma: eh_frame_hdr,
        ..ExplicitModuleSectionInfo::default()
    };
    Ok(Module::new(map.path.clone(), map.start..map.limit, bias, sections))
}

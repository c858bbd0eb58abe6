//! Sizes with binary units: `"512B"`, `"256KiB"`, `"16MiB"`, `"1GiB"`.

const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// None without a unit, with a fraction, or beyond the address space.
pub(super) fn parse_size(text: &str) -> Option<usize> {
    let (unit, bytes) = UNITS.into_iter().find(|(unit, _)| text.ends_with(unit))?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<usize>().ok()?.checked_mul(bytes)
}

/// Formats in the largest exact unit.
pub(super) fn format_size(bytes: usize) -> String {
    let exact = |(_, unit): &(&str, usize)| bytes >= *unit && bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS.into_iter().find(exact).unwrap_or(("B", 1));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_as_they_are_parsed() {
        for (text, bytes) in
            [("512B", 512), ("256KiB", 256 << 10), ("16MiB", 16 << 20), ("1GiB", 1 << 30), ("0B", 0)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(format_size(bytes), text);
        }
        for bad in [
            "",
            "12",
            "KiB",
            "1.5MiB",
            "-1B",
            "1KB",
            "1 KiB",
            "99999999999999999999B",
            "18446744073709551615GiB",
        ] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}

//! The static table (RFC 7541 appendix A), with an index by name.

/// HPACK indexes start at 1.
pub(super) const FIELDS: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

const NAME_BYTES_MAX: usize = 27;

/// Positions in `FIELDS` (from 0), grouped by name length, and the start of each group: a name is compared
/// only with the few of its length.
struct ByLength {
    places: [u8; FIELDS.len()],
    start: [u8; NAME_BYTES_MAX + 2],
}

static BY_LENGTH: ByLength = by_length();

const fn by_length() -> ByLength {
    let mut table = ByLength { places: [0; FIELDS.len()], start: [0; NAME_BYTES_MAX + 2] };
    let (mut length, mut count) = (0, 0);
    while length <= NAME_BYTES_MAX {
        table.start[length] = count as u8;
        let mut place = 0;
        while place < FIELDS.len() {
            if FIELDS[place].0.len() == length {
                table.places[count] = place as u8;
                count += 1;
            }
            place += 1;
        }
        length += 1;
    }
    assert!(count == FIELDS.len());
    table.start[length] = count as u8;
    table
}

/// The index of the first field with this name.
pub(super) fn index_of(name: &[u8]) -> Option<usize> {
    let [from, to, ..] = *BY_LENGTH.start.get(name.len()..)? else { return None };
    let places = &BY_LENGTH.places[usize::from(from)..usize::from(to)];
    let place = places.iter().find(|&&place| {
        let known = FIELDS[usize::from(place)].0.as_bytes();
        // Names that differ nearly always do so in the last byte, which needs no call.
        known.last() == name.last() && known == name
    })?;
    Some(usize::from(*place) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_at_its_first_index() {
        for (name, _) in FIELDS {
            let first = FIELDS.iter().position(|(other, _)| *other == name).expect("there") + 1;
            assert_eq!(index_of(name.as_bytes()), Some(first), "{name}");
        }
        for name in
            ["", "apns-topic", "ttl", ":authoritx", "x", &"x".repeat(27), &"x".repeat(28), &"x".repeat(99)]
        {
            assert_eq!(index_of(name.as_bytes()), None, "{name}");
        }
    }
}

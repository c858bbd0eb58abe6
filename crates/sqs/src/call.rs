//! The limits of one call: at most ten entries, and a total size. Pure.

/// Entries per call that sends, deletes or extends, and messages per call that receives.
pub const ENTRIES_MAX: usize = 10;

/// Bytes per message, and of all messages of a call. SQS accepts 1 MiB since August 2025.
pub const BYTES_MAX: usize = 1 << 20;

/// Splits entries into calls, in order. An entry above the limit gets its own call, whose answer reports it.
pub fn calls<T>(entries: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut calls: Vec<Vec<T>> = Vec::new();
    let mut sum = 0;
    for entry in entries {
        let size = bytes(&entry);
        match calls.last_mut().filter(|call| call.len() < ENTRIES_MAX && sum + size <= BYTES_MAX) {
            Some(call) => {
                sum += size;
                call.push(entry);
            }
            None => {
                sum = size;
                calls.push(vec![entry]);
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sizes: &[usize], expected: &[usize]) {
        let calls = calls(sizes.to_vec(), |size| *size);
        assert_eq!(calls.iter().map(Vec::len).collect::<Vec<_>>(), expected, "{sizes:?}");
        assert_eq!(calls.concat(), sizes);
    }

    #[test]
    fn a_call_has_at_most_ten_entries_and_a_mebibyte() {
        check(&[], &[]);
        check(&[1; 10], &[10]);
        check(&[1; 21], &[10, 10, 1]);
        check(&[BYTES_MAX / 2, BYTES_MAX / 2, 1], &[2, 1]);
        check(&[1, BYTES_MAX + 1, 1], &[1, 1, 1]);
        check(&[400 << 10, 400 << 10, 400 << 10, 100], &[2, 2]);
    }
}

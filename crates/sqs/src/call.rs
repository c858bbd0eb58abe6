//! What fits into one call: at most ten entries, and so many bytes of them together. Pure.

/// Entries of a call that sends, deletes or extends, and messages of one that receives.
pub const ENTRIES_MAX: usize = 10;

/// Bytes of a message, and of all messages of a call. SQS takes 1 MiB since August 2025.
pub const BYTES_MAX: usize = 1 << 20;

/// As many calls as it takes, in order. An entry that is too large by itself is in a call of its own: the answer says so.
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
    fn a_call_has_ten_entries_and_a_mebibyte() {
        check(&[], &[]);
        check(&[1; 10], &[10]);
        check(&[1; 21], &[10, 10, 1]);
        check(&[BYTES_MAX / 2, BYTES_MAX / 2, 1], &[2, 1]);
        check(&[1, BYTES_MAX + 1, 1], &[1, 1, 1]);
        check(&[400 << 10, 400 << 10, 400 << 10, 100], &[2, 2]);
    }
}

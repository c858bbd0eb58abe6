//! The key that encrypts push credentials: 256 bits in the operator's file, or in a file that a development node generates.
//! Without it, the credentials must be added again.

use std::path::Path;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::data::{self, Secrets};

const KEY_BYTES: usize = 32;

/// Longer than any form of the key. A larger file is a different one.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// The key, if there is one. Without it, credentials can be neither added nor read.
pub async fn open(
    key_file: Option<&Path>,
    development: bool,
    secrets: &Secrets,
) -> Result<Option<[u8; KEY_BYTES]>, data::Error> {
    if let Some(path) = key_file {
        return read(path).map(Some);
    }
    if !development {
        return Ok(None);
    }
    let text = secrets.get(data::PUSH_KEY, "").await?;
    let invalid = || data::Error { path: secrets.folder().join(data::PUSH_KEY), reason: EXPECTED.to_owned() };
    parse(&text).map(Some).ok_or_else(invalid)
}

const EXPECTED: &str = "must contain 32 bytes in base64 or hexadecimal, as created by `openssl rand -hex 32`";

/// The key in an operator's file.
pub fn read(path: &Path) -> Result<[u8; KEY_BYTES], data::Error> {
    let failed = |reason: String| data::Error { path: path.to_owned(), reason };
    let bytes = std::fs::metadata(path).map_err(|error| failed(format!("cannot be read: {error}")))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(failed(EXPECTED.to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    parse(text.trim()).ok_or_else(|| failed(EXPECTED.to_owned()))
}

/// 64 hexadecimal digits, or base64 of either alphabet with or without padding.
fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() == 2 * KEY_BYTES {
        return hexadecimal(text);
    }
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [STANDARD, URL_SAFE]
        .iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, lenient).decode(text).ok())
        .and_then(|bytes| bytes.try_into().ok())
}

fn hexadecimal(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_in_base64_or_hexadecimal() {
        let key = [0xfb; KEY_BYTES];
        let base64 = "+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/s";
        for text in [
            "fb".repeat(32),
            "FB".repeat(32),
            base64.to_owned(),
            format!("{base64}="),
            base64.replace('+', "-").replace('/', "_"),
        ] {
            assert_eq!(parse(&text), Some(key), "{text}");
        }
        for bad in
            ["", "fb", &"fb".repeat(31), &"fb".repeat(33), &"fg".repeat(32), &"é".repeat(32), &base64[1..]]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn errors_name_the_key_file() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("key");
        assert!(read(&path).expect_err("absent").to_string().contains("cannot be read"));
        std::fs::write(&path, "too short\n").expect("written");
        let error = read(&path).expect_err("short").to_string();
        assert!(error.contains("32 bytes") && !error.contains("too short"), "{error}");
        std::fs::write(&path, "00".repeat(4_096)).expect("written");
        assert!(read(&path).is_err());
        std::fs::write(&path, format!("{}\n", "00".repeat(32))).expect("written");
        assert_eq!(read(&path).expect("a key"), [0; KEY_BYTES]);
    }
}

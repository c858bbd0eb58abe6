//! The files of the page, embedded in the program.

use std::io::Write as _;
use std::sync::{LazyLock, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest;

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    /// Relative to the address of the console.
    pub name: &'static str,
    pub bytes: &'static [u8],
    pub media_type: &'static str,
    /// Its name contains a hash of its content, so a browser may keep it forever.
    pub is_immutable: bool,
    /// The value of `ETag`, with quotes.
    pub etag: String,
    gzip: OnceLock<Option<Vec<u8>>>,
}

const FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/assets.rs"));
/// The folder of files whose names contain hashes.
const HASHED: &str = "assets/";
/// The page itself, which every address without a file shows.
const PAGE: &str = "index.html";

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| FILES.iter().map(Asset::new).collect());

impl Asset {
    fn new((name, bytes): &(&'static str, &'static [u8])) -> Self {
        let hash = digest::digest(&digest::SHA256, bytes);
        Self {
            name,
            bytes,
            media_type: media_type(name),
            is_immutable: name.starts_with(HASHED),
            etag: format!("\"{}\"", URL_SAFE_NO_PAD.encode(&hash.as_ref()[..16])),
            gzip: OnceLock::new(),
        }
    }

    /// The compressed file. `None`: compression does not make it smaller.
    pub fn gzip(&self) -> Option<&[u8]> {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(self.bytes).expect("a vector accepts every byte");
            let compressed = encoder.finish().expect("a vector accepts every byte");
            (compressed.len() < self.bytes.len()).then_some(compressed)
        };
        self.gzip.get_or_init(compress).as_deref()
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("webmanifest") => "application/manifest+json",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// The file at a path of the console. A path whose last part has no dot is an address of the page.
pub fn asset(path: &str) -> Option<&'static Asset> {
    let is_address = !path.rsplit('/').next().unwrap_or_default().contains('.');
    let name = if is_address { PAGE } else { path };
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_shows_the_page() {
        for path in ["", "users/u1", "components"] {
            let page = asset(path).expect(path);
            assert_eq!((page.name, page.media_type), (PAGE, "text/html; charset=utf-8"), "{path}");
            assert!(!page.is_immutable);
        }
        for path in ["../Cargo.toml", "assets/none.js", ".", "assets/.."] {
            assert!(asset(path).is_none(), "{path}");
        }
    }

    #[test]
    fn files_have_types_and_are_compressed() {
        for file in ASSETS.iter() {
            assert_ne!(file.media_type, "application/octet-stream", "{}", file.name);
            let Some(gzip) = file.gzip() else { continue };
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(gzip), &mut plain).expect("gzip");
            assert_eq!(plain, file.bytes, "{}", file.name);
        }
    }
}

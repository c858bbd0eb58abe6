//! Content codings of request bodies (RFC 9110 §8.4): decompresses a body before it is parsed.
//!
//! Accepts one coding, `gzip` (RFC 1952) or `zstd` (RFC 8878). The body limit applies to the compressed and to the
//! decompressed size, and is checked after each piece of [`PIECE_BYTES`], so a decompression bomb stops early. Both sizes
//! count towards the node's memory for bodies.
//!
//! Deadlines apply to the compressed bytes ([`crate::connection`]). The hash of an idempotent request is that of the
//! decompressed body.

use std::io::Read;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use http::{HeaderMap, header};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::{Code, Problem};
use crate::load::Share;

/// Bytes decompressed before the task yields: well under a millisecond.
const PIECE_BYTES: usize = 64 << 10;
/// RFC 9659 §3: decoders must support it, encoders must not exceed it.
const ZSTD_WINDOW_BYTES_MAX: usize = 8 << 20;
/// gzip members or zstd frames of a body; each costs time even if it is empty. At 64 KiB each, which block-wise compressors
/// use, 256 MiB.
const MEMBERS_MAX: usize = 4_096;

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    fn as_str(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
        }
    }

    /// The coding of a request body. Rejects several codings.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut values = headers.get_all(header::CONTENT_ENCODING).into_iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return match headers.contains_key(header::CONTENT_ENCODING) {
                true => Err(unsupported()),
                false => Ok(Coding::Identity),
            };
        };
        // Names are case-insensitive (RFC 9110 §8.4.1), and `x-gzip` equals `gzip` (§8.4.1.3).
        match value.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Coding::Identity),
            "gzip" | "x-gzip" => Ok(Coding::Gzip),
            "zstd" => Ok(Coding::Zstd),
            _ => Err(unsupported()),
        }
    }
}

fn unsupported() -> Problem {
    let detail = "the header Content-Encoding must be gzip or zstd, or absent";
    Problem::new(Code::UnsupportedEncoding, detail)
}

/// Decompresses `body` and counts the result in `share`.
pub(super) async fn decode(
    body: &[u8],
    coding: Coding,
    bytes_max: usize,
    share: &mut Share,
) -> Result<Bytes, Problem> {
    let mut decoder = match coding {
        Coding::Identity => return Ok(Bytes::copy_from_slice(body)),
        Coding::Gzip => Decoder::Gzip(Gzip { rest: body, member: None }),
        Coding::Zstd => Decoder::Zstd(Box::new(Zstd::new(body))),
    };
    let (mut whole, mut members) = (Vec::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let step = decoder.step(&mut piece).map_err(|reason| {
            let at = body.len() - decoder.rest().len();
            Problem::new(
                Code::CorruptEncoding,
                format!("the body is not valid {} at byte {at}: {reason}", coding.as_str()),
            )
        })?;
        let count = match step {
            Step::End => return Ok(whole.into()),
            Step::Start => {
                members += 1;
                if members > MEMBERS_MAX {
                    let detail = format!("a body has at most {MEMBERS_MAX} gzip members or zstd frames");
                    return Err(Problem::new(Code::BodyTooLarge, detail));
                }
                0
            }
            Step::Bytes(count) => count,
        };
        if whole.len() + count > bytes_max {
            let detail = format!("a body is at most {bytes_max} bytes long, before and after decompression");
            return Err(Problem::new(Code::BodyTooLarge, detail));
        }
        // zstd holds as much again, up to its window.
        let held = match coding {
            Coding::Zstd if whole.len() < ZSTD_WINDOW_BYTES_MAX => 2 * count,
            _ => count,
        };
        if !share.grow(held) {
            return Err(Problem::new(
                Code::Overloaded,
                "the node's memory for request bodies is full; try again",
            ));
        }
        whole.extend_from_slice(&piece[..count]);
        tokio::task::yield_now().await;
    }
}

enum Step {
    /// A member or frame starts.
    Start,
    /// Number of bytes written to the piece, at least one.
    Bytes(usize),
    End,
}

enum Decoder<'a> {
    Gzip(Gzip<'a>),
    Zstd(Box<Zstd<'a>>),
}

impl Decoder<'_> {
    fn step(&mut self, piece: &mut [u8]) -> Result<Step, String> {
        match self {
            Decoder::Gzip(gzip) => gzip.step(piece),
            Decoder::Zstd(zstd) => zstd.step(piece),
        }
    }

    /// The compressed bytes not read yet.
    fn rest(&self) -> &[u8] {
        match self {
            Decoder::Gzip(Gzip { member: Some(member), .. }) => member.get_ref(),
            Decoder::Gzip(Gzip { rest, .. }) => rest,
            Decoder::Zstd(zstd) => zstd.rest,
        }
    }
}

struct Gzip<'a> {
    rest: &'a [u8],
    member: Option<GzDecoder<&'a [u8]>>,
}

impl<'a> Gzip<'a> {
    fn step(&mut self, piece: &mut [u8]) -> Result<Step, String> {
        let Some(member) = &mut self.member else {
            if self.rest.is_empty() {
                return Ok(Step::End);
            }
            self.member = Some(GzDecoder::new(self.rest));
            return Ok(Step::Start);
        };
        match member.read(piece) {
            Ok(0) => {
                let rest: &'a [u8] = member.get_ref();
                self.rest = rest;
                self.member = None;
                self.step(piece)
            }
            Ok(count) => Ok(Step::Bytes(count)),
            Err(error) => Err(error.to_string()),
        }
    }
}

struct Zstd<'a> {
    rest: &'a [u8],
    decoder: FrameDecoder,
    /// A frame has started, and its checksum is not verified yet.
    in_frame: bool,
}

impl<'a> Zstd<'a> {
    fn new(body: &'a [u8]) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX as u64);
        Self { rest: body, decoder, in_frame: false }
    }

    fn step(&mut self, piece: &mut [u8]) -> Result<Step, String> {
        while self.in_frame {
            if self.decoder.can_collect() > 0 {
                let count = self.decoder.read(piece).map_err(|error| error.to_string())?;
                return Ok(Step::Bytes(count));
            }
            if !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.rest, strategy).map_err(|error| error.to_string())?;
                continue;
            }
            // RFC 8878 §3.1.1: four bytes of XXH64.
            let expected = self.decoder.get_checksum_from_data();
            if expected.is_some_and(|expected| Some(expected) != self.decoder.get_calculated_checksum()) {
                return Err("the checksum of a frame is wrong".to_owned());
            }
            self.in_frame = false;
        }
        if self.rest.is_empty() {
            return Ok(Step::End);
        }
        match self.decoder.reset(&mut self.rest) {
            Ok(()) => self.in_frame = true,
            // RFC 8878 §3.1.2
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                self.rest = self.rest.get(length..).ok_or("it ends within a skippable frame")?;
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(Step::Start)
    }
}

//! The data types of a packet's body (§1.5), read in place.

use super::Violation;
use super::frame::{var_int, var_int_bytes};

/// The unread part of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Violation> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes everything that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Violation> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Violation> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Violation> {
        self.array().map(u32::from_be_bytes)
    }

    /// §1.5.5; used in bodies by MQTT 5 only.
    pub(super) fn var_int(&mut self) -> Result<u32, Violation> {
        let (value, bytes) = var_int(self.0)?.ok_or(Violation::Truncated)?;
        if bytes != var_int_bytes(value) {
            return Err(Violation::LengthNotMinimal);
        }
        self.0 = &self.0[bytes..];
        Ok(value)
    }

    /// §1.5.6
    pub(super) fn binary(&mut self) -> Result<&'a [u8], Violation> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// §1.5.4: UTF-8 (so without surrogates) and without U+0000; U+FEFF is an ordinary character.
    pub(super) fn text(&mut self) -> Result<&'a str, Violation> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Violation::InvalidUtf8)?;
        match text.contains('\0') {
            true => Err(Violation::NulInString),
            false => Ok(text),
        }
    }

    /// §2.2.1: never 0.
    pub(super) fn packet_id(&mut self) -> Result<u16, Violation> {
        match self.u16()? {
            0 => Err(Violation::NoPacketId),
            id => Ok(id),
        }
    }

    pub(super) fn end(self) -> Result<(), Violation> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Violation::TrailingBytes),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(*array)
    }
}

//! The peer's SETTINGS (RFC 9113 §6.5): those that limit us, and validation of their values.

use super::error::ConnectionError;
use super::frame::{MAX_31_BITS, PAYLOAD_BYTES_MAX};

pub(super) mod id {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(in super::super) const ENABLE_PUSH: u16 = 0x2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
}

/// §6.9.2: the initial size of every window.
pub(super) const WINDOW_BYTES: u32 = 65_535;

/// A setting that changes one of our limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    HeaderTableSize(u32),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
}

/// Validates a payload; the settings must be applied in order (§6.5.3).
pub(super) fn parse(
    payload: &[u8],
) -> Result<impl Iterator<Item = Result<Setting, ConnectionError>>, ConnectionError> {
    let (settings, []) = payload.as_chunks::<6>() else {
        return Err(ConnectionError::frame_size("SETTINGS is not a multiple of six bytes"));
    };
    Ok(settings.iter().filter_map(|&[id0, id1, value0, value1, value2, value3]| {
        let value = u32::from_be_bytes([value0, value1, value2, value3]);
        setting(u16::from_be_bytes([id0, id1]), value).transpose()
    }))
}

/// §6.5.2. `None` for a setting that is unknown or does not limit us.
fn setting(id: u16, value: u32) -> Result<Option<Setting>, ConnectionError> {
    match id {
        id::HEADER_TABLE_SIZE => Ok(Some(Setting::HeaderTableSize(value))),
        id::ENABLE_PUSH if value > 0 => Err(ConnectionError::protocol("a server must not enable push")),
        id::MAX_CONCURRENT_STREAMS => Ok(Some(Setting::MaxConcurrentStreams(value))),
        id::INITIAL_WINDOW_SIZE if value > MAX_31_BITS => {
            Err(ConnectionError::flow_control("SETTINGS_INITIAL_WINDOW_SIZE exceeds 2^31-1"))
        }
        id::INITIAL_WINDOW_SIZE => Ok(Some(Setting::InitialWindowSize(value))),
        // We send no frame above the smallest valid limit.
        id::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX..1 << 24).contains(&(value as usize)) => {
            Err(ConnectionError::protocol("SETTINGS_MAX_FRAME_SIZE is out of range"))
        }
        _ => Ok(None),
    }
}

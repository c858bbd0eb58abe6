//! Numbers, texts and lists in frames ([`crate::cluster::wire`]): little-endian, texts with a length prefix. A reader
//! checks every length before it allocates.

/// The bytes do not match the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends the body of one record, with room for its head before it.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    head: usize,
    body: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, head_bytes: usize) -> Self {
        let head = out.len();
        out.resize(head + head_bytes, 0);
        Self { body: out.len(), out, head }
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.out.push(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// A text of at most 65,535 bytes: ids, topics, conditions. A longer one, which no rule allows, is written as
    /// empty, which the reader refuses.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        let (length, text) = u16::try_from(text.len()).map_or((0, ""), |length| (length, text));
        self.raw(&length.to_le_bytes()).raw(text.as_bytes())
    }

    pub(crate) fn long_text(&mut self, text: &str) -> &mut Self {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX)).raw(text.as_bytes())
    }

    pub(crate) fn texts<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t str>) -> &mut Self {
        self.u32(u32::try_from(texts.len()).unwrap_or(u32::MAX));
        for text in texts {
            self.text(text);
        }
        self
    }

    /// Writes the head.
    pub(crate) fn end(self, kind: u8) {
        let length = u32::try_from(self.out.len() - self.body).unwrap_or(u32::MAX);
        self.out[self.head] = kind;
        self.out[self.head + 1..self.body].copy_from_slice(&length.to_le_bytes());
    }
}

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Whether an older version ended here.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = u16::from_le_bytes(self.array()?);
        std::str::from_utf8(self.take(usize::from(length))?).map_err(|_| Malformed)
    }

    pub(crate) fn long_text(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed)
    }

    /// Bytes with their number before them.
    pub(crate) fn bytes(&mut self, count_max: usize) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if count > count_max {
            return Err(Malformed);
        }
        self.take(count)
    }

    /// A list whose items take at least `item_bytes`: refuses a count that the remaining bytes cannot hold.
    pub(crate) fn list<T>(
        &mut self,
        count_max: usize,
        item_bytes: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if count > count_max || count > self.rest.len() / item_bytes {
            return Err(Malformed);
        }
        (0..count).map(|_| item(self)).collect()
    }
}

//! Lists, page by page.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream;

use crate::error::Error;

/// The entries of all pages of a list: a [`Stream`] that requests pages as it proceeds, and ends after an error.
#[must_use = "a stream does nothing unless it is polled"]
pub struct Pages<T>(Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>);

impl<T: Send + 'static> Pages<T> {
    /// `list` reads the page after a position, and returns its entries and the next position.
    pub(crate) fn new<F, R>(after: Option<String>, list: F) -> Self
    where
        F: Fn(Option<String>) -> R + Send + 'static,
        R: Future<Output = Result<(Vec<T>, Option<String>), Error>> + Send,
    {
        struct State<T> {
            entries: std::vec::IntoIter<T>,
            /// None: the last page.
            next: Option<Option<String>>,
        }
        let state = (State { entries: Vec::new().into_iter(), next: Some(after) }, list);
        Self(Box::pin(stream::try_unfold(state, |(mut state, list)| async move {
            loop {
                if let Some(entry) = state.entries.next() {
                    return Ok(Some((entry, (state, list))));
                }
                let Some(after) = state.next.take() else { return Ok(None) };
                // A page may be empty although more follow.
                let (entries, next) = list(after).await?;
                state = State { entries: entries.into_iter(), next: next.map(Some) };
            }
        })))
    }

    /// The next entry. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }

    /// All entries.
    pub async fn collect(mut self) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        while let Some(entry) = self.next().await {
            all.push(entry?);
        }
        Ok(all)
    }
}

impl<T> Stream for Pages<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

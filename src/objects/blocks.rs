//! Reads at any place of a remote file, from blocks that are fetched whole and ahead.
//!
//! Parquet asks for a footer, for headers of some bytes and for pages of a megabyte; a request for each would wait
//! longer than it reads. So blocks of two megabytes are fetched, a bounded number of them is in memory, and while one is
//! read the next is on its way.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::ObjectError;

/// Large enough that a request's own time does not count, small enough to have one for each column.
const BLOCK: u64 = 2 << 20;
/// Blocks of one file in memory: 48 MiB, so one for each of some twenty columns that are read side by side.
const MOST_BLOCKS: usize = 24;

/// Gives the bytes of a range; gives up once nobody wants them any more.
pub(super) type Fetch =
    Arc<dyn Fn(Range<u64>, &CancellationToken) -> Result<Bytes, ObjectError> + Send + Sync>;

/// A remote file.
pub struct Blocks {
    fetch: Fetch,
    size: u64,
    held: Mutex<Held>,
    end: CancellationToken,
}

#[derive(Default)]
struct Held {
    blocks: HashMap<u64, (Block, u64)>,
    /// Counts uses, to find the block that was used longest ago.
    uses: u64,
}

enum Block {
    Here(Bytes),
    OnItsWay(JoinHandle<Result<Bytes, ObjectError>>),
}

impl Blocks {
    pub(super) fn new(size: u64, fetch: Fetch) -> Self {
        Self {
            fetch,
            size,
            held: Mutex::default(),
            end: CancellationToken::new(),
        }
    }

    /// Fills `into` with the bytes from `at` on.
    ///
    /// # Errors
    /// Those of the store, as [`io::Error`]s that hold an [`ObjectError`]; [`io::ErrorKind::UnexpectedEof`] for a range
    /// that ends behind the file.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < into.len() {
            let place = at + done as u64;
            let block = self.block(place / BLOCK)?;
            let from = usize::try_from(place % BLOCK).expect("a block fits into memory");
            let n = (block.len() - from).min(into.len() - done);
            into[done..done + n].copy_from_slice(&block[from..from + n]);
            done += n;
        }
        Ok(())
    }

    fn block(&self, number: u64) -> Result<Bytes, ObjectError> {
        let mut held = self.held();
        let goes_on = number == 0 || held.blocks.contains_key(&(number - 1));
        let next = number + 1;
        if goes_on && next * BLOCK < self.size && !held.blocks.contains_key(&next) {
            let (fetch, range, end) = (self.fetch.clone(), self.range(next), self.end.clone());
            let fetching = std::thread::spawn(move || fetch(range, &end));
            held.put(next, Block::OnItsWay(fetching));
        }
        let there = held.blocks.remove(&number).map(|(block, _)| block);
        // Others may read other blocks meanwhile.
        drop(held);
        let bytes = match there {
            Some(Block::Here(bytes)) => bytes,
            Some(Block::OnItsWay(fetching)) => fetching.join().expect("fetching does not panic")?,
            None => (self.fetch)(self.range(number), &self.end)?,
        };
        self.held().put(number, Block::Here(bytes.clone()));
        Ok(bytes)
    }

    fn range(&self, number: u64) -> Range<u64> {
        let start = number * BLOCK;
        start..(start + BLOCK).min(self.size)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no holder of this lock panics")
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.end.cancel();
        // No request outlives what it is for, and so none is on its way when the program ends.
        for (_, (block, _)) in self.held().blocks.drain() {
            if let Block::OnItsWay(fetching) = block {
                let _ = fetching.join();
            }
        }
    }
}

impl Held {
    fn put(&mut self, number: u64, block: Block) {
        self.uses += 1;
        while self.blocks.len() >= MOST_BLOCKS {
            let oldest = self.blocks.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(number, _)| *number) else {
                break;
            };
            // One that is on its way arrives for nobody.
            self.blocks.remove(&oldest);
        }
        self.blocks.insert(number, (block, self.uses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn file(size: u64) -> (Blocks, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let fetch = move |range: Range<u64>, _: &CancellationToken| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(range.map(byte).collect::<Vec<u8>>().into())
        };
        (Blocks::new(size, Arc::new(fetch)), asked)
    }

    fn byte(at: u64) -> u8 {
        u8::try_from((at * 7 + at / BLOCK) % 251).unwrap()
    }

    #[test]
    fn any_range_comes_as_it_is_and_each_block_once() {
        let size = 5 * BLOCK + 100;
        let (blocks, asked) = file(size);
        for (at, length) in [
            (0, 10),
            (BLOCK - 5, 10),
            (size - 8, 8),
            (3 * BLOCK - 1, 2 * 1024 * 1024 + 2),
            (0, usize::try_from(size).unwrap()),
        ] {
            let mut into = vec![0; length];
            blocks.read_at(at, &mut into).unwrap();
            assert!(
                into.iter().zip(at..).all(|(got, at)| *got == byte(at)),
                "{at}"
            );
        }
        assert_eq!(asked.load(Ordering::SeqCst), 6);
        let mut one = [0];
        let behind = blocks.read_at(size, &mut one).unwrap_err();
        assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
        assert!(blocks.read_at(u64::MAX, &mut one).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let (blocks, _) = file(100 * BLOCK);
        let mut one = [0];
        for number in 0..100 {
            blocks.read_at(number * BLOCK, &mut one).unwrap();
            assert!(blocks.held().blocks.len() <= MOST_BLOCKS);
        }
    }

    #[test]
    fn an_error_of_a_block_that_was_fetched_ahead_is_told() {
        let fetch = |range: Range<u64>, _: &CancellationToken| {
            if range.start == 0 {
                Ok(vec![0; usize::try_from(BLOCK).unwrap()].into())
            } else {
                Err(ObjectError::Changed("s3://b/k".into()))
            }
        };
        let blocks = Blocks::new(2 * BLOCK, Arc::new(fetch));
        let mut into = vec![0; usize::try_from(BLOCK).unwrap() + 1];
        let error = blocks.read_at(0, &mut into).unwrap_err();
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        assert!(matches!(inner, Some(ObjectError::Changed(_))), "{error}");
    }
}

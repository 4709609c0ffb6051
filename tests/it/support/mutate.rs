//! Inputs that somebody broke: seeds with bytes changed, cut, doubled and spliced, the same ones for the same number.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

/// How long each reader is attacked; without it, a short while that every run of the tests can spare.
const SECONDS: &str = "TOPICMILL_FUZZ_SECS";

/// What readers stumble over, put in anywhere.
const WORDS: [&str; 40] = [
    "",
    "0",
    "-1",
    "1e999",
    "-0.0",
    "NaN",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "253402300800",
    "1700000000000",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[",
    "{\"kind\":\"t3\",\"data\":",
    "\\ud83d",
    "\\udc00",
    "\\u0000",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "\u{1b}[2J",
    "\r\n",
    "\n",
    ",",
    "\"",
    "'''",
    "\"\"\"",
    "=",
    "t3_0",
    "T3_0AA1",
    "t3_zzzzzzzzzzzzzzzz",
    "[removed]",
    "<html>",
    "Infinity",
];

/// Makes broken inputs.
pub struct Mutator(fastrand::Rng);

impl Mutator {
    fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `end`, which is above 0.
    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    /// One of the seeds, mostly with a few bytes overwritten: where offsets are written down, whatever moves bytes is
    /// found out at once.
    pub fn overwritten(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        if self.below(8) == 0 {
            return self.broken(seeds);
        }
        let mut bytes = self.pick(seeds).clone();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.0.u8(..),
                2 => bytes[at] = bytes[at].wrapping_add(1),
                _ => bytes[at] = *self.pick(&[0, 1, 0x7f, 0x80, 0xff, 0x15, 0x18, 0x19]),
            }
        }
        bytes
    }

    /// One of the seeds, broken in one to eight places.
    pub fn broken(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.pick(seeds).clone();
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(32)).min(bytes.len());
            match self.below(9) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.0.u8(..),
                2 => drop(bytes.splice(at..end, [])),
                3 => {
                    let part = bytes[at..end].to_vec();
                    for _ in 0..=self.below(4) {
                        bytes.splice(at..at, part.iter().copied());
                    }
                }
                4 => bytes.truncate(at),
                5 => drop(bytes.splice(at..end, self.word().bytes())),
                6 => drop(bytes.splice(at..at, self.word().bytes())),
                7 => {
                    let other = self.pick(seeds);
                    let from = self.below(other.len() + 1);
                    let to = (from + self.below(64)).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                _ => {
                    // A length in binary formats, little-endian or a varint.
                    let number = match self.below(3) {
                        0 => u32::MAX.to_le_bytes(),
                        1 => 0x7fff_ffff_u32.to_le_bytes(),
                        _ => [0xff, 0xff, 0xff, 0x7f],
                    };
                    bytes.splice(at..(at + 4).min(bytes.len()), number);
                }
            }
        }
        bytes
    }
}

/// Attacks a reader `times` times, or as long as the environment says; `attack` panics where a promise is broken.
/// What broke it is written to the system's folder for temporary files, and belongs into the corpus once mended.
pub fn fuzz(
    name: &str,
    times: u64,
    mut attack: impl FnMut(&mut Mutator) -> Vec<u8>,
    mut check: impl FnMut(&[u8]),
) {
    let longer = std::env::var(SECONDS).ok();
    let longer = longer.map(|secs| Duration::from_secs(secs.parse().unwrap()));
    let clock = clock();
    // Each long run has inputs of its own.
    let first = longer.map_or(1, |_| clock.0);
    let mut done = 0;
    let mut findings = 0;
    while longer.map_or(done < times, |longer| clock.1() < longer) {
        let bytes = attack(&mut Mutator::new(first + done));
        done += 1;
        let before = clock.1();
        let broken = catch_unwind(AssertUnwindSafe(|| check(&bytes))).is_err();
        let took = clock.1().saturating_sub(before);
        if broken || took > Duration::from_secs(20) {
            findings += 1;
            let path = std::env::temp_dir().join(format!("topicmill-fuzz-{name}-{findings}"));
            std::fs::write(&path, &bytes).unwrap();
            tell(&format!("{name}: {} after {took:?}\n", path.display()));
            assert!(findings < 20, "enough");
        }
    }
    if longer.is_some() {
        tell(&format!("{name}: {done} executions, {findings} findings\n"));
    }
    assert_eq!(findings, 0, "{name}: see the files named above");
}

/// The second that a run begins in, and what has passed since then.
fn clock() -> (u64, impl Fn() -> Duration) {
    #[expect(clippy::disallowed_methods, reason = "outside of the program")]
    let (now, started) = (SystemTime::now(), Instant::now());
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    (now.as_secs(), move || started.elapsed())
}

fn tell(text: &str) {
    use std::io::Write;
    // Not `eprintln`: the harness keeps that to itself where a test passes.
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

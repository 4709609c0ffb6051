//! Times tokenising each post once, pairs spliced from the pieces, beside encoding every pair of post and
//! hypothesis, with the same tokenizer in the same process, in turns.
//!
//!     cargo bench -p topicmill-score --bench tokenize -- MODEL TEXTS [ROUNDS]
//!
//! TEXTS has a JSON object with a `text` a line. `RAYON_NUM_THREADS=1` keeps both to one core. The ids of every
//! pair that was not cut are compared.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tokenizers::{Tokenizer, TruncationParams, TruncationStrategy};
use topicmill_score::folder::ModelFolder;
use topicmill_score::text::Encoder;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Texts that are theirs at a time.
const WINDOW: usize = 1_024;

const LABELS: [&str; 16] = [
    "politics",
    "sports",
    "video games",
    "technology",
    "science",
    "health",
    "food",
    "travel",
    "music",
    "movies",
    "books",
    "personal finance",
    "education",
    "climate",
    "relationships",
    "pets",
];

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let (model, texts, rounds) = match &arguments[..] {
        [model, texts] => (model, texts, 5),
        [model, texts, rounds] => (model, texts, rounds.parse()?),
        _ => return Err("say MODEL TEXTS [ROUNDS]".into()),
    };
    let folder = ModelFolder::open(Path::new(model), None)?;
    let encoder = Encoder::load(&folder)?;
    let mut tokenizer = Tokenizer::from_file(&folder.tokenizer).map_err(|e| e.to_string())?;
    tokenizer.with_padding(None);
    tokenizer.set_encode_special_tokens(true);
    let cut = TruncationParams {
        max_length: folder.max_tokens,
        strategy: TruncationStrategy::OnlyFirst,
        ..TruncationParams::default()
    };
    tokenizer
        .with_truncation(Some(cut))
        .map_err(|e| e.to_string())?;
    let texts: Vec<String> = std::fs::read_to_string(texts)?
        .lines()
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line)?;
            Ok(row["text"]
                .as_str()
                .ok_or("a line without `text`")?
                .to_owned())
        })
        .collect::<Outcome<_>>()?;
    let hypotheses: Vec<String> = LABELS
        .iter()
        .map(|label| format!("This text is about {label}."))
        .collect();

    let mut best = [Duration::MAX; 2];
    let (mut pairs, mut tokens, mut other) = (0_usize, 0_usize, 0_usize);
    for round in 0..rounds {
        let mut times = [Duration::ZERO; 2];
        for window in texts.chunks(WINDOW) {
            let began = now();
            let posts = encoder.encode(window)?;
            let about = encoder.encode(&hypotheses)?;
            let spliced: Vec<_> = posts
                .iter()
                .flat_map(|post| about.iter().map(|about| encoder.pair(post, about)))
                .collect();
            times[0] += began.elapsed();

            let began = now();
            let mut theirs = Vec::with_capacity(spliced.len());
            for post in window {
                let rows = hypotheses
                    .iter()
                    .map(|about| (post.as_str(), about.as_str()));
                let rows = tokenizer.encode_batch(rows.collect(), true);
                theirs.extend(rows.map_err(|e| e.to_string())?);
            }
            times[1] += began.elapsed();

            if round == 0 {
                pairs += theirs.len();
                for (ours, theirs) in spliced.iter().zip(&theirs) {
                    tokens += ours.ids.len();
                    other += usize::from(ours.ids != theirs.get_ids());
                }
            }
        }
        best = [best[0].min(times[0]), best[1].min(times[1])];
    }
    let [once, each] = best.map(|time| time.as_secs_f64());
    writeln!(
        std::io::stdout(),
        "{} texts, {pairs} pairs, {tokens} tokens; pairs with other ids: {other}\n\
         each pair encoded: {each:.3} s\neach post once, spliced: {once:.3} s\n{:.1} times as fast",
        texts.len(),
        each / once,
    )?;
    Ok(())
}

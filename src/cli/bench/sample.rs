//! Texts with the lengths of Reddit, made up word by word: nobody's posts.
//!
//! Three in ten are titles of about 15 tokens, the others have bodies: a median of 120 tokens, one in twenty
//! more than 500.

/// Common words, about one token each.
const WORDS: &[&str] = &[
    "the", "a", "of", "and", "to", "in", "for", "with", "that", "this", "my", "we", "they",
    "after", "before", "about", "game", "team", "market", "film", "book", "train", "dinner",
    "doctor", "school", "phone", "city", "summer", "price", "story", "music", "player", "recipe",
    "model", "climate", "village", "engine", "garden", "teacher", "letter", "works", "runs",
    "found", "made", "think", "need", "want", "changed", "lost", "won", "started", "finished",
    "good", "old", "new", "strange", "small", "better", "early", "late",
];

/// A sequence of numbers that look random, the same on every run and with every version of any crate, because recorded
/// figures are of the texts that it makes. The factors are Knuth's for MMIX.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The low bits of such a sequence come round again soon.
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let fraction = self.below(1 << 24) as f64 / f64::from(1 << 24);
        fraction
    }

    /// Of the normal distribution, nearly.
    fn normal(&mut self) -> f64 {
        // Twelve fractions have a variance of 1 together, and a mean of 6.
        (0..12).map(|_| self.fraction()).sum::<f64>() - 6.0
    }
}

/// So many texts.
pub fn texts(count: usize) -> Vec<String> {
    let mut numbers = Numbers(7);
    (0..count).map(|_| one(&mut numbers)).collect()
}

fn one(numbers: &mut Numbers) -> String {
    let title = 8 + numbers.below(11);
    let title = words(numbers, title);
    if numbers.fraction() < 0.3 {
        return title;
    }
    // ln(500 / 120) is 1.645 of these.
    let tokens = 120.0 * (0.868 * numbers.normal()).exp();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and small"
    )]
    let body = (tokens * 0.9) as usize;
    let body = words(numbers, body.clamp(4, 4_000));
    format!("{title}\n\n{body}")
}

/// Words, with a full stop now and then.
fn words(numbers: &mut Numbers, count: usize) -> String {
    let mut text = String::new();
    for i in 0..count {
        if i > 0 {
            text.push_str(if numbers.below(9) == 0 { ". " } else { " " });
        }
        text.push_str(WORDS[numbers.below(WORDS.len())]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_the_lengths_of_reddit() {
        let texts = texts(4_000);
        let bodies: Vec<usize> = texts
            .iter()
            .filter_map(|text| Some(text.split_once("\n\n")?.1.split(' ').count()))
            .collect();
        let titles = texts.len() - bodies.len();
        assert!((1_100..1_300).contains(&titles), "{titles}");
        let mut bodies = bodies;
        bodies.sort_unstable();
        let at = |percent: usize| bodies[bodies.len() * percent / 100];
        assert!((100..120).contains(&at(50)), "{}", at(50));
        assert!((380..520).contains(&at(95)), "{}", at(95));
        assert_eq!(texts, super::texts(4_000), "the same on every run");
    }
}

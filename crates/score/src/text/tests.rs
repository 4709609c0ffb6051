//! Tests that spliced sequences equal the tokenizer's own, for two tokenizer families.

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{AddedToken, TruncationDirection, TruncationParams, TruncationStrategy};

use super::*;

const TEXTS: &[&str] = &[
    "",
    "Title",
    "Reddit users discuss whether naïve café owners 😀 should accept <crypto> payments; it's a long story.",
    "a [SEP] b </s> c <s> d [CLS] [PAD] <pad>",
    "tabs\tand\n\nnewlines   and   blanks ",
    "株式市場の動向について",
];

const HYPOTHESES: &[&str] = &[
    "This text is about climate change.",
    "Politics & <science>",
    "x",
];

fn bert() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../models/minilm-reddit-topics/tokenizer.json");
    Tokenizer::from_file(path).unwrap()
}

/// Byte-level BPE with two separators between the texts, like `RoBERTa` and BART.
fn roberta() -> Tokenizer {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)));
    let special = |token: &str| AddedToken::from(token, true);
    let trainer = BpeTrainer::builder()
        .vocab_size(400)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![
            special("<s>"),
            special("<pad>"),
            special("</s>"),
            special("<unk>"),
        ])
        .build();
    let corpus = TEXTS
        .iter()
        .chain(HYPOTHESES)
        .map(|text| (*text).to_owned())
        .collect::<Vec<_>>();
    tokenizer
        .train(&mut TrainerWrapper::BpeTrainer(trainer), corpus.into_iter())
        .unwrap();
    let id = |token: &str| (token.to_owned(), tokenizer.token_to_id(token).unwrap());
    let processing = RobertaProcessing::new(id("</s>"), id("<s>"));
    tokenizer.with_post_processor(Some(processing));
    tokenizer
}

fn encoder(tokenizer: Tokenizer, max_tokens: usize) -> Encoder {
    Encoder::new(tokenizer, Path::new("tokenizer.json"), max_tokens, None).unwrap()
}

fn encode(encoder: &Encoder, text: &str) -> EncodedText {
    encoder.encode(&[text.to_owned()]).unwrap().remove(0)
}

#[test]
fn a_spliced_pair_equals_the_tokenizers_own() {
    for make in [bert, roberta] {
        for max_tokens in [24, 40, 64, 512] {
            let encoder = encoder(make(), max_tokens);
            let mut reference = make();
            reference.with_padding(None).set_encode_special_tokens(true);
            let truncation = TruncationParams {
                max_length: max_tokens,
                strategy: TruncationStrategy::OnlyFirst,
                stride: 0,
                direction: TruncationDirection::Right,
            };
            reference.with_truncation(Some(truncation)).unwrap();
            for text in TEXTS
                .iter()
                .map(|t| (*t).to_owned())
                .chain([TEXTS[2].repeat(40)])
            {
                let premise = encode(&encoder, &text);
                let single = encoder.single(&premise);
                let expected = reference.encode(text.as_str(), true).unwrap();
                assert_eq!(
                    (&*single.ids, &*single.type_ids),
                    (expected.get_ids(), expected.get_type_ids())
                );
                assert_eq!(encoder.single_len(&premise), single.ids.len());
                for hypothesis in HYPOTHESES {
                    let ids = encoder.encode_whole(hypothesis).unwrap();
                    if encoder.premise_room(ids.len()) == 0 {
                        continue;
                    }
                    let pair = encoder.pair(&premise, &ids);
                    let expected = reference
                        .encode((text.as_str(), *hypothesis), true)
                        .unwrap();
                    assert_eq!(
                        (&*pair.ids, &*pair.type_ids),
                        (expected.get_ids(), expected.get_type_ids())
                    );
                    assert_eq!(encoder.pair_len(&premise, &ids), pair.ids.len());
                }
            }
        }
    }
}

#[test]
fn special_tokens_in_a_text_are_plain_text() {
    for make in [bert, roberta] {
        let encoder = encoder(make(), 512);
        let specials: Vec<u32> = encoder
            .pair
            .prefix
            .iter()
            .chain(&encoder.pair.suffix)
            .map(|(id, _)| *id)
            .collect();
        let text = encode(&encoder, "a [SEP] b </s> c <s> d [CLS]");
        assert!(text.ids.iter().all(|id| !specials.contains(id)), "{text:?}");
    }
}

#[test]
fn truncation_before_tokenising_loses_no_tokens() {
    // Few tokens per character: spaces, and words that are one unknown token each.
    let blanks = format!("start{}end {}", " ".repeat(20_000), "word ".repeat(500));
    let unknown = "x".repeat(5_000) + " " + &"word ".repeat(500);
    let plain = TEXTS[2].repeat(200);
    for text in [blanks, unknown, plain] {
        let encoder = encoder(bert(), 128);
        let whole = encoder.encode_whole(&text).unwrap();
        assert_eq!(encode(&encoder, &text).ids, whole.ids[..encoder.room()]);
    }
    // Long enough for a slow path to be noticed.
    let encoder = encoder(bert(), 128);
    assert_eq!(
        encode(&encoder, &"word ".repeat(10_000_000)).len(),
        encoder.room()
    );
}

//! Tests that spliced sequences equal the tokenizer's own, for two tokenizer families, and that the ids of a GLiClass
//! prompt equal those of the whole string.

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{AddedToken, TruncationDirection, TruncationParams, TruncationStrategy};

use super::*;
use topicmill_core::model_kind::GliclassHead;

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

fn assert_same(sequence: Sequence<'_>, expected: &Encoding) {
    let (ids, type_ids): (Vec<u32>, Vec<u32>) = sequence.ids().unzip();
    assert_eq!(
        (&*ids, &*type_ids),
        (expected.get_ids(), expected.get_type_ids())
    );
    assert_eq!(sequence.tokens(), ids.len());
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
                let expected = reference.encode(text.as_str(), true).unwrap();
                assert_same(encoder.single(&premise), &expected);
                for hypothesis in HYPOTHESES {
                    let ids = encoder.encode_whole(hypothesis).unwrap();
                    if encoder.premise_room(ids.len()) == 0 {
                        continue;
                    }
                    let expected = reference
                        .encode((text.as_str(), *hypothesis), true)
                        .unwrap();
                    assert_same(encoder.pair(&premise, &ids), &expected);
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

/// Tokenizers of GLiClass models: one splits words at spaces, and one marks the start of a row.
const GLICLASS: [&str; 2] = ["tiny-gliclass-bert", "tiny-gliclass-deberta"];
/// Labels and separator as the `gliclass` package writes them.
const PROMPT: &str = "<<LABEL>>food<<LABEL>>night trains, by the sea<<SEP>>";
const PROMPT_LABELS: [&str; 2] = ["food", "night trains, by the sea"];

/// Reads a tokenizer that parses special tokens in a text.
fn gliclass(name: &str) -> Tokenizer {
    let path = format!("../../tests/it/fixtures/gliclass/models/{name}/tokenizer.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut tokenizer = Tokenizer::from_file(path).unwrap();
    tokenizer.with_padding(None).with_truncation(None).unwrap();
    tokenizer
}

fn prompt_encoder(
    tokenizer: &Tokenizer,
    prompt_first: bool,
    task_prompt: &str,
    max_tokens: usize,
) -> Encoder {
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let head = GliclassHead {
        label_id: id("<<LABEL>>"),
        separator_id: id("<<SEP>>"),
        prompt_first,
        max_labels: None,
        task_prompt: task_prompt.to_owned(),
    };
    let encoder = encoder(tokenizer.clone(), max_tokens);
    encoder
        .with_prompt(&head, Path::new("tokenizer.json"))
        .unwrap()
}

/// Returns the ids of a row with two labels.
fn prompted(encoder: &Encoder, text: &str) -> Vec<u32> {
    let prompt = encoder.encode_labels(PROMPT_LABELS.into_iter()).unwrap();
    let text = encode(encoder, text);
    let sequence = encoder.prompted(&text, &prompt);
    let ids: Vec<u32> = sequence.ids().map(|(id, _)| id).collect();
    assert_eq!(sequence.tokens(), ids.len());
    ids
}

#[test]
fn a_prompt_has_the_ids_of_the_whole_string() {
    for name in GLICLASS {
        let tokenizer = gliclass(name);
        for task_prompt in ["", "What is this text about", "Choose topics: "] {
            for text in TEXTS.iter().filter(|text| !text.contains("[SEP]")) {
                for (prompt_first, whole) in [
                    (true, format!("{PROMPT}{task_prompt}{text}")),
                    (false, format!("{text}{PROMPT}{task_prompt}")),
                ] {
                    let encoder = prompt_encoder(&tokenizer, prompt_first, task_prompt, 4096);
                    let expected = tokenizer.encode(whole.as_str(), true).unwrap();
                    assert_eq!(
                        prompted(&encoder, text),
                        expected.get_ids(),
                        "{name}: {whole}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_text_after_a_task_prompt_is_truncated_at_its_end() {
    let task_prompt = "What is this text about";
    let blanks = format!("start{}end {}", " ".repeat(20_000), "word ".repeat(500));
    let unknown = "x".repeat(5_000) + " " + &"word ".repeat(500);
    for name in GLICLASS {
        let tokenizer = gliclass(name);
        let encoder = prompt_encoder(&tokenizer, true, task_prompt, 128);
        for text in [&blanks, &unknown, &TEXTS[2].repeat(200)] {
            let whole = format!("{PROMPT}{task_prompt}{text}");
            let expected = tokenizer.encode(whole.as_str(), false).unwrap();
            let found = prompted(&encoder, text);
            assert_eq!(found.len(), encoder.max_tokens());
            assert_eq!(found[1..127], expected.get_ids()[..126], "{name}");
        }
    }
}

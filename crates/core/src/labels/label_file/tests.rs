//! Tests that a written label set reads back as the same version, and that mistakes are rejected.

use super::*;
use crate::table;

fn no_file(path: &str) -> Result<String, String> {
    Err(format!("no file {path}"))
}

fn read_text(text: &str) -> Result<LabelSet, LabelFileError> {
    read(text, "unnamed", no_file)
}

/// Returns a label set with a background and a fit whose numbers have no short decimal form.
fn fitted() -> LabelSet {
    let mut set = crate::test_examples::set(&["games", "food"]);
    set.background = Some(crate::test_examples::background());
    set.temperature = 1.0 / 3.0;
    set.threshold = 0.1 + 0.2;
    let mut random = fastrand::Rng::with_seed(7);
    let mut class = || FittedClass {
        scale: random.f64(),
        bias: -random.f64() * 1e-9,
        weights: (0..200).map(|_| random.f32() - 0.5).collect(),
    };
    set.fitted = Some(Fitted {
        base: "b".into(),
        model: "m".into(),
        labels: vec![class(), class()],
        none: Some(class()),
        none_below: Some(-4.0),
        provenance: Provenance {
            answers: 3,
            none: 1,
            by: vec!["ada".into()],
            at: "2026-01-01T00:00:00Z".into(),
            target: Some(crate::FitTarget::Precision(0.9)),
        },
    });
    set
}

#[test]
fn a_written_label_set_reads_back_as_the_same_version() {
    let whole = fitted();
    let plain = LabelSet {
        fitted: None,
        background: None,
        ..whole.clone()
    };
    for set in [whole, plain] {
        let read = read_text(&write(&set)).unwrap();
        assert_eq!(read, set);
        assert_eq!(read.hash(), set.hash());
    }
}

#[test]
fn keys_have_the_same_defaults_as_in_the_program() {
    let short = read_text("labels = [\"Video games\", \"food\"]").unwrap();
    assert_eq!(
        (&*short.name, &*short.labels[0].slug),
        ("unnamed", "video-games")
    );
    assert_eq!((short.threshold, short.temperature), (0.0, 1.0));
    let long = "name = \"n\"\nbackground = \"reddit\"\nbackground_without = \"music\"\nbackground_weight = 2\n\
                [[topic]]\nlabel = \"games\"\ndescriptions = \"Play.\"\nsubreddits = [\"gaming\"]\nlimit = 5\n\
                [[schedule]]\nname = \"s\"\n";
    let ineffective = read_text(&long.replace("background = \"reddit\"\n", "")).unwrap_err();
    assert!(ineffective.to_string().contains("need `background`"));
    let long = read_text(long).unwrap();
    assert_eq!(long.labels[0].descriptions, ["Play."]);
    let background = long.background.unwrap();
    assert!((background.weight - 2.0).abs() < f64::EPSILON);
    assert!(background.topics.iter().all(|topic| topic.label != "music"));
}

#[test]
fn an_edited_fit_is_an_error_that_names_the_cause() {
    let good = write(&fitted());
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}: {good}");
        read_text(&good.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    };
    let [first, ..] = &fitted().fitted.unwrap().labels[0].weights[..] else {
        unreachable!()
    };
    let first = format!("weights = [{first}, ");
    for (from, to, expected) in table! {
        &*first, "weights = [", "weights of different lengths";
        &first, "weights = [nan, ", "is not finite";
        &first, "weights = [\"0.5\", ", "invalid type";
        "slug = \"food\"", "slug = \"meals\"", "[[fitted.label]] 2 is for `food`";
        "mode = \"single\"", "mode = \"multi\"", "have changed since the fit";
        "weight = ", "weight = 1", "have changed since the fit";
        "[fitted]", "[fitted]\nx = 1", "unknown field `x`";
    } {
        let error = changed(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    // Settings that apply after the fit may change.
    let looser = good.replacen("threshold = 0.30000000000000004", "threshold = 0.1", 1);
    assert!((read_text(&looser).unwrap().threshold - 0.1).abs() < f64::EPSILON);
    let third = &good[good.rfind("[[fitted.label]]").unwrap()..];
    let error = read_text(&good.replace(third, "")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the fit is for 1 labels, and the set has 2"
    );
}

#[test]
fn mistakes_are_rejected() {
    for (text, expected) in table! {
        "labels = [\"a\"]\ntreshold = 0.5", "unknown field `treshold`";
        "labels = [\"a\"]\nthreshold = 2", "is not between 0 and 1";
        "labels = [\"a\"]\nbackground = \"b.toml\"", "no file b.toml";
        "labels = [\"…\"]", "no slug can be made";
        "labels = [\"a\"]\n[[topic]]\nlabel = \"b\"", "cannot be combined";
        "name = \" \"\nlabels = [\"a\"]", "`name` is empty";
        "", "has no labels";
    } {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

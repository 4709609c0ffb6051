//! What a monitor hears while a run labels.

use std::sync::Mutex;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_as_it_goes_adds_up_to_the_record_of_the_run() {
    let scene = Scene::with_posts(60, crate::clock::SystemClock::shared()).await;
    // One of the engines runs out of memory at first.
    let short = Scripted {
        memory: 200,
        ..Scripted::default()
    };
    let models = vec![models(Box::new(short)), models(Box::<Scripted>::default())];
    let worker = LabelWorker {
        store: &scene.store,
        clock: &scene.clock,
        stop: &scene.stop,
        name: "w",
        run: scene.run,
    };
    let heard = Mutex::new((Labelled::default(), 0));
    let listen = |step| {
        if let LabelStep::Counted(new) = step {
            let mut heard = heard.lock().unwrap();
            heard.0.add(&new);
            heard.1 += 1;
        }
    };
    let mut done = Labelled::default();
    let labels = set(&["food", "games"]);
    let ended = label(&worker, models, &labels, &options(), &listen, &mut done).await;
    ended.unwrap();
    let (heard, times) = heard.into_inner().unwrap();
    assert!(times > 2, "only {times} times");
    let counts = |of: &Labelled| {
        let known = (of.pairs, of.pairs_reused, of.failed, of.oom_splits);
        (
            of.posts,
            known,
            of.tokens,
            of.padded_tokens,
            of.batches.counts,
        )
    };
    assert_eq!(counts(&heard), counts(&done));
    assert_eq!(done.posts, 60);
    assert!(done.tokens > 0 && done.batches.count() > 0, "{done:?}");
    let busy = |of: &Labelled| of.stages.engine_busy_secs + of.stages.engine_idle_secs;
    assert!(
        (busy(&heard) - busy(&done)).abs() < 1e-6,
        "{heard:?} {done:?}"
    );
}
